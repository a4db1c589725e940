"""Whether a broker.yaml that is read again may be only the beginning of one: saved half, or read while it was being written.

A cut file is often valid YAML and means something else: without its end there are no users. What a file sets is taken away by saying so
(``addresses: {}``), never by leaving it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from .source import ConfigProblem

#: YAML's end of a document.
_END: Final = "..."


class Outline(NamedTuple):
    """What a file sets at all, and how it ends."""

    #: Keys at the top with anything behind them.
    sections: frozenset[str]
    ends_in_a_line: bool
    #: Its last line is ``...``: nothing that is cut off goes unseen.
    ends_marked: bool


NO_FILE: Final = Outline(frozenset(), False, False)


def outline(text: str, values: Mapping[str, object]) -> Outline:
    """``values``: what the text sets, by section; None for a section with nothing in it."""
    sections = frozenset(key for key, value in values.items() if value is not None)
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return Outline(sections, text.endswith("\n"), bool(lines) and lines[-1].rstrip() == _END)


def signs_of_a_cut(running: Outline, read: Outline) -> list[ConfigProblem]:
    """What the file in force has and the one that was read again has lost; empty where it is whole."""
    if not read.sections:
        return [ConfigProblem("", None, "it sets nothing: it is empty, or was read while it was written", "save it again, whole")]
    lost = "the file in force sets it and this one does not: it may be cut"
    problems = [ConfigProblem(name, None, lost, _taken_away(name)) for name in sorted(running.sections - read.sections)]
    if running.ends_marked and not read.ends_marked:
        problems.append(ConfigProblem("", None, f"the file in force ends in {_END}, this one does not: it is cut", "save it again, whole"))
    elif running.ends_in_a_line and not read.ends_in_a_line:
        problems.append(ConfigProblem("", None, "its last line has no end: it may be cut", "end the file with a line end"))
    return problems


def _taken_away(name: str) -> str:
    if name in ("amqp", "stomp", "data-directory", "users"):
        return "if that is meant, restart the broker"
    return f"if that is meant, write {name}: {'[]' if name == 'virtual-hosts' else '{}'}"
