"""Exchanges and their bindings: direct, topic, fanout and headers. Pure: names in, names out.

An exchange routes to queues and to other exchanges; ``route`` follows those, each exchange once, and an alternate exchange where an
exchange found nothing (AMQP 0-9-1 with RabbitMQ's extensions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ..reserved import RESERVED

DIRECT: Final = "direct"
TOPIC: Final = "topic"
FANOUT: Final = "fanout"
HEADERS: Final = "headers"
KINDS: Final = (DIRECT, FANOUT, HEADERS, TOPIC)

_HEADERS_MATCH: Final = ("all", "any", "all-with-x", "any-with-x")


class Destination(NamedTuple):
    name: str
    is_queue: bool


class Binding(NamedTuple):
    source: str
    destination: Destination
    key: str
    arguments: dict[str, Any]

    def identity(self) -> tuple[str, Destination, str, str]:
        """Two bindings with the same identity are one."""
        return self.source, self.destination, self.key, repr(sorted(self.arguments.items()))


class Exchange:
    __slots__ = (
        "_by_destination",
        "_by_key",
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "durable",
        "internal",
        "kind",
        "name",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        alternate = self.arguments.get("alternate-exchange")
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        self.bindings: dict[tuple[str, Destination, str, str], Binding] = {}
        self._by_key: dict[str, dict[Destination, int]] = {}
        self._by_destination: dict[Destination, dict[tuple[str, Destination, str, str], Binding]] = {}

    @property
    def predeclared(self) -> bool:
        """It is always there."""
        return self.name.startswith(("amq.", RESERVED))

    def has(self, binding: Binding) -> bool:
        return binding.identity() in self.bindings

    def bind(self, binding: Binding) -> bool:
        """Whether the binding is a new one."""
        identity = binding.identity()
        if identity in self.bindings:
            return False
        self.bindings[identity] = binding
        counts = self._by_key.setdefault(binding.key, {})
        counts[binding.destination] = counts.get(binding.destination, 0) + 1
        self._by_destination.setdefault(binding.destination, {})[identity] = binding
        return True

    def unbind(self, binding: Binding) -> bool:
        """Whether there was such a binding."""
        identity = binding.identity()
        if self.bindings.pop(identity, None) is None:
            return False
        same = self._by_destination[binding.destination]
        del same[identity]
        if not same:
            del self._by_destination[binding.destination]
        counts = self._by_key[binding.key]
        counts[binding.destination] -= 1
        if not counts[binding.destination]:
            del counts[binding.destination]
        if not counts:
            del self._by_key[binding.key]
        return True

    def bindings_to(self, destination: Destination) -> list[Binding]:
        return list(self._by_destination.get(destination, {}).values())

    def matches(self, key: str, headers: Mapping[str, Any]) -> tuple[Destination, ...]:
        """Where a message with this routing key and these headers goes from here."""
        if self.kind == HEADERS:
            return tuple(dict.fromkeys(each.destination for each in self.bindings.values() if headers_match(each.arguments, headers)))
        if self.kind == DIRECT:
            return tuple(self._by_key.get(key, ()))
        if self.kind == FANOUT:
            return tuple(dict.fromkeys(binding.destination for binding in self.bindings.values()))
        words = _words(key)
        found: dict[Destination, None] = {}
        for pattern, destinations in self._by_key.items():
            if topic_matches(_words(pattern), words):
                found.update(dict.fromkeys(destinations))
        return tuple(found)


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def topic_matches(pattern: list[str], words: list[str]) -> bool:
    """``*`` is exactly one word, ``#`` any number of them. Linear in the worst case of one ``#``, never exponential."""
    at = place = 0
    star, mark = -1, 0
    while at < len(words):
        if place < len(pattern) and pattern[place] == "#":
            star, mark = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("*", words[at]):
            at += 1
            place += 1
        elif star >= 0:
            mark += 1
            place, at = star + 1, mark
        else:
            return False
    return all(word == "#" for word in pattern[place:])


def headers_match(wanted: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """RabbitMQ's rule: ``x-match`` is all (default), any, or either with-x, which looks at names that begin with x- too."""
    mode = wanted.get("x-match", "all")
    with_x = str(mode).endswith("-with-x")
    pairs = [(name, value) for name, value in wanted.items() if name != "x-match" and (with_x or not name.startswith("x-"))]
    # A binding value of void asks only that the header is there.
    held = (name in headers and (value is None or _same(headers[name], value)) for name, value in pairs)
    return any(held) if str(mode).startswith("any") else all(held)


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def headers_match_problem(arguments: Mapping[str, Any]) -> str | None:
    """Why these arguments cannot bind to a headers exchange; None when they can."""
    mode = arguments.get("x-match", "all")
    if mode not in _HEADERS_MATCH:
        return f"x-match must be one of {', '.join(_HEADERS_MATCH)}, not {mode!r}"
    return None


def route(
    exchanges: Mapping[str, Exchange],
    first: Exchange,
    keys: Iterable[str],
    headers: Mapping[str, Any],
) -> tuple[dict[str, None], bool]:
    """The queues, by name, each once, in the order they were found; and whether headers were looked at. ``keys``: the routing key, then CC
    and BCC."""
    queues: dict[str, None] = {}
    by_headers = False
    seen = {first.name}
    waiting = [first]
    wanted = list(keys)
    while waiting:
        exchange = waiting.pop(0)
        by_headers = by_headers or exchange.kind == HEADERS
        found: dict[Destination, None] = {}
        for key in wanted:
            found.update(dict.fromkeys(exchange.matches(key, headers)))
        following: list[str] = []
        for destination in found:
            if destination.is_queue:
                queues[destination.name] = None
            else:
                following.append(destination.name)
        if not found and exchange.alternate is not None:
            following.append(exchange.alternate)
        for name in following:
            target = exchanges.get(name)
            if target is not None and name not in seen:
                seen.add(name)
                waiting.append(target)
    return queues, by_headers
