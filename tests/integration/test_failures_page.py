"""Pages that tell a story, typed along in one shell: their files are written, their commands run and print what is shown, no more."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests import fork_server
from tests.process import ROOT

BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What at the end only looks may be looked at again until there is to be seen what the page shows.
LOOKS: Final = re.compile(
    r"(?:^(?:homing (?:(?:peek|dead list|faults show|history)\b.*|dead|faults|redrive .* --dry-run)|cat .*)\n)*\Z", re.MULTILINE
)
PATIENCE_S: Final = 60.0
#: What may be another one each time, and what stands for it. A redrive is done when all is sent, which may not be settled yet.
PLAIN: Final = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r'\\"', '"'),
        (r"\b\d+-[0-9a-f]{16}\b", ""),
        (r"\d{4}-\d\d-\d\d (?=\d)|(?<=\d) UTC", ""),
        (r"\d+(?:[.,:-]\d+)*", "#"),
        (r"# (?:ms|s|min|h|d)\b(?: # (?:s|min|h)\b)?", "#"),
        (r"[·▁▂▃▄▅▆▇█]+", "#"),
        (r", # not settled yet", ""),
    )
)
_END: Final = "--- that was all ---"


class Shell:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, commands: str) -> str:
        """What they print; those that fail end the test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"set -e\n{commands}\nset +e\necho '{_END}'\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.strip() == _END:
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"{commands}\nended the shell:\n{''.join(printed)}")


@contextmanager
def shell(directory: Path, url: str) -> Iterator[Shell]:
    with fork_server.on_path(directory) as path:
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOMING_URL": url, "COLUMNS": "160", "TZ": "UTC"}
        process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Shell(process)
        finally:
            assert process.stdin is not None
            if process.poll() is None:
                process.stdin.write("kill $(jobs -p); wait\n")
            process.communicate(timeout=60)


def cells(line: str) -> list[str]:
    """What a line says apart from numbers, times, the numbers of faults, what the bars of a chart are, and how wide columns are."""
    for pattern, plain in PLAIN:
        line = pattern.sub(plain, line)
    return [cell for cell in re.split(r"\s{2,}", line.strip()) if cell]


def is_like(shown: list[str], printed: list[str]) -> bool:
    """The cells shown are among those printed, in order: a table may have more columns. An ellipsis within one stands for anything."""
    left = iter(printed)
    patterns = (".*".join(re.escape(part.strip()) for part in re.split(r"…|\.\.\.", cell)) for cell in shown)
    return all(any(re.fullmatch(pattern, cell) for cell in left) for pattern in patterns)


def difference(shown: str, printed: str) -> str | None:
    """The first line that is shown and not printed there, or printed and not shown; a line of an ellipsis stands for any lines."""
    left = [line for line in printed.splitlines() if line.strip()]
    any_lines = False
    for line in filter(str.strip, shown.splitlines()):
        if line.strip() == "…":
            any_lines = True
            continue
        while any_lines and left and not is_like(cells(line), cells(left[0])):
            del left[0]
        if not left or not is_like(cells(line), cells(left[0])):
            return f"shown: {line}\nprinted there: {left[0] if left else 'nothing'}"
        del left[0]
        any_lines = False
    return f"printed and not shown: {left[0]}" if left and not any_lines else None


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("fault  first\n2-1514759762846a68  9.2 s ago", "fault  first\n2-2514759762846a60      1 min 5 s ago\n", True),
        ("from 17:36:19.796 to 17:36:19.817", "from 2026-11-25 23:59:59.999 UTC to 00:00:00.001", True),
        ("queue  error\norders  KeyError", "queue  fault  error\norders  3-1514759762846a68  KeyError", True),
        ("such as 6\n…\nthe end", "such as 6\nsuch as 7\nthe end", True),
        (
            '… "fault.new" … "homing faults orders" …',
            r'{"body": "{\"event\": \"fault.new\", \"command\": \"homing faults orders\"}"}',
            True,
        ),
        ('File ".../worker.py", line 16', 'File "/home/worker.py", line 17', True),
        ("first\nlast", "first\nbetween\nlast", False),
        ("first", "first\nlast", False),
        ("first\nlast", "first", False),
        ("first\nlast", "last\nfirst", False),
        ("redrive 1 of DLQ.orders is done", "redrive 1 of DLQ.orders (--canary 10) is done", False),
        ("queue  error  failures", "queue  failures", False),
    ],
)
def test_numbers_and_times_may_differ_and_lines_may_not(shown: str, printed: str, same: bool) -> None:
    assert (difference(shown, printed) is None) is same


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.plain  # a compiled client's frame has no line of source to show
@pytest.mark.parametrize(("page", "least"), [("failures.md", 9), ("from-rabbitmq.md", 3)])
def test_the_story_goes_as_it_is_told(tmp_path: Path, page: str, least: int) -> None:
    story = (ROOT / "docs" / page).read_text()
    with socket.socket() as free, socket.socket() as free_too:
        free.bind(("127.0.0.1", 0))
        free_too.bind(("127.0.0.1", 0))
        port, amqp_port = free.getsockname()[1], free_too.getsockname()[1]
    url = f"homing://127.0.0.1:{port}"
    parts = list(BLOCK.finditer(story))
    shown = 0
    with shell(tmp_path, url) as at:
        for number, part in enumerate(parts):
            kind, text = part.groups()
            if kind in ("yaml", "python"):
                name = re.findall(r"`([\w.]+\.\w+)`:$", story[: part.start()], re.MULTILINE)[-1]
                text = text.replace("homing://127.0.0.1:7171", url).replace("5672", str(amqp_port))
                (tmp_path / name).write_text(text + (f"native: {{port: {port}}}\n" if name == "broker.yaml" else ""))
            elif kind == "bash":
                after = parts[number + 1] if number + 1 < len(parts) else None
                looks = LOOKS.search(text)
                assert looks is not None
                did, end = at.run(text[: looks.start()]), time.monotonic() + PATIENCE_S
                printed = did + at.run(looks[0])
                if after is None or after[1] != "text":
                    continue
                shown += 1
                wanted = after[2].replace("web-1", socket.gethostname())
                while (differs := difference(wanted, printed)) and looks[0] and time.monotonic() < end:
                    time.sleep(0.3)
                    printed = did + at.run(looks[0])
                assert differs is None, f"{text}\n{differs}\n\nall of it:\n{printed}"
    assert shown >= least, "the page shows what commands print"
