"""Journals that are damaged, from the future, of another program, or in use: a clear sentence and an exit code, or the right data."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from homing.broker.protocols.native.codec import Op
from homing.journal.migrations import VERSION
from homing.journal.store.commits import read_last_commit
from tests import fork_server
from tests.faults.hostile import ANSWER_S, Raw
from tests.process import ROOT, Server

#: How many damaged copies the suite starts a broker on, of each kind.
CASES = int(os.environ.get("HOMING_DAMAGE_CASES", "16"))
SEED = int(os.environ.get("HOMING_SEED", "1"))
#: Seeds that once started with other data: a page that fails only when it is written to, a message whose place changed.
FOUND = (77017, 77107, 1005, 1015)
MESSAGES, FAILED = 300, 40


def body(number: int) -> bytes:
    return b"%06d" % number * 100


def fill(server: Server) -> None:
    """Numbered messages in one queue; some have failed, some are dead."""
    with Raw(server.url, client_id="filler") as raw:
        raw.producer("orders")
        for first in range(1, MESSAGES + 1, 50):
            raw.send(Op.SEND, 1, first, [[body(n), {"n": n}] for n in range(first, first + 50)])
            raw.until(Op.CONFIRM)
        raw.send(Op.SUBSCRIBE, 2, 1, "orders", {"prefetch": FAILED})
        raw.until(Op.RESULT)
        got = 0
        while got < FAILED:
            got += len(raw.until(Op.DELIVER)[3])
        raw.send(Op.GIVEN, 1, FAILED)
        raw.send(Op.ACK, 1, 1, [1, FAILED // 2], {"reason": "poison"}, 5)
        raw.send(Op.ACK, 1, 3, [FAILED // 2 + 1, FAILED], {"reason": "later", "delay_ms": 3_600_000}, 6)
        while raw.until(Op.RESULT)[1] != 6:
            pass


def contents(url: str) -> dict[str, dict[int, bytes]]:
    """queue -> number -> body, of everything a client can see."""
    found: dict[str, dict[int, bytes]] = {}
    with Raw(url) as raw:
        raw.send(Op.CALL, 1, "queues", {})
        for queue in raw.until(Op.RESULT)[2]:
            messages = found[queue["name"]] = {}
            after = None
            while True:
                raw.send(Op.CALL, 2, "peek", {"queue": queue["name"], "limit": 1000, "after": after})
                page = raw.until(Op.RESULT)[2]
                for message in page["messages"]:
                    messages[message["properties"]["n"]] = message["body"]
                after = page["next"]
                if after is None:
                    break
    return found


EXPECTED = {
    "orders": {n: body(n) for n in range(FAILED // 2 + 1, MESSAGES + 1)},
    "DLQ.orders": {n: body(n) for n in range(1, FAILED // 2 + 1)},
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that stopped in order: everything is in the database file."""
    server = Server(tmp_path_factory.mktemp("stopped") / "broker").start()
    fill(server)
    assert contents(server.url) == EXPECTED
    assert server.stop() == 0
    return server.data


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that was killed: most is in the write-ahead log."""
    server = Server(tmp_path_factory.mktemp("killed") / "broker", {"journal": {"checkpoint-every": "1GiB"}}).start()
    fill(server)
    server.kill()
    assert (server.data / "homing.db-wal").stat().st_size > 100_000
    return server.data


def run(directory: Path) -> tuple[int | None, str, dict[str, dict[int, bytes]]]:
    """Starts a broker on ``directory``/data; whatever happens it ends within the time."""
    config = Server(directory).write_config()
    with (directory / "said").open("w+") as said:
        process = fork_server.start(["serve", "--config", str(config), "--json"], ROOT, stdin=subprocess.DEVNULL, stdout=None, stderr=said)
        try:
            assert process.stdout is not None
            with process.stdout:
                line = process.stdout.readline()
            if not line:
                code = process.wait(ANSWER_S)
                return code, Path(said.name).read_text(), {}
            return None, "", contents("homing://" + json.loads(line)["native"])
        finally:
            process.kill()
            process.wait()


def damage(source: Path, directory: Path, seed: int) -> str:
    """A copy of ``source`` with some bits flipped or something cut off; says what was done."""
    chance = random.Random(seed)
    shutil.copytree(source, directory / "data")
    files = [path for path in sorted((directory / "data").glob("homing.db*")) if path.suffix != ".db-shm"]
    path = chance.choice([each for each in files if each.stat().st_size])
    content = bytearray(path.read_bytes())
    kind = chance.choice(("flip", "flip", "flips", "page", "cut"))
    if kind == "cut":
        size = chance.randrange(len(content))
        del content[size:]
        what = f"{path.name} cut to {size}"
    elif kind == "page":
        page = chance.randrange(max(1, len(content) // 4096)) * 4096
        content[page : page + 4096] = chance.choice((bytes(4096), chance.randbytes(4096)))
        what = f"{path.name}, page at {page} overwritten"
    else:
        places = [chance.randrange(len(content)) for _ in range(1 if kind == "flip" else 20)]
        for place in places:
            content[place] ^= 1 << chance.randrange(8)
        what = f"{path.name}, bits flipped at {places}"
    path.write_bytes(content)
    return f"seed {seed}: {what}"


def files(directory: Path) -> dict[str, bytes]:
    """What is there of the journal, but for what SQLite builds anew at each start, an empty log among it."""
    return {path.name: path.read_bytes() for path in directory.glob("homing.db*") if path.suffix != ".db-shm" and path.stat().st_size}


def check_refused(code: int | None, said: str, what: str) -> None:
    assert code == 6, (what, code, said[-2000:])
    assert "Traceback" not in said, (what, said[-2000:])
    assert "damaged" in said, (what, said)
    assert "homing journal check" in said, (what, said)


@pytest.mark.timeout(240)
def test_a_damaged_database_is_refused_or_harmless(stopped: Path, tmp_path: Path) -> None:
    def case(seed: int) -> str | None:
        what = damage(stopped, tmp_path / str(seed), seed)
        code, said, found = run(tmp_path / str(seed))
        if code is None:
            assert found == EXPECTED, what
            return None
        check_refused(code, said, what)
        return what

    refused = [what for what in map(case, sorted({*FOUND, *range(1000 * SEED, 1000 * SEED + CASES)})) if what]
    assert refused, "no damage was found at all: is anything checked?"


@pytest.mark.timeout(240)
def test_a_damaged_write_ahead_log_is_refused_or_harmless(killed: Path, tmp_path: Path) -> None:
    """A log's end that is not whole is what a power cut leaves, too, and SQLite takes one for the other; the broker does not."""

    def case(number: int) -> str | None:
        what = damage(killed, tmp_path / str(number), 500_000 + 1000 * SEED + number)
        before = files(tmp_path / str(number) / "data")
        code, said, found = run(tmp_path / str(number))
        if code is None:
            assert found == EXPECTED, what
            return None
        check_refused(code, said, what)
        assert files(tmp_path / str(number) / "data") == before, what
        return what

    refused = [what for what in map(case, range(CASES)) if what]
    assert len(refused) > CASES // 4, "hardly any damage was found: is anything checked?"


