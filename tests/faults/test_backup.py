"""A backup made while a broker is busy holds what was confirmed before it; what is restored from it serves, and no id comes twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from homing.broker.protocols.native.codec import Op
from homing.journal.backup.backup import SKIPPED_IDS
from homing.journal.store.commits import read_last_commit
from tests.faults.hostile import Raw
from tests.process import HomingCommand, Server


class Producer(threading.Thread):
    """Sends and acknowledges without a pause: commits and, every MiB, checkpoints."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.confirmed = 0
        self.enough = threading.Event()
        self.some = threading.Event()

    def run(self) -> None:
        with Raw(self._url, client_id="producer") as raw:
            raw.send(Op.PRODUCER, 1, 1, "orders")
            credit = 0
            while not self.enough.is_set():
                while credit < 20:
                    credit += self._take(raw)
                first = self.confirmed + 1
                raw.send(Op.SEND, 1, first, [[b"%06d" % n * 150, {"n": n}] for n in range(first, first + 20)])
                credit -= 20
                while self.confirmed < first + 19:
                    credit += self._take(raw)
                if self.confirmed > 1_000:
                    self.some.set()

    def _take(self, raw: Raw) -> int:
        frame = raw.next()
        assert frame is not None
        if frame[0] == Op.CONFIRM:
            self.confirmed = frame[2]
        return frame[2] if frame[0] == Op.CREDIT else 0


def messages(url: str) -> dict[int, int]:
    """Number of each message in the queue -> its id."""
    found: dict[int, int] = {}
    after = None
    with Raw(url) as raw:
        while True:
            raw.send(Op.CALL, 1, "peek", {"queue": "orders", "limit": 1000, "after": after})
            page = raw.until(Op.RESULT)[2]
            found |= {message["properties"]["n"]: message["message_id"] for message in page["messages"]}
            after = page["next"]
            if after is None:
                return found


def send_one(url: str, number: int) -> None:
    with Raw(url, client_id="another") as raw:
        raw.producer("orders")
        raw.send(Op.SEND, 1, 1, [[b"a body of its own", {"n": number}]])
        raw.until(Op.CONFIRM)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "broker", {"journal": {"checkpoint-every": "1MiB"}, "limits": {"window-messages": 1000}}).start()
    yield server
    server.close()


def test_a_backup_under_load_holds_what_was_confirmed_before_it_and_restores(server: Server, tmp_path: Path) -> None:
    homing = HomingCommand(tmp_path)
    producer = Producer(server.url)
    producer.start()
    assert producer.some.wait(30)
    before = producer.confirmed
    made = homing("journal", "backup", "daily", "--json", url=server.url)
    after = producer.confirmed
    producer.enough.set()
    producer.join(30)
    assert made.returncode == 0, made.stderr
    backup = Path(json.loads(made.stdout)["path"])
    assert backup == server.data / "backups" / "daily"
    assert after > before
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in backup.iterdir()} == {"homing.db": 0o600, "homing.db-commits": 0o600}
    assert stat.S_IMODE(backup.stat().st_mode) == 0o700
    assert [path.name for path in backup.parent.iterdir()] == ["daily"]
    restored = homing("journal", "restore", backup, "--data", tmp_path / "restored" / "data", "--json")
    assert restored.returncode == 0, restored.stderr
    reported = json.loads(restored.stdout)
    with Raw(server.url) as raw:
        assert raw.welcome[2]["broker_id"] == reported["previous_broker_id"] != reported["broker_id"]
    original = messages(server.url)
    assert sorted(original) == list(range(1, producer.confirmed + 1))
    second = Server(tmp_path / "restored").start()
    try:
        found = messages(second.url)
        # A prefix of what was sent, with everything that was confirmed when the backup was asked for.
        assert sorted(found) == list(range(1, len(found) + 1))
        assert before <= len(found) <= producer.confirmed
        assert found == {number: original[number] for number in found}
        send_one(second.url, -1)
        send_one(server.url, -1)
        assert messages(second.url)[-1] > messages(server.url)[-1] + SKIPPED_IDS // 2
        with Raw(second.url) as raw:
            assert raw.welcome[2]["broker_id"] == reported["broker_id"]
        assert second.stop() == 0
    finally:
        second.close()
    assert server.stop() == 0
    assert "Traceback" not in server.log_path.read_text()


def refused(homing: HomingCommand, *arguments: str | Path, url: str | None = None) -> dict[str, Any]:
    done = homing(*arguments, "--json", url=url)
    assert done.returncode != 0
    reported: dict[str, Any] = json.loads(done.stderr)
    return reported


def test_backups_have_plain_names_and_nothing_takes_the_place_of_anything(server: Server, tmp_path: Path) -> None:
    homing = HomingCommand(tmp_path)
    send_one(server.url, 1)
    with Raw(server.url) as raw:
        for name in ("../out", "a/b", ".hidden", "/tmp/x", "..", "x" * 101):
            raw.send(Op.CALL, 1, "backup", {"name": name})
            assert raw.until(Op.REFUSED)[2] == "backup-name"
    # What a kill left half made goes.
    left = server.data / "backups" / ".monday.0a1b2c3d.partial"
    left.mkdir(parents=True)
    (left / "homing.db").write_bytes(b"half")
    assert homing("journal", "backup", "one", url=server.url).returncode == 0
    assert refused(homing, "journal", "backup", "one", url=server.url)["code"] == "backup-exists"
    assert refused(homing, "journal", "backup", "two", "--data", server.data)["code"] == "journal-locked"
    assert server.stop() == 0
    made = homing("journal", "backup", "two", "--data", server.data, "--json")
    assert made.returncode == 0, made.stderr
    one, two = (server.data / "backups" / name for name in ("one", "two"))
    assert sorted(path.name for path in one.parent.iterdir()) == ["one", "two"]
    assert read_last_commit(two) is not None
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    assert refused(homing, "journal", "restore", two, "--data", tmp_path / "taken")["code"] == "restore-exists"
    content = bytearray((two / "homing.db").read_bytes())
    place = content.index(b"a body of its own")
    content[place] ^= 1
    (two / "homing.db").write_bytes(content)
    assert refused(homing, "journal", "restore", two, "--data", tmp_path / "new")["code"] == "journal-damaged"
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    assert homing("journal", "restore", one, "--data", tmp_path / "new").returncode == 0
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def children(process: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        # Whoever ended meanwhile is nobody's child.
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(") ")[2].split()
            if int(fields[1]) == process:
                found.append(int(status.parent.name))
    return found


def test_a_stop_in_the_middle_of_a_backup_leaves_nothing_of_it(server: Server, tmp_path: Path) -> None:
    send_one(server.url, 1)
    with Raw(server.url) as raw:
        raw.send(Op.CALL, 1, "backup", {"name": "late"})
        while not (copying := children(server.pid)):
            raw.alive()
        os.kill(copying[0], signal.SIGSTOP)
        raw.send(Op.CALL, 2, "backup", {"name": "later"})
        answer = raw.until(Op.REFUSED)
        assert answer[1] == 2
        assert "backup-running" in answer
        assert server.stop() == 0
    assert list((server.data / "backups").iterdir()) == []
    assert "Traceback" not in server.log_path.read_text()
