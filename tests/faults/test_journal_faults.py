"""The journal's promises under faults: what was reported as on disk is there, nothing is there by half, and nobody is told a lie.

A child process writes steps whose outcome is known (journal_child.py). Calls to the disk fail at a counted place, the disk is
full, or the child is killed; then the journal is opened again and compared.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from homing.journal.contract import ReferenceRecord
from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from homing.journal.read.check import check
from homing.journal.store.sqlite import PAGE_BYTES
from tests.faults.journal_child import body, expected
from tests.faults.small_disk import fill_up, small_file_system
from tests.unit.journal_support import NOW_MS, message, opened, query, queue, send, sequences, settle, stored

ROOT = Path(__file__).parents[2]
STEPS, BODY_BYTES = 12, 3_000
#: Small, so that checkpoints are among the calls that fail.
CHECKPOINTS = "checkpoint_every_bytes=300000"
#: How many places of each kind of call fail in the suite; HOMING_FAULT_PLACES=all for every one.
PLACES = os.environ.get("HOMING_FAULT_PLACES", "5")


def _command(directory: Path, steps: int = STEPS, body_bytes: int = BODY_BYTES, *options: str) -> list[str]:
    return [sys.executable, "-m", "tests.faults.journal_child", str(directory), str(steps), str(body_bytes), *options]


def _run(directory: Path, environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = _command(directory, STEPS, BODY_BYTES, CHECKPOINTS, *options)
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=50, check=False)


def _last_done(lines: list[str]) -> int:
    return max((int(line.split()[1]) for line in lines if line.startswith("done ")), default=0)


def _verify(directory: Path, confirmed: int, started: int | None = None) -> int:
    """Open again: everything confirmed is there, whole steps only, every body right. Returns the last step found."""

    async def reopen() -> tuple[int, dict[int, int]]:
        async with opened(directory) as (_, recovered):
            for reference in recovered.references:
                assert reference.message.body == body(reference.sequence, len(reference.message.body))
            return recovered.clock_ms, {reference.sequence: reference.failed for reference in recovered.references}

    found, references = asyncio.run(reopen())
    assert found >= confirmed
    if started is not None:
        assert found <= started
    assert references == expected(found)
    assert query(directory, "PRAGMA page_size") + query(directory, "PRAGMA auto_vacuum") == [(PAGE_BYTES,), (2,)]
    assert check(directory).problems == []
    return found


def _shimmed(shim: str, call: str, at: int, number: int = errno.EIO, forever: bool = False, count: Path | None = None) -> dict[str, str]:
    found = {
        "LD_PRELOAD": shim,
        "HOMING_SHIM_PATH": "homing.db",
        "HOMING_SHIM_CALL": call,
        "HOMING_SHIM_AT": str(at),
        "HOMING_SHIM_ERRNO": str(number),
        "HOMING_SHIM_FOREVER": str(int(forever)),
    }
    return found | ({"HOMING_SHIM_COUNT": str(count)} if count else {})


def _places(shim: str, call: str, directory: Path) -> list[int]:
    """Which calls are to fail: all there are in a run without faults, or as many as PLACES says, spread over them."""
    count = directory / "count"
    result = _run(directory / "whole", _shimmed(shim, call, 0, count=count))
    assert result.returncode == 0, result.stderr
    total = int(count.read_text())
    wanted = total if PLACES == "all" else min(int(PLACES), total)
    return sorted({1 + place * (total - 1) // max(wanted - 1, 1) for place in range(wanted)})


@pytest.mark.parametrize("call", ["sync", "write", "truncate"])
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
def test_a_failed_call_answers_nobody_and_loses_nothing(shim: str, tmp_path: Path, call: str, forever: bool) -> None:
    def fail_at(place: int) -> tuple[int, subprocess.CompletedProcess[str]]:
        return place, _run(tmp_path / str(place), _shimmed(shim, call, place, forever=forever))

    stopped = 0
    with ThreadPoolExecutor(2) as pool:
        for place, result in pool.map(fail_at, _places(shim, call, tmp_path)):
            lines = result.stdout.splitlines()
            if result.returncode == 0:
                # Some calls SQLite can do without; then nothing may be missing.
                assert lines[-1] == "closed", (place, result.stderr)
            else:
                stopped += 1
                assert result.returncode == 70, (place, result.stderr)
                # At the open, SQLite's error about the file that it shares its memory in is taken for a full disk (opening.py).
                assert lines[-1] == "failed journal-io" or lines == ["failed journal-full"], (place, lines)
                assert "Traceback" not in result.stderr
            _verify(tmp_path / str(place), _last_done(lines), STEPS)
    if call != "truncate":
        assert stopped > 0


def test_a_disk_full_for_one_write_is_survived_by_a_retry(shim: str, tmp_path: Path) -> None:
    for place in _places(shim, "write", tmp_path):
        result = _run(tmp_path / str(place), _shimmed(shim, "write", place, errno.ENOSPC))
        lines = result.stdout.splitlines()
        if lines[0].startswith("failed"):
            # At the open, before anything was promised. (No room for SQLite's shared memory file is an I/O error to SQLite.)
            assert result.returncode == 70
            continue
        assert result.returncode == 0, (place, lines, result.stderr)
        assert _last_done(lines) == STEPS
        assert _verify(tmp_path / str(place), STEPS) == STEPS


def test_a_disk_full_for_good_stops_with_everything_confirmed_kept(shim: str, tmp_path: Path) -> None:
    codes = set()
    for place in _places(shim, "write", tmp_path):
        result = _run(tmp_path / str(place), _shimmed(shim, "write", place, errno.ENOSPC, forever=True))
        lines = result.stdout.splitlines()
        if result.returncode:
            assert result.returncode == 70
            if len(lines) > 1:
                codes.add(lines[-1])
        _verify(tmp_path / str(place), _last_done(lines), STEPS)
    assert codes == {"failed journal-full"}


def test_a_file_size_limit_is_an_error_with_a_code(tmp_path: Path) -> None:
    limited = ["/bin/sh", "-c", 'ulimit -f 6000; trap "" XFSZ; exec "$@"', "sh", *_command(tmp_path / "j", 4_000, 3_000)]
    result = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    lines = result.stdout.splitlines()
    assert (result.returncode, lines[-1]) == (70, "failed journal-io"), result.stderr
    assert _last_done(lines) > 0
    _verify(tmp_path / "j", _last_done(lines))


def test_killed_at_any_moment_what_was_confirmed_is_there(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("HOMING_SEED", "1")))
    found = 0
    for _ in range(6):
        command = _command(tmp_path / "j", 1_000_000, 500, CHECKPOINTS, "id_block=1000")
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            lines = [child.stdout.readline().strip()]
            assert lines == [f"opened {found}"]
            # Not before the first step: the moment is drawn from a child that is writing.
            lines.append(child.stdout.readline().strip())
            time.sleep(chance.uniform(0.0, 0.4))
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate(timeout=20)
        # The last line may be torn.
        lines += [line for line in rest.split("\n")[:-1] if line]
        found = _verify(tmp_path / "j", _last_done(lines))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", 48) as place:
        yield place


SMALL: dict[str, Any] = {"disk_reserve_bytes": 4 << 20, "checkpoint_every_bytes": 4 << 20}


async def test_a_first_start_on_a_full_disk_says_so(small_disk: Path) -> None:
    fill_up(small_disk)
    with pytest.raises(JournalError) as caught:
        await Journal.open(small_disk / "j", JournalOptions(**SMALL), NOW_MS)
    assert caught.value.code == "journal-full"


async def test_a_start_on_a_full_disk_has_the_reserve_for_the_first_look_too(small_disk: Path, tmp_path: Path) -> None:
    """A power cut leaves no shared memory file that the look for missing commits could open."""
    async with opened(small_disk / "j", **SMALL) as (journal, _):
        journal.batch.queue(queue())
        send(journal, journal.next_id())
        await journal.flush()
        shutil.copytree(small_disk / "j", tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm", "*.reserve"))
    for path in (tmp_path / "killed").iterdir():
        shutil.copy(path, small_disk / "j")
    fill_up(small_disk)
    async with opened(small_disk / "j", **SMALL) as (_, recovered):
        assert len(recovered.references) == 1


async def test_a_start_on_a_full_disk_leaves_the_reserve_to_what_must_be_written(small_disk: Path, tmp_path: Path) -> None:
    """A long write-ahead log is left by a kill: a checkpoint that does not fit would take the reserve for a part of it."""
    async with opened(small_disk / "j", **{**SMALL, "checkpoint_every_bytes": 1 << 30}) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 401):
            send(journal, sequence, of=message(sequence, os.urandom(20_000)))
        await journal.flush()
        shutil.copytree(small_disk / "j", tmp_path / "killed")
    for path in (tmp_path / "killed").iterdir():
        shutil.copy(path, small_disk / "j")
    theirs = fill_up(small_disk)
    async with opened(small_disk / "j", **SMALL) as (journal, recovered):
        assert len(recovered.references) == 400
        for start in range(1, 101, 10):
            for sequence in range(start, start + 10):
                settle(journal, sequence)
            await journal.flush()
        theirs.unlink()
        await _space(journal)
    assert sequences(small_disk / "j") == list(range(101, 401))


async def test_producers_wait_in_time_consumers_drain_and_service_resumes(small_disk: Path) -> None:
    reported: list[bool] = []
    async with opened(small_disk / "j", **SMALL) as (journal, _):
        journal.on_space = reported.append
        journal.batch.queue(queue())
        for round_number in range(3):
            sent = []
            while not journal.space_low:
                for _ in range(20):
                    sequence = journal.next_id()
                    send(journal, sequence, of=message(sequence, os.urandom(20_000)))
                    sent.append(sequence)
                await journal.flush()
                assert len(sent) < 2_000
            assert len(sent) > 200, round_number
            for start in range(0, len(sent), 50):
                for sequence in sent[start : start + 50]:
                    settle(journal, sequence)
                await journal.flush()
            await _space(journal)
        assert reported == [True, False] * 3
        assert not journal.failed.done()
    assert check(small_disk / "j").problems == []


async def test_a_disk_filled_by_somebody_else_still_takes_acknowledgements(small_disk: Path) -> None:
    async with opened(small_disk / "j", **SMALL) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 401):
            send(journal, sequence, of=message(sequence, os.urandom(10_000)))
        await journal.flush()
        theirs = fill_up(small_disk)
        for start in range(1, 401, 10):
            for sequence in range(start, start + 10):
                settle(journal, sequence)
            await journal.flush()
        assert sequences(small_disk / "j") == []
        theirs.unlink()
        await _space(journal)
        assert (small_disk / "j" / "homing.reserve").exists()


async def test_a_group_that_does_not_fit_stops_with_journal_full_and_all_before_it_is_there(small_disk: Path) -> None:
    journal, _ = await Journal.open(small_disk / "j", JournalOptions(**SMALL), NOW_MS)
    journal.batch.queue(queue())
    confirmed: list[int] = []

    async def fill() -> None:
        for sequence in range(1, 1_000):
            send(journal, sequence, of=message(sequence, os.urandom(200_000)))
            await journal.flush()
            confirmed.append(sequence)

    with pytest.raises(JournalError) as caught:
        await fill()
    await journal.close()
    assert caught.value.code == "journal-full"
    assert len(confirmed) > 100
    assert journal.statistics.full_disk_retries >= 1
    assert sequences(small_disk / "j") == confirmed


async def _space(journal: Journal) -> None:
    """Wait until producers may go on."""
    there = asyncio.Event()
    reported = journal.on_space

    def tell(low: bool) -> None:
        reported(low)
        if not low:
            there.set()

    if journal.space_low:
        journal.on_space = tell
        await asyncio.wait_for(there.wait(), 20)
        journal.on_space = reported


@pytest.mark.parametrize("seed", range(40))
async def test_flipped_bits_are_found_or_harmless(tmp_path: Path, seed: int) -> None:
    """Never a wrong body: either the journal opens with exactly what was written, or it says that it is damaged."""
    chance = random.Random(seed)
    async with opened(tmp_path, elide=True) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 301):
            send(journal, sequence, of=message(sequence, body(sequence, 700)))
    path = tmp_path / "homing.db"
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 3, 20))):
        # Past the file's header, whose text says what the file is.
        content[chance.randrange(100, len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    outcome = await _reopened(tmp_path)
    if isinstance(outcome, JournalError):
        assert (outcome.code, outcome.exit_code) == ("journal-damaged", 6)
    else:
        assert [reference.message.body for reference in outcome] == [body(reference.message.message_id, 700) for reference in outcome]


async def _reopened(directory: Path) -> JournalError | list[ReferenceRecord]:
    try:
        async with opened(directory, now_ms=NOW_MS + 1) as (_, recovered):
            return recovered.references
    except JournalError as error:
        return error


async def test_damaged_rows_can_be_set_aside(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 11):
            send(journal, sequence, of=message(sequence, b"precious" * 40))
    path = tmp_path / "homing.db"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"preciousprecious", b"preciousprecXous", 1))
    with pytest.raises(JournalError) as caught:
        async with opened(tmp_path):
            pass
    assert caught.value.code == "journal-damaged"
    assert "homing journal check" in caught.value.fix
    assert len(check(tmp_path).problems) == 1
    async with opened(tmp_path, on_damage="quarantine") as (_, recovered):
        assert len(recovered.references) == 9
        assert len(recovered.quarantined) == 1
        assert "fails its checksum" in recovered.quarantined[0]
    assert check(tmp_path).problems == []
    async with opened(tmp_path) as (_, recovered):
        assert (len(recovered.references), recovered.quarantined) == (9, [])


async def _killed(place: Path) -> Path:
    """With 400 messages, and two that stand packed."""
    async with opened(place / "j") as (journal, _):
        journal.batch.queue(queue())
        for sequence in range(1, 401):
            send(journal, sequence, of=message(sequence, os.urandom(20_000)))
        await journal.flush()
        for sequence in (401, 402):
            send(journal, sequence)
            await stored(journal)
        return Path(shutil.copytree(place / "j", place / "killed"))


def test_a_reader_says_where_there_is_no_room_for_what_a_kill_left_packed(tmp_path: Path) -> None:
    killed = asyncio.run(_killed(tmp_path))
    assert query(killed, "SELECT count(*) FROM packed_commit") != [(0,)]
    command = [sys.executable, "-m", "homing", "journal", "check", "--data", str(killed)]
    with small_file_system(tmp_path / "small", 1) as place:
        for temporary, code, says in ((place, 70, "SQLITE_TMPDIR"), (tmp_path, 0, "402 references")):
            environment = {**os.environ, "SQLITE_TMPDIR": str(temporary)}
            result = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
            assert (result.returncode, says in result.stdout + result.stderr) == (code, True), result.stdout + result.stderr
