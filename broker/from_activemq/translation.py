"""What a configuration of ActiveMQ comes to: the lines of a broker.yaml, each with where it came from, and what could not be said there."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

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
        #: What holds here, in another way, and what does not.
        self.differs: list[Note] = []
        self.missing: list[Note] = []

    def set(self, section: str, key: str, value: Any, origin: str) -> None:
        self.sections.setdefault(section, {}).setdefault(key, Value(value, origin))

    def setting(self, pattern: str, key: str, value: Any, origin: str) -> None:
        """Of an address; the first that says it holds."""
        self.entry("address-settings", pattern, origin)
        layer = self.sections["address-settings"][pattern]
        before = layer.setdefault(key, Value(value, origin))
        if before.value != value:
            said = f"{key} of {pattern!r} is {before.value} by {before.origin} already: queues and topics are addresses alike here"
            self.miss(origin, f"{key}: {value}", said)

    def entry(self, section: str, name: str, origin: str, **values: Any) -> None:
        """One of what a section names: a queue, a user."""
        found = self.sections.setdefault(section, {}).setdefault(name, {})
        for key, value in values.items():
            found.setdefault(key.replace("_", "-"), Value(value, origin))

    def differ(self, origin: str, what: str, said: str) -> None:
        self.differs.append(Note(*map(_on_one_line, (origin, what, said))))

    def miss(self, origin: str, what: str, said: str) -> None:
        self.missing.append(Note(*map(_on_one_line, (origin, what, said))))

    def as_yaml(self, source: str) -> str:
        """The file. What could not be translated stands in it as comments."""
        lines = [f"# Translated from {source}; behind each line stands the one that it came from.", ""]
        for title, notes in (("Not translated", self.missing), ("Translated, or needless, and otherwise here", self.differs)):
            if notes:
                lines += [f"# {title}:", *(f"# - {each.origin}: {each.what}: {each.said}" for each in notes), ""]
        for section, values in self.sections.items():
            lines.append(f"{section}:")
            for name, value in values.items():
                lines += _lines(name, value, "  ")
            lines.append("")
        return "\n".join(lines)


def _on_one_line(text: str) -> str:
    """A comment ends with its line."""
    return " ".join(text.split())


def _lines(name: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, Value):
        return [f"{indent}{_text(name)}: {_shown(value.value)}  # {value.origin}"]
    if not value:
        return [f"{indent}{_text(name)}: {{}}"]
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


def size_of(text: str) -> int | None:
    """Bytes: ``64 mb``, ``10G``, ``104857600``; None: none that is understood."""
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", text.strip().lower())
    return None if found is None else int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]
