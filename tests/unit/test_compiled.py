"""The compiled build, as far as it can be looked at without a C compiler; ``scripts/test-compiled`` does this first,
makes it and runs the tests on it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from tests.model.world import World
from tests.process import ROOT
from tests.test_layering import COMPILED
from tests.unit.test_stomp_session import Peer

TRANSLATE = """
import gc, os, sys, tomllib
gc.disable()  # a fifth of its time, for what it keeps to its end
from mypyc.build import mypycify
modules = tomllib.load(open("pyproject.toml", "rb"))["tool"]["homing"]["compiled"]
mypycify(["--cache-dir", sys.argv[1] + "/cache", *modules], target_dir=sys.argv[1])
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_mypyc_takes_what_is_to_be_compiled(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CPyDef_queue___Queue___dispatch" in "".join(path.read_text() for path in tmp_path.glob("*.c"))


@pytest.mark.plain
def test_what_every_message_of_a_stomp_session_passes_is_compiled() -> None:
    peer, calls, room = Peer(World({})).log_in(), Counter[str](), str(ROOT / "homing/broker/protocols/stomp")

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(room):
            calls[str(Path(frame.f_code.co_filename).relative_to(ROOT))] += 1

    peer.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client-individual")
    sys.setprofile(count)
    try:
        for _ in range(20):
            ((_, told, _),) = peer.call("SEND", b"x", destination="/queue/a")
            peer.call("ACK", id=told["ack"])
    finally:
        sys.setprofile(None)
    passed = {path for path, times in calls.items() if times >= 20}
    assert len(passed) > 4
    assert passed - {*COMPILED} == set()
