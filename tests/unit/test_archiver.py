"""Dead letters are archived by a process of its own, which ends when it is not needed, and may end by itself."""

from __future__ import annotations

from asyncio.subprocess import Process
from pathlib import Path

import pytest

from homing.journal import apart
from homing.journal.errors import JournalError
from homing.journal.export import archiver
from homing.journal.export.archiver import Archiver


async def test_it_answers_what_went_wrong_and_is_started_again_when_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    start = apart.start

    async def noted(module: str, *arguments: str) -> Process:
        started.append(await start(module, *arguments))
        return started[-1]

    monkeypatch.setattr(apart, "start", noted)
    archives = Archiver(tmp_path / "nothing", tmp_path / "archives")

    async def refused() -> str:
        with pytest.raises(JournalError) as raised:
            await archives.archive("first", [1], "dead-letter-quota", 0)
        return raised.value.code

    assert [await refused(), await refused()] == ["journal-missing"] * 2
    (first,) = started
    first.kill()
    await first.wait()
    assert await refused() == "journal-missing"
    running = [each.returncode is None for each in started]
    await archives.rest()
    running += [each.returncode is None for each in started]
    monkeypatch.setattr(archiver, "_IDLE_S", -1.0)
    await archives.rest()
    assert running + [each.returncode is None for each in started] == [False, True, False, True, False, False]
    assert not (tmp_path / "archives" / "first").exists()
