"""Tables on terminals of some widths: what goes first, what is cut, and that nothing is elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from homing.broker.cli.tables import NOTHING, Column, Listing

COLUMNS = [
    Column("queue"),
    Column("pending", number=True),
    Column("dead", 1, number=True),
    Column("parked", 1, number=True),
    Column("error", 2),
    Column("owner", 3),
]
LONG = "DLQ.orders.of.the.north.and.of.the.south"
ROWS = [
    [LONG, "1,234,567", "12", NOTHING, "ValueError: there is no such thing in the warehouse", "team-orders"],
    ["a", "1", "3", NOTHING, "", ""],
]


def drawn(width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None, soft_wrap=True).print(Listing(COLUMNS, ROWS))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", range(20, 140, 7))
def test_a_row_is_a_line_that_fits(width: int) -> None:
    lines = drawn(width)
    assert len(lines) in (3, 4)
    assert lines[1].split()[0][:4] == LONG[:4]
    if width >= 30:  # what a name and a number take
        assert max(map(len, lines)) <= width
        assert "1,234,567" in lines[1]


def test_with_room_for_all_nothing_is_said() -> None:
    lines = drawn(140)
    assert lines[0].split() == [column.heading for column in COLUMNS]
    assert len(lines) == 3
    assert lines[1].startswith(LONG)
    assert lines[1].endswith("team-orders")


def test_what_is_empty_goes_first_then_what_counts_least() -> None:
    assert drawn(80)[-1] == "--wide shows all of each cell"
    assert drawn(70)[-1] == "--wide also shows: parked"
    assert drawn(60)[-1] == "--wide also shows: parked, owner"
    assert drawn(42)[-1] == "--wide also shows: parked, error, owner"


def test_a_cut_cell_shows_it() -> None:
    lines = drawn(60)
    assert "…" in lines[1]
    assert lines[2].split() == ["a", "1", "3"]