@pytest.mark.parametrize("missing", [["homing.db-wal"], ["homing.db"], ["homing.db", "homing.db-commits"], ["homing.db", "homing.db-wal"]])
def test_a_file_that_is_missing_after_a_kill_is_refused(killed: Path, tmp_path: Path, missing: list[str]) -> None:
    shutil.copytree(killed, tmp_path / "data")
    for name in missing:
        (tmp_path / "data" / name).unlink()
    before = files(tmp_path / "data")
    code, said, _ = run(tmp_path)
    assert code == 6
    assert "journal-damaged" in said
    assert missing[0] in said
    assert "Traceback" not in said
    assert files(tmp_path / "data") == before


@pytest.mark.parametrize("missing", ["homing.db-commits", "homing.db-shm"])
def test_a_file_that_only_helps_may_be_missing(killed: Path, tmp_path: Path, missing: str) -> None:
    shutil.copytree(killed, tmp_path / "data")
    (tmp_path / "data" / missing).unlink()
    assert run(tmp_path) == (None, "", EXPECTED)


def test_a_write_ahead_log_that_a_clean_stop_emptied_may_be_missing(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "data")
    (tmp_path / "data" / "homing.db-wal").unlink(missing_ok=True)
    assert run(tmp_path) == (None, "", EXPECTED)


