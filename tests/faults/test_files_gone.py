"""Somebody removes or replaces files under a running broker: it stops with 71 and confirms nothing more; no second one starts beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from homing.broker.protocols.native.codec import Op
from homing.journal.store.directory import Disk
from tests.faults.hostile import Raw
from tests.process import HomingCommand, Server

#: Soon, so that the files are looked at within the test.
OFTEN = {"journal": {"disk-reserve": "1MiB", "checkpoint-every": "64KiB"}}


def send_on(raw: Raw) -> None:
    for number in range(2, 100):
        raw.send(Op.SEND, 1, number, [[bytes(10_000), None]])
        assert raw.until(Op.CONFIRM) == [Op.CONFIRM, 1, number]


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
@pytest.mark.parametrize("name", ["homing.lock", "homing.db", "homing.db-wal", "homing.db-commits"])
def test_the_broker_stops_and_confirms_nothing_more(start_server: Callable[..., Server], name: str, replaced: bool) -> None:
    server = start_server(OFTEN)
    with Raw(server.url) as raw:
        raw.producer("orders")
        raw.send(Op.SEND, 1, 1, [[b"kept", None]])
        raw.until(Op.CONFIRM)
        path = server.data / name
        if replaced:
            shutil.copy(path, server.data / "copy")
            os.replace(server.data / "copy", path)
        else:
            path.unlink()
        with pytest.raises((AssertionError, OSError)):
            send_on(raw)
    assert server.wait() == 71
    assert f"{path} is {'another file' if replaced else 'gone'}" in server.log_path.read_text()


def test_no_second_broker_starts_where_the_lock_was_removed(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    server = start_server({})
    (server.data / "homing.lock").unlink()
    second = homing("serve", "--data", server.data)
    assert second.returncode == 1
    assert "journal-locked" in second.stderr
    assert "journal-locked" in homing("journal", "backup", "copy", "--data", server.data).stderr
    assert not (server.data / "homing.lock").exists()
    assert server.stop() == 0


def test_the_reserve_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"theirs")
    (tmp_path / "data" / "homing.reserve").symlink_to(victim)
    Disk(tmp_path / "data", 1 << 20).take_reserve()
    assert victim.read_bytes() == b"theirs"
    reserve = (tmp_path / "data" / "homing.reserve").lstat()
    assert reserve.st_size == 1 << 20
