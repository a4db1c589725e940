"""What an address of a page says is meant: which messages, and how they are to be sent back. The same of a form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import MultiDict, QueryParams

from ..answers.parts import Properties
from ..words.filters import property_of
from ..words.redrives import STOP_ABOVE
from ..words.times import time_before
from .problems import Problem

Said = QueryParams | MultiDict
#: Keys of the broker's filter that are texts.
_TEXTS: Final = ("fault", "error_type", "reason", "from_queue", "key", "amqp_message_id", "app_id", "where", "body_contains")
_TIMES: Final = {"since": "since_ms", "until": "until_ms"}
#: All that says which messages, by its name in an address.
FIELDS: Final = (*_TEXTS, *_TIMES, "id", "property")
_HOW: Final = ("to", "rate", "limit", "canary", "stop_above", "newest_first")


def refused(what: str) -> Problem:
    return Problem("invalid-argument", what, "change it, or leave it out")


def pairs(said: Said, names: Iterable[str]) -> list[tuple[str, str]]:
    """What was said of these names, for another address or form."""
    wanted = set(names)
    return [(name, value) for name, value in said.multi_items() if name in wanted and value.strip()]


def address(path: str, *parts: Iterable[tuple[str, str]]) -> str:
    """A page's address with these pairs of a query."""
    query = urlencode([pair for part in parts for pair in part])
    return f"{path}?{query}" if query else path


def lines_in(said: Said, name: str) -> list[str]:
    """Those of all fields of this name, without what is empty."""
    return [line.strip() for each in said.getlist(name) for line in each.splitlines() if line.strip()]


def queue_in(said: Said) -> str:
    """Raises Problem where none is named."""
    queue = said.get("queue", "")
    if not queue:
        raise refused("no queue is named")
    return queue


def filter_in(said: Said) -> Properties:
    """As the broker's calls take it. Raises Problem."""
    wanted: Properties = {name: value for name in _TEXTS if (value := said.get(name, "").strip())}
    try:
        wanted |= {key: time_before(value) for name, key in _TIMES.items() if (value := said.get(name, "").strip())}
        if properties := [each for each in said.getlist("property") if each.strip()]:
            wanted["properties"] = dict(map(property_of, properties))
    except ValueError as error:
        raise refused(str(error)) from None
    if ids := [number(each, "id") for each in said.getlist("id") if each.strip()]:
        wanted["message_ids"] = ids
    return wanted


def number(text: str, name: str) -> int:
    """Raises Problem for what is no number of at most 18 digits."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise refused(f"{name} must be a number")
    return int(text)


class After(NamedTuple):
    """Where the page before ended."""

    text: str

    @property
    def cursor(self) -> int | list[int] | None:
        """As the broker gave it. Raises Problem."""
        if not self.text:
            return None
        if not re.fullmatch(r"(-?[0-9]{1,18},)?[0-9]{1,18}", self.text):
            raise refused("after is no place that a page has named")
        parts = [int(part) for part in self.text.split(",")]
        return parts if len(parts) > 1 else parts[0]

    @classmethod
    def of(cls, cursor: object) -> str:
        return ",".join(map(str, cursor)) if isinstance(cursor, list) else str(cursor)


class Redrive(NamedTuple):
    """A job that is asked for: ``pairs`` are those of its address, ``arguments`` those of the broker's call."""

    pairs: list[tuple[str, str]]
    arguments: Properties

    @property
    def wanted(self) -> Properties:
        """As a job's map has it, for words."""
        return {**self.arguments, "wanted": self.arguments["filter"], "target": self.arguments["to"]}


def redrive_in(said: Said) -> Redrive:
    """Raises Problem."""
    numbers = {name: number(said.get(name, "").strip() or "0", name) for name in ("rate", "limit", "canary")}
    stop = said.get("stop_above", str(STOP_ABOVE)).strip()
    how = {
        "to": said.get("to", "").strip() or None,
        **numbers,
        "newest_first": said.get("newest_first") == "1",
        "stop_above": None if not stop else number(stop, "stop_above"),
    }
    kept = pairs(said, (*FIELDS, "queue", *_HOW))
    if "stop_above" in said and not stop:
        kept.append(("stop_above", ""))  # which is never, and another thing than nothing said
    return Redrive(kept, {"queue": queue_in(said), "filter": filter_in(said), **how})
