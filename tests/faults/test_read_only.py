"""A file system that cannot be written to: a start on it is refused; a broker under which it becomes so stops, and lost nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homing.broker.protocols.native.codec import Op
from tests.faults.hostile import Raw
from tests.faults.small_disk import small_file_system
from tests.faults.test_recovery_damage import files, run
from tests.process import Server


def send(raw: Raw, number: int) -> None:
    raw.send(Op.SEND, 1, number, [[b"%06d" % number, {"n": number}]])
    raw.until(Op.CONFIRM)


def numbers(url: str) -> list[int]:
    with Raw(url) as raw:
        raw.send(Op.CALL, 1, "peek", {"queue": "orders", "limit": 1000})
        return [message["properties"]["n"] for message in raw.until(Op.RESULT)[2]["messages"]]


@pytest.mark.parametrize("killed", [True, False])
def test_a_start_is_refused(tmp_path: Path, killed: bool) -> None:
    with small_file_system(tmp_path / "disk", 16) as disk:
        server = Server(disk / "broker").start()
        try:
            with Raw(server.url) as raw:
                raw.producer("orders")
                send(raw, 1)
            assert server.kill() if killed else server.stop() == 0
            before = files(server.data)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            (tmp_path / "broker").mkdir()
            (tmp_path / "broker" / "data").symlink_to(server.data)
            code, said, _ = run(tmp_path / "broker")
            assert code == 70
            assert "Read-only file system" in said
            assert "journal-io" in said
            assert "Traceback" not in said
            assert files(server.data) == before
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            server.start()
            assert numbers(server.url) == [1]
            assert server.stop() == 0
        finally:
            server.close()


@contextmanager
def _mounted(image: Path, place: Path) -> Iterator[Path]:
    """Yields the file to write to so that ext4 meets an error, on which it lets nobody write any more."""
    done = subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(place)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no image can be mounted here ({done.stderr.strip()}). enable: run with CAP_SYS_ADMIN and loop devices")
    try:
        source = subprocess.run(["findmnt", "-n", "-o", "SOURCE", str(place)], capture_output=True, text=True, check=True).stdout
        yield Path("/sys/fs/ext4") / Path(source.strip()).name / "trigger_fs_error"
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a file system with errors needs root and ext4. enable: install e2fsprogs, run the tests as root")
    path = tmp_path / "image"
    with path.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True)
    return path


def test_a_broker_under_which_it_becomes_so_stops_and_lost_nothing(image: Path, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    config = {"data-directory": str(place / "data")}
    server = Server(tmp_path / "broker", config)
    try:
        with _mounted(image, place) as trigger:
            if not trigger.exists():
                pytest.skip("this kernel has no trigger_fs_error. enable: Linux 3.10 or newer, /sys mounted")
            server.start()
            with Raw(server.url) as raw:
                raw.producer("orders")
                for number in range(1, 51):
                    send(raw, number)
                trigger.write_text("test")
                # Nobody is answered for what is uncertain.
                raw.send(Op.SEND, 1, 51, [[b"late", {"n": 51}]])
                while (frame := raw.next()) is not None:
                    assert frame[0] != Op.CONFIRM
            assert server.wait() == 70
            said = server.log_path.read_text()
            assert "journal-io" in said
            assert "Traceback" not in said
        subprocess.run(["fsck.ext4", "-p", str(image)], check=False, capture_output=True)
        with _mounted(image, place):
            server.start()
            assert numbers(server.url)[:50] == list(range(1, 51))
            assert server.stop() == 0
    finally:
        server.close()
