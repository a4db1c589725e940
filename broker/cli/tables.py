"""Tables, one way for all commands: on a terminal a row is a line, and where there is no room for all of it the least important columns are
left out and long cells cut, which is said; elsewhere, and with ``--wide``, everything is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from .output import stdout, wide

Wide = Annotated[bool, typer.Option("--wide", help="All columns, uncut, however wide the terminal is.")]

#: So much of a text must fit, else another column is left out; names are what is typed next.
_LEAST: Final = 12
_LEAST_OF_NAMES: Final = 24
#: Where nothing more can be left out.
_LEAST_OF_ALL: Final = 4
_GAP: Final = 2
NOTHING: Final = "[dim]·[/]"
_EMPTY: Final = ("", "·", "–")


class Column(NamedTuple):
    """``rank`` 0: always there; of the others those of the highest rank are left out first. Texts may be cut, numbers never are, nor what
    is of use only ``whole``."""

    heading: str
    rank: int = 0
    number: bool = False
    whole: bool = False

    @property
    def uncut(self) -> bool:
        return self.number or self.whole


class Listing:
    """A table that knows how wide it may be. ``rows``: cells of the console's markup, of which there is no line end."""

    def __init__(self, columns: Iterable[Column], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
        self._columns = list(columns)
        self._rows = [[Text.from_markup(cell, emoji=False) for cell in row] for row in rows]
        self._title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown, widths = self._fitted(options.max_width)
        table = Table(box=None, pad_edge=False, header_style="dim", title=self._title, title_justify="left", title_style="italic")
        for at, width in zip(shown, widths, strict=True):
            column = self._columns[at]
            justify = "right" if column.number else "left"
            table.add_column(column.heading, justify=justify, no_wrap=True, overflow="ellipsis", max_width=width)  # type: ignore[arg-type]
        for row in self._rows:
            table.add_row(*[row[at] for at in shown])
        yield table
        left_out = [column.heading for at, column in enumerate(self._columns) if at not in shown]
        cut = any(self._natural(at) > width for at, width in zip(shown, widths, strict=True))
        if left_out or cut:
            more = f"also shows: {', '.join(left_out)}" if left_out else "shows all of each cell"
            yield Text(f"--wide {more}", style="dim", no_wrap=True, overflow="ellipsis")

    def _natural(self, at: int) -> int:
        return max([len(self._columns[at].heading), *(row[at].cell_len for row in self._rows)])

    def _least(self, at: int) -> int:
        natural, column = self._natural(at), self._columns[at]
        return natural if column.uncut else min(natural, max(_LEAST if column.rank else _LEAST_OF_NAMES, len(column.heading)))

    def _fitted(self, width: int) -> tuple[list[int], list[int]]:
        """Which columns there is room for, and how wide each is."""
        shown = list(range(len(self._columns)))
        for at in sorted((at for at in shown if self._columns[at].rank), key=self._dispensable, reverse=True):
            if sum(map(self._least, shown)) <= width - _GAP * (len(shown) - 1):
                break
            shown.remove(at)
        natural = [self._natural(at) for at in shown]
        texts = [size for at, size in zip(shown, natural, strict=True) if not self._columns[at].uncut]
        cap = _cap(texts, width - _GAP * (len(shown) - 1) - (sum(natural) - sum(texts)))
        return shown, [size if self._columns[at].uncut else min(size, cap) for at, size in zip(shown, natural, strict=True)]

    def _dispensable(self, at: int) -> tuple[bool, int, int]:
        """What has nothing in it goes before all else."""
        return all(row[at].plain in _EMPTY for row in self._rows), self._columns[at].rank, at


def _cap(sizes: list[int], room: int) -> int:
    """The most that each may have for all to fit: the short ones have all that they want."""
    for number, size in enumerate(ordered := sorted(sizes)):
        alike = room // (len(ordered) - number)
        if size > alike:
            return max(_LEAST_OF_ALL, alike)
        room -= size
    return max(sizes, default=0)


def amount(value: int) -> str:
    return f"{value:,}" if value else NOTHING


def print_table(table: RenderableType, everything: bool) -> None:
    """``everything``: what ``--wide`` says."""
    (stdout if stdout.is_terminal and not everything else wide).print(table)
