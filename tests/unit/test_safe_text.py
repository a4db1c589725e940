"""Nothing that others wrote acts on a terminal, ends a log line or makes JSON that is none."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from homing import broker
from homing.broker.cli.output import SafeConsole, body_text, escape, print_json
from homing.broker.logs.writer import visible
from homing.broker.words.safe_text import safe, safe_json

HOSTILE = [
    "\x1b[2J\x1b[31mred",  # CSI
    "\x1b]0;title\x07",  # OSC
    "\x1b]8;;http://example.invalid\x1b\\link\x1b]8;;\x1b\\",  # OSC 8
    "\x9b2J\x9d0;title\x9c\x90",  # C1
    "\x00\x07\b\x7f\r\v\f",
    "\u202eevil\u2066\u2069\u200f\u061c",  # BiDi
    "\u2028\u2029\ufeff\U000e0041",  # line ends and what is not seen
    "line\nERROR forged",
]
#: What no terminal may be sent, but for line ends and tabs.
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
HARMLESS = ["plain", "größe ✓ 信頼", "سلام\u200cها", "👩\u200d🚀", ""]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_acts_is_escaped(text: str) -> None:
    assert not ACTS.search(safe(text))
    assert "\n" not in safe(text)
    assert len(safe(text)) > len(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_harmless_stays(text: str) -> None:
    assert safe(text) == text
    assert safe_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)
    assert body_text(text.encode()) == text


def test_lines_and_tabs_stay_in_bodies() -> None:
    assert body_text(b"a\tb\nc\x1b[2J\r") == "a\tb\nc\\x1b[2J\\r"


@given(st.text(st.characters(), max_size=20) | st.sampled_from(HOSTILE))
def test_json_stays_json_and_says_the_same(text: str) -> None:
    document = safe_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(document) == {text: [text]}
    assert not ACTS.search(document)


def test_printed_json_can_always_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"lone": "\ud800", "c1": "\x9b", "body": b"\xff"}, line=True)
    assert capsys.readouterr().out == '{"lone": {"base64": "7aCA"}, "c1": "\\u009b", "body": {"base64": "/w=="}}\n'


@pytest.mark.parametrize("text", HOSTILE)
def test_the_console_lets_nothing_through_even_where_nobody_escaped(text: str) -> None:
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, color_system="standard", width=100, emoji=False)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    console.print(table)
    console.print(text, markup=False)
    console.print(f"[bold]{escape(text)}[/]")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert not ACTS.search(shown)
    assert "\x1b[1m" in out.getvalue()


def test_markup_and_emoji_codes_of_others_are_shown_as_they_are() -> None:
    out = io.StringIO()
    SafeConsole(file=out, emoji=False).print(f"[bold]{escape('[red]x[/red] :warning:')}[/]")
    assert out.getvalue() == "[red]x[/red] :warning:\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_line_of_the_log_says_it_in_the_same_way(text: str) -> None:
    assert visible(text) == safe(text)


def test_the_commands_print_through_one_place() -> None:
    """No command writes to a stream by itself, or escapes in a way of its own."""
    own_ways = re.compile(r"rich\.markup|\bprint\(|sys\.std(out|err)\.(write|buffer)|(?<!Safe)Console\(")
    for path in Path(broker.__file__).parent.glob("cli*.py"):
        found = [] if path.name == "cli_output.py" else [line for line in path.read_text().splitlines() if own_ways.search(line)]
        assert [line for line in found if ".print(" not in line] == [], path.name
