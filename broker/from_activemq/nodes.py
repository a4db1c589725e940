"""XML with the line of each element, and what of it was looked at: what nobody has looked at must not be lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from xml.parsers import expat

from ..errors import Refused

_PLACEHOLDER: Final = re.compile(r"\$\{([^${}]*)\}")
#: Java's and Spring's, of which no file beside it says what they stand for.
_UNFILLED: Final = re.compile(r"[$#]\{[^}]*\}")
#: Of these it is said elsewhere.
_TOLD_ELSEWHERE: Final = ("password", "uri")
_UNKNOWN: Final = "it is not known here, or has no counterpart"
_MOST_BYTES: Final = 4 << 20
_DEEPEST: Final = 100


class Node:
    """An element. Names are without their namespace."""

    def __init__(self, name: str, attributes: dict[str, str], file: str, line: int) -> None:
        self.name, self.attributes = name, attributes
        self.children: list[Node] = []
        self.text = ""
        #: ``activemq.xml:12``.
        self.origin = f"{file}:{line}"
        self.line = line
        self.seen = False
        self._taken: set[str] = set()
        #: Placeholders in what was looked at, which nothing fills.
        self._unfilled: list[str] = []

    def take(self, name: str, default: str = "") -> str:
        """An attribute, or else a child that has nothing but a text, which is looked at with that."""
        self.seen = True
        if name in self.attributes:
            self._taken.add(name)
            return self._used(name, self.attributes[name])
        for child in self.children:
            if child.name == name and not child.children:
                child.seen = True
                return self._used(name, child.text)
        return default

    def _used(self, name: str, value: str) -> str:
        found = _UNFILLED.search(value)
        if found is not None and name not in _TOLD_ELSEWHERE and (said := f"{found[0]}, {name} of <{self.name}>") not in self._unfilled:
            self._unfilled.append(said)
        return value

    def takes(self, name: str) -> bool:
        return name in self.attributes or any(child.name == name for child in self.children)

    def drop(self, name: str) -> bool:
        """Passes over that attribute, and all elements of that name below it, where nobody has taken them. Whether there were any."""
        self.seen = True
        dropped = [child for child in self.children if child.name == name and not child.seen]
        for child in dropped:
            child.pass_over()
        has = name in self.attributes and name not in self._taken
        if has:
            self._taken.add(name)
        return has or bool(dropped)

    def all(self, *path: str) -> list[Node]:
        """The elements below it along the path, which are looked at, and each on the way."""
        self.seen = True
        found = [self]
        for name in path:
            found = [child for each in found for child in each.children if child.name == name]
            for each in found:
                each.seen = True
        return found

    def pass_over(self) -> None:
        """It is known, with all that is in it."""
        self.seen = True
        self._taken.update(self.attributes)
        for child in self.children:
            child.pass_over()

    def words(self) -> Iterator[str]:
        """All texts and values of attributes."""
        yield self.text
        yield from self.attributes.values()
        for child in self.children:
            yield from child.words()

    def left(self) -> Iterator[tuple[str, str, str]]:
        """(where, what, what is the matter with it) of all that nobody has looked at, and of what nobody can know."""
        if not self.seen:
            yield self.origin, f"<{self.name}>", _UNKNOWN
            return
        for name in self.attributes:
            if name not in self._taken:
                yield self.origin, f"{name} of <{self.name}>", _UNKNOWN
        for said in self._unfilled:
            yield self.origin, said, "no file beside this one says what that stands for: put it in"
        for child in self.children:
            yield from child.left()


def parse(path: Path, value_of: Callable[[str], str | None]) -> Node:
    """The root of the file. ``value_of``: what a placeholder ``${name}`` stands for. Raises Refused."""
    data = path.read_bytes()
    if len(data) > _MOST_BYTES:
        raise Refused("not-readable", f"{path} is larger than {_MOST_BYTES >> 20} MiB", "name a configuration file")
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    open_ones: list[Node] = []
    roots: list[Node] = []

    def filled(text: str) -> str:
        def found(match: re.Match[str]) -> str:
            name, _, default = match[1].partition(":")
            value = value_of(name)
            return match[0] if value is None and not _ else default if value is None else value

        return _PLACEHOLDER.sub(found, text)

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(open_ones) >= _DEEPEST:
            raise Refused("not-readable", f"{path}: elements are nested deeper than {_DEEPEST}", "name a configuration file")
        own = {_local(each): filled(value) for each, value in attributes.items() if "}" not in each or "XMLSchema" not in each}
        node = Node(_local(name), own, path.name, parser.CurrentLineNumber)
        (open_ones[-1].children if open_ones else roots).append(node)
        open_ones.append(node)

    def end(_: str) -> None:
        node = open_ones.pop()
        node.text = filled(node.text.strip())

    def text(characters: str) -> None:
        if open_ones:
            open_ones[-1].text += characters

    def refuse(*_: object) -> None:
        raise Refused("not-readable", f"{path} declares entities, which are not read", "replace them by what they stand for")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse  # type: ignore[assignment]
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise Refused("not-readable", f"{path}: {error}", "name an activemq.xml or a broker.xml") from None
    return roots[0]


def _local(name: str) -> str:
    return name.rpartition("}")[2]