def test_an_older_copy_of_the_database_is_refused(stopped: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.db"
    shutil.copytree(stopped, tmp_path / "data")
    shutil.copy(tmp_path / "data" / "homing.db", older)
    for _ in range(2):
        assert run(tmp_path) == (None, "", EXPECTED)
    for path in (tmp_path / "data").glob("homing.db-[ws]*"):
        path.unlink()
    shutil.copy(older, tmp_path / "data" / "homing.db")
    code, said, _ = run(tmp_path)
    check_refused(code, said, "an older copy")
    assert "commits are missing" in said


def test_what_is_left_of_a_damaged_log_is_served_where_the_operator_says_so(killed: Path, tmp_path: Path) -> None:
    """With on-damage: quarantine; ids that the missing commits may have given out do not come again, and the next start is not refused."""
    shutil.copytree(killed, tmp_path / "data")
    log = tmp_path / "data" / "homing.db-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    code, said, _ = run(tmp_path)
    check_refused(code, said, "a flipped bit")
    reserved = read_last_commit(tmp_path / "data")
    assert reserved is not None
    server = Server(tmp_path, {"journal": {"on-damage": "quarantine"}}).start()
    try:
        server.logged("commits are missing")
        found = contents(server.url)
        numbers = sorted(n for messages in found.values() for n in messages)
        assert numbers == list(range(1, len(numbers) + 1))
        with Raw(server.url, client_id="another") as raw:
            raw.producer("orders")
            raw.send(Op.SEND, 1, 1, [[b"new", {"n": -1}]])
            raw.until(Op.CONFIRM)
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 1, "peek", {"queue": "orders", "limit": 1000})
            ids = [message["message_id"] for message in raw.until(Op.RESULT)[2]["messages"]]
        assert ids[-1] >= reserved.reserved_up_to > ids[-2]
        server.kill()
        server.config.pop("journal")
        server.start()
    finally:
        server.close()


def test_without_damage_everything_is_there(stopped: Path, killed: Path, tmp_path: Path) -> None:
    for number, source in enumerate((stopped, killed)):
        shutil.copytree(source, tmp_path / str(number) / "data")
        assert run(tmp_path / str(number)) == (None, "", EXPECTED)


def test_a_journal_from_the_future_is_left_alone(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "data")
    path = tmp_path / "data" / "homing.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    code, said, _ = run(tmp_path)
    assert code == 6
    assert f"version {VERSION + 1}" in said
    assert "journal-newer" in said
    assert "Traceback" not in said
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database at all", b"x" * 100_000, b"SQLite format 3\x00" + bytes(50)], ids=["words", "long", "head"]
)
def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "homing.db"
    path.write_bytes(content)
    code, said, _ = run(tmp_path)
    assert code == 6
    assert "Traceback" not in said
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "homing.db"
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA application_id = 77; CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
    connection.close()
    before = path.read_bytes()
    code, said, _ = run(tmp_path)
    assert code == 6
    assert "another program" in said
    assert path.read_bytes() == before
    assert struct.unpack(">I", before[68:72])[0] == 77


def test_a_second_broker_on_the_same_data_names_the_first_and_disturbs_it_in_nothing(tmp_path: Path) -> None:
    first = Server(tmp_path).start()
    try:
        fill(first)
        for _ in range(3):
            code, said, _ = run(tmp_path)
            assert code == 1
            assert str(first.pid) in said
            assert "Traceback" not in said
        assert contents(first.url) == EXPECTED
        assert first.stop() == 0
        assert run(tmp_path) == (None, "", EXPECTED)
    finally:
        first.close()


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    code, said, _ = run(tmp_path)
    assert code not in (None, 0)
    assert "Traceback" not in said
    assert str(tmp_path / "data") in said


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    first = Server(tmp_path / "first").start()
    try:
        port = int(first.ready["native"].rpartition(":")[2])
        config = Server(tmp_path / "second", {"native": {"port": port}}).write_config()
        command = [sys.executable, "-m", "homing", "serve", "--config", str(config)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=ANSWER_S, check=False)
        assert done.returncode == 1
        assert str(port) in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        first.close()
