"""Tables of pages: columns, each with what it shows of an entry; one macro draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from ..answers.parts import Fields
from .asked import address

#: A text, a number, or what a template has made; nothing is shown as a dash.
Cell = str | int | None


class Column(NamedTuple):
    heading: str
    of: Callable[[Any], Cell]
    is_number: bool = False


class Table(NamedTuple):
    """``kind``: of the style, which says how wide its columns are."""

    kind: str
    label: str
    columns: Sequence[Column]
    rows: list[list[Cell]]


def table(kind: str, label: str, columns: Sequence[Column], entries: Iterable[Fields]) -> Table:
    return Table(kind, label, columns, [[column.of(each) for column in columns] for each in entries])


def link(text: str, path: str, **query: str) -> Markup:
    """To a page of ours."""
    return Markup('<a href="{}">{}</a>').format(address(path, query.items()), text)


def over(first: str | Markup, second: str | None) -> Markup:
    """Something, and in a line of its own what is said of it."""
    return Markup('{}<small class="dim">{}</small>').format(first, second) if second else Markup("{}").format(first)


def tagged(cell: str | Markup, *tags: str | None) -> Markup:
    """With what is wrong with it."""
    return Markup("{}").format(cell) + Markup("").join(Markup(' <span class="tag bad">{}</span>').format(each) for each in tags if each)


def joined(*parts: str | None) -> str | None:
    """What there is of these."""
    return ", ".join(filter(None, parts)) or None
