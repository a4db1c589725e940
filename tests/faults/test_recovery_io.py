"""The disk fails under a running broker: nobody is answered for what is uncertain, it stops with 70, and what was confirmed is there."""

from __future__ import annotations

import errno
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from homing.broker.protocols.native.codec import Op
from tests.faults.hostile import ANSWER_S, Raw
from tests.process import ROOT, Server

#: At which call of a kind the disk begins to fail; the first ones belong to the start.
PLACES = {"sync": (12, 25, 60), "write": (60, 140, 400)}


class FailingServer:
    """A broker whose calls to the disk fail from a counted one on."""

    def __init__(self, directory: Path, shim: str, call: str, at: int, number: int) -> None:
        config = Server(directory).write_config()
        environment = {
            **os.environ,
            "LD_PRELOAD": shim,
            "HOMING_SHIM_PATH": "homing.db",
            "HOMING_SHIM_CALL": call,
            "HOMING_SHIM_AT": str(at),
            "HOMING_SHIM_ERRNO": str(number),
            "HOMING_SHIM_FOREVER": "1",
        }
        self.log = directory / "failing.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "homing", "serve", "--config", str(config), "--json"],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def url(self) -> str | None:
        """None when it failed before it was ready."""
        assert self.process.stdout is not None
        select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline()
        return f"homing://{json.loads(line)['native']}" if line else None

    def end(self) -> int:
        code = self.process.wait(ANSWER_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.end()


def body(number: int) -> bytes:
    return b"%06d" % number * 500


def work(url: str) -> tuple[int, set[int], int]:
    """Sends and acknowledges one by one until the broker is gone: (confirmed up to, acknowledged for certain, highest number sent)."""
    confirmed = sent = 0
    settled: set[int] = set()
    with Raw(url) as raw:
        try:
            raw.producer("work")
            raw.send(Op.SUBSCRIBE, 2, 1, "work", {"prefetch": 0})
            raw.until(Op.RESULT)
            tag = 0
            while True:
                sent += 1
                raw.send(Op.SEND, 1, sent, [[body(sent), {"n": sent}]])
                confirm = raw.until(Op.CONFIRM)
                assert confirm == [Op.CONFIRM, 1, sent], confirm
                confirmed = sent
                if sent % 3 == 0:
                    raw.send(Op.PULL, 1, 5000)
                    number = raw.until(Op.DELIVER)[3][0][4]["n"]
                    tag += 1
                    raw.send(Op.GIVEN, 1, tag)
                    raw.send(Op.ACK, 1, 4, [tag, tag], None, 9)
                    assert raw.until(Op.RESULT)[2] == {"not_held": []}
                    settled.add(number)
        except (AssertionError, OSError) as error:
            # Nothing but the end of the stream: no refusal, no ERROR, no answer of any kind to what is uncertain.
            if not isinstance(error, OSError) and "the stream ended" not in str(error):
                raise
    return confirmed, settled, sent


@pytest.mark.parametrize(
    ("call", "at", "number"),
    [(call, at, errno.EIO) for call, places in PLACES.items() for at in places],
    ids=[f"{call}-{at}" for call, places in PLACES.items() for at in places],
)
def test_a_failing_disk_stops_the_broker_and_loses_nothing_confirmed(shim: str, tmp_path: Path, call: str, at: int, number: int) -> None:
    failing = FailingServer(tmp_path, shim, call, at, number)
    try:
        url = failing.url()
        confirmed, settled, sent = work(url) if url else (0, set(), 0)
        assert failing.end() == 70
    finally:
        failing.close()
    if at == PLACES[call][-1]:
        assert confirmed > 5, "the disk failed too early for this test to say much"
    said = failing.log.read_text()
    assert "journal-io" in said
    assert "Traceback" not in said
    server = Server(tmp_path).start()
    try:
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 1, "queues", {})
            exists = "work" in [queue["name"] for queue in raw.until(Op.RESULT)[2]]
            assert exists or not confirmed
            found: dict[int, bytes] = {}
            after = None
            while exists:
                raw.send(Op.CALL, 2, "peek", {"queue": "work", "limit": 1000, "after": after})
                page = raw.until(Op.RESULT)[2]
                found |= {message["properties"]["n"]: message["body"] for message in page["messages"]}
                after = page["next"]
                if after is None:
                    break
        assert all(each == body(n) for n, each in found.items())
        missing = set(range(1, confirmed + 1)) - settled - set(found)
        # One acknowledgement may have been under way: its answer never came, either outcome is right.
        assert len(missing) <= 1
        assert not settled & set(found)
        assert max(found, default=0) <= sent
        assert server.stop() == 0
    finally:
        server.close()
