"""An export that clients ask for: one at a time, none where the disk is nearly full, and why one is not made."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from homing.journal.errors import JournalError
from homing.journal.export.exports import Exports
from tests.process import ROOT

CHILD = "homing.broker.process.export_child"


async def made(exports: Exports) -> dict[str, object]:
    exports.start("now", with_tracebacks=False)
    with pytest.raises(JournalError, match="An export is being made"):
        exports.start("again", with_tracebacks=False)
    async with asyncio.timeout(60):
        while exports.status["state"] == "running":  # noqa: ASYNC110 - nobody tells of its end
            await asyncio.sleep(0.01)
    return exports.status


@pytest.mark.parametrize(("child", "why"), [(CHILD, "There is no journal"), ("homing.nowhere", "The process that exports ended early")])
async def test_why_there_is_no_export_is_told_and_nothing_is_left(tmp_path: Path, child: str, why: str) -> None:
    left = tmp_path / "export-to-download"
    left.mkdir()
    exports = Exports(tmp_path, child, lambda: 7, lambda: False)
    assert not left.exists(), "what a process before it left"
    status = await made(exports)
    assert (status["state"], status["ended_ms"], str(status["why"]).startswith(why)) == ("failed", 7, True), status
    assert (exports.file("now"), left.exists()) == (None, False)
    await exports.discard()
    assert exports.status["state"] == "none"


async def test_there_is_none_where_the_disk_is_nearly_full(tmp_path: Path) -> None:
    exports = Exports(tmp_path, CHILD, lambda: 7, lambda: True)
    with pytest.raises(JournalError, match="The disk is nearly full"):
        exports.start("now", with_tracebacks=False)


def test_the_process_ends_in_order_while_the_broker_listens(tmp_path: Path) -> None:
    command = [sys.executable, "-m", CHILD, str(tmp_path), str(tmp_path / "x.tar")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert "There is no journal" in child.stdout.read()
        assert (child.wait(60), child.stderr.read()) == (0, "")
