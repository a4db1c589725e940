"""What a configuration of ActiveMQ comes to: the lines of a broker.yaml, each with where it came from, and what could not be said there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from .nodes import Node

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$/+-]*")
#: What YAML would take for something else than text.
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class Value(NamedTuple):
    value: Any
    origin: str


class Note(NamedTuple):
    """``origin``: file and line; ``what``: the element or attribute; ``said``: what becomes of it."""

    origin: str
    what: str
    said: str


class Translation:
    def __init__(self) -> None:
        #: Section -> key -> value, or -> name -> key -> value.
        self.sections: dict[str, dict[str, Any]] = {}
        #: (section, name) -> where that was first named.
        self._named: dict[tuple[str, str], str] = {}
        #: What holds here, in another way, and what does not.
        self.differs: list[Note] = []
        self.missing: list[Note] = []

    @property
    def size(self) -> int:
        """How much has been said."""
        layers = self.sections.get("address-settings", {}).values()
        return len(self.differs) + len(self.missing) + sum(len(layer) for layer in layers)

    def set(self, section: str, key: str, value: Any, origin: str) -> None:
        self._put(self.sections.setdefault(section, {}), key, value, origin, f"{section}.{key}")

    def setting(self, pattern: str, key: str, value: Any, origin: str) -> None:
        """Of an address."""
        self.entry("address-settings", pattern, origin)
        self._put(self.sections["address-settings"][pattern], key, value, origin, f"{key} of {pattern!r}, for queues and topics alike,")

    def entry(self, section: str, name: str, origin: str, **values: Any) -> None:
        """One of what a section names: a queue, a user."""
        found = self.sections.setdefault(section, {}).setdefault(name, {})
        self._named.setdefault((section, name), origin)
        for key, value in values.items():
            self._put(found, key.replace("_", "-"), value, origin, f"{key} of {name!r}")

    def _put(self, layer: dict[str, Any], key: str, value: Any, origin: str, what: str) -> None:
        """The first that says it holds."""
        before = layer.setdefault(key, Value(value, origin))
        if before.value != value:
            said = f"{what} is {before.value} by {before.origin} already, which stays"
            self.miss(origin, f"{key}: {value}", said)

    def needless(self, node: Node, names: Iterable[str], said: str) -> None:
        """What the element has of these is known, and comes to nothing here."""
        dropped = [name for name in names if node.drop(name)]
        if dropped:
            self.differ(node.origin, f"{', '.join(dropped)} of <{node.name}>", said)

    def differ(self, origin: str, what: str, said: str) -> None:
        self._note(self.differs, origin, what, said)

    def miss(self, origin: str, what: str, said: str) -> None:
        self._note(self.missing, origin, what, said)

    @staticmethod
    def _note(notes: list[Note], origin: str, what: str, said: str) -> None:
        note = Note(*map(_on_one_line, (origin, what, said)))
        if note not in notes:
            notes.append(note)

    def as_yaml(self, source: str) -> str:
        """The file. What could not be translated stands in it as comments."""
        lines = [f"# Translated from {source}; behind each line stands the one that it came from.", ""]
        for title, notes in (("Not translated", self.missing), ("Translated, or needless, and otherwise here", self.differs)):
            if notes:
                lines += [f"# {title}:", *(f"# - {each.origin}: {each.what}: {each.said}" for each in notes), ""]
        for section, values in self.sections.items():
            lines.append(f"{section}:")
            for name, value in values.items():
                lines += _lines(name, value, "  ", self._named.get((section, name)))
            lines.append("")
        return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """A comment ends with its line."""
    return " ".join(text.split())


def _lines(name: str, value: Any, indent: str, origin: str | None = None) -> list[str]:
    """``origin``: where it is named, which is shown of what has nothing in it."""
    if isinstance(value, Value):
        return [f"{indent}{_text(name)}: {_shown(value.value)}  # {value.origin}"]
    if not value:
        return [f"{indent}{_text(name)}: {{}}  # {origin}"]
    return [f"{indent}{_text(name)}:", *(line for key, each in value.items() for line in _lines(key, each, indent + "  "))]


def _text(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not text[0].isdigit() else json.dumps(text)


def _shown(value: Any) -> str:
    """As YAML has it on one line."""
    if isinstance(value, str):
        return _text(value) if not re.match(r"\d", value) or re.fullmatch(r"\d+(ms|s|m|h|d|[KMG]iB)", value) is None else value
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(key)}: {_shown(each)}' for key, each in value.items())}}}"
    return json.dumps(value)


def pattern_of(words: str, any_words: str = ">") -> str | None:
    """Their pattern as ours; None where it mixes a wildcard with text in one word, which no pattern here does."""
    translated = ["#" if word == any_words else word for word in words.split(".")]
    mixed = any(len(word) > 1 and set(word) & {"*", "#", any_words} for word in translated)
    return None if mixed or "" in translated else ".".join(translated)


def covers(wide: list[str], narrow: list[str]) -> bool:
    """Whether a pattern of ours, in words, matches all that another does."""
    if not wide:
        return not narrow
    if wide[0] == "#":
        return covers(wide[1:], narrow) or (bool(narrow) and covers(wide, narrow[1:]))
    return bool(narrow) and (wide[0] == narrow[0] or (wide[0] == "*" and narrow[0] != "#")) and covers(wide[1:], narrow[1:])


def size_text(size: int) -> str | int:
    """Bytes, in the largest unit that has them whole."""
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size and size % (1 << bits) == 0:
            return f"{size >> bits}{unit}"
    return size


def size_of(text: str) -> int | None:
    """Bytes: ``64 mb``, ``10G``, ``104857600``; None: none that is understood."""
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", text.strip().lower())
    return None if found is None else int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]
