"""The log: text from elsewhere is shown, not obeyed; who does not read it holds nobody up; what is said too often is counted."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from homing.broker.core.seldom import APART
from homing.broker.logs.writer import EVENT, Lines, LogOptions, LogWriter, Sparing, _Descriptor, open_sink, visible

ROOT = Path(__file__).parent.parent.parent


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def record(message: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("homing", level, __file__, 1, message, arguments, None)


def written(descriptor: int) -> list[str]:
    return os.read(descriptor, 1 << 20).decode().splitlines()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ann", "ann"),
        ("Anñ ☂", "Anñ ☂"),
        ("\x1b[2Jann\r\n", "\\x1b[2Jann\\r\\n"),
        ("a\u202eb\u2028", "a\\u202eb\\u2028"),
        ("\ud800", "\\ud800"),
        ("x" * 300, "x" * 200 + "… (300 characters)"),
    ],
)
def test_text_from_elsewhere_is_one_printable_line(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_line_passes_for_another(pipe: tuple[int, int]) -> None:
    writer = LogWriter(_Descriptor(pipe[1]))
    writer.handle(record("refused: %s", "ann\n2026-01-01 CRITICAL homing: all is lost\x1b[31m"))
    writer.close()
    first, second = written(pipe[0])
    assert first.endswith("WARNING homing: refused: ann")
    assert second == "    2026-01-01 CRITICAL homing: all is lost\\x1b[31m"


def test_a_line_is_an_object_with_the_name_of_its_event(pipe: tuple[int, int]) -> None:
    writer = LogWriter(_Descriptor(pipe[1]))
    writer.setFormatter(Lines(as_json=True))
    writer.handle(record("login-refused: user %s", "ann\x1b: \n"))
    try:
        raise OSError("a fault")
    except OSError:
        writer.handle(logging.LogRecord("asyncio", logging.ERROR, __file__, 1, "it broke", (), sys.exc_info()))
    writer.close()
    ours, theirs = (json.loads(line) for line in written(pipe[0]))
    assert ours.pop("time").endswith("+00:00")
    assert ours == {"level": "WARNING", "logger": "homing", "event": "login-refused", "message": "user ann\x1b: \n"}
    assert (theirs["event"], theirs["message"]) == ("asyncio", "it broke")
    assert theirs["exception"].endswith("OSError: a fault")


@pytest.mark.parametrize(("level", "library"), [("debug", "WARNING"), ("info", "WARNING"), ("error", "ERROR")])
def test_of_libraries_only_warnings_are_written(pipe: tuple[int, int], level: str, library: str) -> None:
    before = [(logger, logger.level) for logger in (logging.getLogger(), logging.getLogger("homing"))]
    try:
        with contextlib.closing(LogWriter(_Descriptor(pipe[1]))) as writer:
            writer.take_up(LogOptions(level=level), _Descriptor(os.dup(pipe[1])))
        levels = [logging.getLevelName(logging.getLogger(name).getEffectiveLevel()) for name in ("homing.journal", "numexpr.utils")]
        assert levels == [level.upper(), library]
    finally:
        for logger, was in before:
            logger.setLevel(was)


def test_times_have_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        at = record("a: b")
        at.created = 0.25
        assert Lines().format(at) == "1970-01-01T00:00:00.250+00:00 WARNING homing: a: b"
        assert Lines(utc=False).format(at) == "1970-01-01T05:30:00.250+05:30 WARNING homing: a: b"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_file_of_its_size_is_set_aside_and_few_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    clock = Clock()
    writer = LogWriter(open_sink(LogOptions(path=path, max_bytes=4096, backup_count=2)), clock)
    for number in range(200):
        clock.now_s += 0.01
        writer.handle(record(f"kind-{number}: %s", "x" * 60))
    writer.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(0 < each.stat().st_size <= 4096 for each in tmp_path.iterdir())
    assert path.read_text().endswith("kind-199: " + "x" * 60 + "\n")


_SAYS = re.compile(r"log\.(debug|info|warning|error|exception|critical|log)")


def test_every_line_of_ours_names_its_event() -> None:
    said, nameless, names = 0, [], set[str]()
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", (ROOT / "docs/operations.md").read_text()))
    for path in [path for room in ("broker", "client", "journal") for path in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _SAYS.fullmatch(ast.unparse(node.func)):
                said += 1
                text = node.args[ast.unparse(node.func) == "log.log"]
                if not (isinstance(text, ast.Constant) and EVENT.match(str(text.value))):
                    nameless.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                elif path.relative_to(ROOT).parts[0] != "client":
                    names.add(str(text.value).partition(":")[0])
    assert said > 50
    assert names <= listed, f"docs/operations.md lists the lines of the log; not {names - listed}"
    assert nameless == [], "a line of the log begins with the name of its event: disk-full: …"


def test_what_is_said_too_often_is_counted_by_kind(pipe: tuple[int, int]) -> None:
    clock = Clock()
    writer = LogWriter(_Descriptor(pipe[1]), clock)
    for number in range(100):
        writer.handle(record("refused: %s", number))
    writer.handle(record("another"))
    writer.handle(record("the end", level=logging.CRITICAL))
    writer.close()
    lines = [line.partition("homing: ")[2] for line in written(pipe[0])]
    assert lines == [
        *(f"refused: {number}" for number in range(20)),
        *("homing: another", "homing: the end", "lines-left-out: 80 more like this were left out, the last of them: refused: 99"),
    ]


def test_a_kind_is_said_again_when_its_window_is_over() -> None:
    sparing = Sparing()
    assert [sparing.allows("a: %d", 0.0, f"a: {number}".format) for number in range(25)].count(True) == 20
    assert sparing.summaries(9.0) == []
    assert sparing.summaries(10.0) == ["5 more like this were left out, the last of them: a: 24"]
    assert sparing.allows("a: %d", 10.0, str)
    assert not sparing.left_out()
    # Where nothing was left out the next window begins by itself.
    assert all(sparing.allows("b", 11.0 * number, str) for number in range(40))


def test_there_are_a_hundred_lines_a_second_whatever_they_say(pipe: tuple[int, int]) -> None:
    clock = Clock()
    writer = LogWriter(_Descriptor(pipe[1]), clock)
    for number in range(150):
        line = record(f"kind {number % 50}: %s", number)
        line.apart = number % 2 == 0
        writer.handle(line)
    clock.now_s += 1.0
    writer.handle(record("next: second"))
    writer.close()
    lines = [line.partition("homing: ")[2] for line in written(pipe[0])]
    said = [line for line in lines if line.startswith("homing: kind")]
    assert said == [f"homing: kind {number % 50}: {number}" for number in range(100)]
    assert sorted(set(lines).difference(said)) == [
        "lines-left-out: 50 lines beyond 100 a second were left out, the last of them: kind 49: 149",
        "next: second",
    ]


def test_lines_with_a_limit_of_their_own_are_not_counted_by_kind(pipe: tuple[int, int]) -> None:
    writer = LogWriter(_Descriptor(pipe[1]), Clock())
    for number in range(60):
        line = record("action: %d", number)
        line.__dict__.update(APART)
        writer.handle(line)
    writer.close()
    assert len(written(pipe[0])) == 60


def test_kinds_beyond_counting_are_told_of_together() -> None:
    sparing = Sparing()
    assert sum(sparing.allows(f"kind {number}", 0.0, f"kind {number}".format) for number in range(2000)) == 500
    assert sparing.summaries(1.0) == ["1500 more of other kinds were left out, the last of them: kind 1999"]
    assert sparing.allows("a new one", 20.0, str)


def test_one_that_is_left_out_and_cannot_be_made_is_told_as_it_was_to_be(pipe: tuple[int, int]) -> None:
    writer = LogWriter(_Descriptor(pipe[1]), Clock())
    for number in range(20):
        writer.handle(record("refused: %d", number))
    writer.handle(record("refused: %d", "not a number"))
    writer.close()
    assert written(pipe[0])[-1].endswith("1 more like this were left out, the last of them: refused: %d (TypeError)")


def test_a_reader_that_takes_nothing_holds_nobody_up_and_is_told_what_it_missed(pipe: tuple[int, int]) -> None:
    clock, before = Clock(), set(threading.enumerate())
    writer = LogWriter(_Descriptor(pipe[1]), clock, flush_s=0.05)
    for number in range(4000):
        clock.now_s += 1
        writer.handle(record("a long line, %d: " + "x" * 4000, number))
    writer.close()  # nobody reads: it gives up waiting
    (writing,) = set(threading.enumerate()) - before
    os.set_blocking(pipe[0], False)
    text, ended = "", False
    while not ended:
        ended = not writing.is_alive()
        with contextlib.suppress(BlockingIOError):
            text += os.read(pipe[0], 1 << 20).decode()
    assert "a long line, 0: " in text
    assert "a long line, 3999: " not in text
    assert "lines were left out while nobody took what stood before them" in text


def test_a_reader_that_is_gone_ends_nothing() -> None:
    before = set(threading.enumerate())
    reader, end = os.pipe()
    os.close(reader)
    writer = LogWriter(_Descriptor(end))
    writer.handle(record("to nobody"))
    writer.close()
    assert set(threading.enumerate()) <= before
    os.close(end)


def test_a_line_that_cannot_be_made_is_told_of(pipe: tuple[int, int]) -> None:
    writer = LogWriter(_Descriptor(pipe[1]))
    writer.handle(record("%d of %d", 1))
    writer.close()
    assert [line.partition(" WARNING ")[2] for line in written(pipe[0])] == [
        "homing: line-failed: a line could not be made: %d of %d (TypeError)"
    ]


def test_a_pipe_that_does_not_wait_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    writer = LogWriter(_Descriptor(pipe[1]))
    for number in range(20):
        writer.handle(record(f"%s {number}", "x" * 10_000))
    text = ""
    while "19\n" not in text:
        text += os.read(pipe[0], 1 << 20).decode()
    writer.close()
    assert text.count("\n") == 20
