"""Power cuts, played from the record of what was really done to the disk: what was confirmed is there, and nothing by half.

``scripts/check-power-loss`` does the same at length. The seed is printed; HOMING_SEED repeats it. Processes and threads keep
their own time, so a repeated seed gives the same operations, not the same record.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.faults.power_loss import broker_workload, journal_workload
from tests.faults.power_loss.again import cut_again
from tests.faults.power_loss.claims import Account, Fact
from tests.faults.power_loss.cuts import Cut, Cutter, Summary, boundaries, draw
from tests.faults.power_loss.disk import Disk, Loss
from tests.faults.power_loss.planted import FAULTS
from tests.faults.power_loss.recording import Claims, Record, Recording, build_recorder, compiler

PLANTED = "tests.faults.power_loss.planted"


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler for the recorder of disk writes. enable: install gcc")
    return build_recorder(tmp_path_factory.mktemp("recorder"))


@pytest.fixture
def chance() -> Random:
    seed = int(os.environ.get("HOMING_SEED", "5"))
    print(f"seed {seed}")
    return Random(seed)


def _whole(summary: Summary) -> None:
    assert not summary.problems, "\n".join(summary.problems[:20])


# -- the real thing --------------------------------------------------------------------------------------------------


def test_around_every_sync_of_a_short_life_all_promises_are_kept(recorder: Path, tmp_path: Path, chance: Random) -> None:
    recording = Recording(tmp_path, recorder)
    journal_workload.record(recording, 12, chance.getrandbits(32))
    cutter = Cutter(recording, tmp_path, chance)
    losses = list(Loss)
    cuts = [Cut(place, losses[number % 4]) for number, place in enumerate(boundaries(cutter.records))]
    summary = cutter.play(cuts)
    _whole(summary)
    assert summary.images >= 60
    assert summary.promises > 5 * summary.images
    assert set(summary.by_loss) == {loss.value for loss in Loss}


def test_a_broker_and_its_clients_under_power_cuts(recorder: Path, tmp_path: Path, chance: Random) -> None:
    recording = Recording(tmp_path, recorder)
    asyncio.run(broker_workload.run(tmp_path, recording, Random(chance.getrandbits(32)), 120))
    cutter = Cutter(recording, tmp_path, chance)
    claimed = {name for record in cutter.records if record.kind == "m" for name in record.claim}
    assert {"sends", "acks", "counts", "done"} <= claimed
    summary = cutter.play(draw(cutter.records, 60, chance))
    _whole(summary)
    assert summary.promises > 60 * 20


def test_power_that_fails_again_during_recovery(recorder: Path, tmp_path: Path, chance: Random) -> None:
    recording = Recording(tmp_path / "first", recorder)
    journal_workload.record(recording, 15, chance.getrandbits(32))
    cutter = Cutter(recording, tmp_path, chance)
    second_half = range(len(cutter.records) // 2, len(cutter.records))
    for number, place in enumerate(sorted(chance.sample(second_half, 3))):
        files = cutter.files(Cut(place, chance.choice([Loss.BLOCKS, Loss.TORN])))
        assert files is not None
        summary = cut_again(files, tmp_path / str(number), recorder, 10, chance)
        _whole(summary)
        assert summary.messages > 0


# -- does it find what is wrong? -------------------------------------------------------------------------------------

SAYS = {
    "normal": "was confirmed, but",
    "early": "was confirmed, but",
    # By half, or twice; packed and in the tables.
    "torn": "is there |UNIQUE|commits are missing",
    "unsynced": "the journal is not there, and",
    "reused": "would be the next one handed out",
    "hasty": "was confirmed, but",
    "alone": "was confirmed, but",
    "falling": "commits are missing",
}


#: Those that replace what a compiled module has called by then.
REPLACED = {"torn", "reused", *(PACKED := {"hasty", "alone", "falling"})}


def _marks(fault: str) -> list[pytest.MarkDecorator]:
    """Those of packed commits are found by tests/unit/test_journal_packed_commits.py, too."""
    return [pytest.mark.plain] * (fault in REPLACED) + [pytest.mark.campaign] * (fault in PACKED)


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=_marks(fault)) for fault in FAULTS])
def test_a_planted_fault_is_found(recorder: Path, tmp_path: Path, fault: str) -> None:
    chance = Random(11)
    recording = Recording(tmp_path, recorder)
    journal_workload.record(recording, 60, 7, PLANTED, fault)
    cutter = Cutter(recording, tmp_path, chance)
    problems = cutter.play(draw(cutter.records, 60, chance)).problems
    assert any(re.search(SAYS[fault], problem) for problem in problems), problems[:10]


def test_a_broker_that_does_not_sync_is_found(recorder: Path, tmp_path: Path) -> None:
    chance = Random(12)
    recording = Recording(tmp_path, recorder)
    asyncio.run(broker_workload.run(tmp_path, recording, chance, 60, (PLANTED, "normal", "homing")))
    cutter = Cutter(recording, tmp_path, chance)
    problems = cutter.play(draw(cutter.records, 24, chance)).problems
    # Where what says how many commits there were is whole, it is the broker that finds it out.
    assert any(SAYS["normal"] in problem or "commits are missing" in problem for problem in problems), problems[:10]


# -- the disk that is played -----------------------------------------------------------------------------------------

ROOT_INODE, DATA, FILE = 1, 2, 3
MADE = [Record("d", 1, DATA, ROOT_INODE, b"data"), Record("s", 1, ROOT_INODE, 0, b""), Record("e", 1, ROOT_INODE, 0, b"")]
CREATED = [Record("c", 1, FILE, DATA, b"f"), Record("s", 1, DATA, 0, b""), Record("e", 1, DATA, 0, b"")]


def _write(offset: int, data: bytes) -> Record:
    return Record("w", 1, FILE, offset, data)


def _sync(*between: Record) -> list[Record]:
    return [Record("s", 1, FILE, 0, b""), *between, Record("e", 1, FILE, 0, b"")]


def _disk(*records: Record) -> Disk:
    disk = Disk(ROOT_INODE)
    for record in [*MADE, *CREATED, *records]:
        disk.apply(record)
    return disk


def _contents(disk: Disk, loss: Loss, rounds: int = 200) -> set[bytes]:
    found = [disk.after("data", loss, Random(seed)) for seed in range(rounds)]
    return {files["f"] for files in found if files is not None}


def test_what_was_synced_stays_and_what_came_during_the_sync_does_not_count() -> None:
    disk = _disk(_write(0, b"synced"), *_sync(_write(0, b"during")))
    assert _contents(disk, Loss.ALL_LOST) == {b"synced"}
    assert _contents(disk, Loss.NONE_LOST) == {b"during"}
    assert _contents(disk, Loss.BLOCKS) == {b"synced", b"during"}


def test_blocks_are_lost_each_on_its_own_in_any_state_they_went_through() -> None:
    disk = _disk(_write(0, b"a" * 8192), *_sync(), _write(0, b"b" * 8192), _write(4096, b"c" * 10))
    halves = {(content[:4096], content[4096:]) for content in _contents(disk, Loss.BLOCKS)}
    first, second = b"a" * 4096, b"b" * 4096
    assert halves == {(one, two) for one in (first, second) for two in (first, second, b"c" * 10 + second[10:])}


def test_torn_writes_keep_some_sectors() -> None:
    disk = _disk(_write(0, b"a" * 1024), *_sync(), _write(0, b"b" * 1024))
    assert _contents(disk, Loss.TORN) == {one * 512 + two * 512 for one in (b"a", b"b") for two in (b"a", b"b")}


def test_a_file_that_grew_may_be_short_or_hold_zeros() -> None:
    disk = _disk(_write(0, b"a"), *_sync(), _write(1, b"b"))
    assert _contents(disk, Loss.BLOCKS) == {b"a", b"ab", b"a\0"}


def test_a_shortening_happens_or_not_and_never_by_half() -> None:
    shorten = Record("t", 1, FILE, 0, b"")
    disk = _disk(_write(0, b"a" * 8192), *_sync(), shorten)
    assert _contents(disk, Loss.TORN) == {b"a" * 8192, b""}
    assert _contents(_disk(_write(0, b"a" * 8192), *_sync(), shorten, *_sync()), Loss.TORN) == {b""}
    regrown = _contents(_disk(_write(0, b"a" * 10), *_sync(), shorten, _write(0, b"b" * 5)), Loss.BLOCKS)
    assert regrown == {b"a" * 10, b"", b"b" * 5, b"\0" * 5}


def test_names_are_there_once_their_directory_was_synced() -> None:
    disk = Disk(ROOT_INODE)
    for record in [*MADE, CREATED[0], _write(0, b"a"), *_sync()]:
        disk.apply(record)
    assert disk.after("data", Loss.ALL_LOST, Random(0)) == {}
    assert disk.after("data", Loss.NONE_LOST, Random(0)) == {"f": b"a"}
    assert _disk(Record("u", 1, 0, DATA, b"f")).after("data", Loss.ALL_LOST, Random(0)) == {"f": b""}
    bare = Disk(ROOT_INODE)
    bare.apply(MADE[0])
    assert bare.after("data", Loss.ALL_LOST, Random(0)) is None


def test_what_a_kill_cut_off_in_the_log_is_left_out(tmp_path: Path) -> None:
    recording = Recording(tmp_path, tmp_path / "no-recorder")
    claims = Claims(recording.log)
    claims.begin(sends=["first"])
    whole = recording.log.read_bytes()
    for length in (1, 3, 5, 27, 28, 40, len(whole) - 1):
        with recording.log.open("ab") as log:
            log.write(whole[:length])
        before = recording.read()
        claims.begin(sends=["after"])
        assert [record.claim["sends"] for record in recording.read()[len(before) :]] == [["after"]]
    claims.close()
    assert [record.claim["sends"][0] for record in recording.read()] == ["first"] + 7 * ["after"]


def test_a_call_that_was_not_followed_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot follow b'rename'"):
        _disk(Record("x", 1, DATA, 0, b"rename"))


# -- the claims ------------------------------------------------------------------------------------------------------


def _judged(claims: Sequence[dict[str, object]], *facts: Fact, transactions: tuple[str, ...] = (), next_id: int = 1) -> list[str]:
    account = Account()
    for claim in claims:
        account.apply(claim)
    return account.judge(facts, transactions, next_id)


SENT: list[dict[str, object]] = [{"begin": 1, "sends": ["a"]}, {"done": 1}]
HERE = Fact("a", "orders", 0)


def test_confirmed_sends_stay_until_an_acknowledgement_is_asked_for() -> None:
    assert _judged(SENT, HERE) == []
    assert _judged(SENT) == ["operation 1 was confirmed, but a is not there"]
    asked: list[dict[str, object]] = [*SENT, {"begin": 2, "acks": ["a"]}]
    assert _judged(asked, HERE) == _judged(asked) == []
    assert _judged([*asked, {"done": 2}], HERE) == ["operation 2 was confirmed, but a is still there"]
    assert _judged([], HERE) == ["a in orders was never sent"]
    assert _judged(SENT, HERE, Fact("a", "DLQ.orders", 0)) == ["a is there twice: in orders and in DLQ.orders"]


def test_transactions_are_whole_and_their_outcome_can_be_asked_for() -> None:
    asked: list[dict[str, object]] = [*SENT, {"begin": 2, "acks": ["a"], "sends": ["b", "c"], "transaction": "t"}]
    b, c = Fact("b", "results", 0), Fact("c", "results", 0)
    assert _judged(asked, HERE) == _judged(asked, b, c, transactions=("t",)) == []
    assert _judged(asked, HERE, b, c, transactions=("t",)) == ["operation 2 is there by half: b is there, but a is still there"]
    assert _judged(asked, b, transactions=("t",)) == ["operation 2 is there by half: b is there, but c is not there"]
    assert _judged(asked, b, c) == ["operation 2 is there by half: b is there, but its outcome is not known"]


def test_counts_dead_letters_and_ids_do_not_go_back() -> None:
    counted: list[dict[str, object]] = [*SENT, {"begin": 2, "counts": {"a": 2}}, {"done": 2}]
    assert _judged(counted, Fact("a", "orders", 2)) == _judged(counted, Fact("a", "DLQ.orders", 0)) == []
    assert _judged(counted, Fact("a", "orders", 1)) == ["a had 2 deliveries that were known to be on disk, and has 1"]
    dead: list[dict[str, object]] = [*SENT, {"begin": 2, "dead": ["a"]}, {"done": 2}]
    assert _judged(dead, Fact("a", "DLQ.orders", 0)) == []
    assert _judged(dead, HERE) == ["a was dead-lettered for certain, and is in orders"]
    used: list[dict[str, object]] = [{"begin": 1, "highest_id": 5}]
    assert _judged(used, next_id=6) == []
    assert _judged(used, next_id=5) == ["id 5 was in use, and 5 would be the next one handed out"]
