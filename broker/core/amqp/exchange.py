"""Exchanges and their bindings: direct, topic, fanout and headers. Pure: names in, names out.

An exchange routes to queues and to other exchanges; search.py follows those (AMQP 0-9-1 with RabbitMQ's extensions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from homing.journal.declarations import Table

from ..reserved import RESERVED
from ..standing import Standing
from .binding_index import STEP, HeadersIndex, TopicIndex

DIRECT: Final = "direct"
TOPIC: Final = "topic"
FANOUT: Final = "fanout"
HEADERS: Final = "headers"
KINDS: Final = (DIRECT, FANOUT, HEADERS, TOPIC)

_HEADERS_MATCH: Final = ("all", "any", "all-with-x", "any-with-x")
#: Headers, or a binding's arguments: name -> what is equal where RabbitMQ takes two values for the same; None: the type without a value.
Compared = Mapping[str, Any]
#: A binding's arguments as AMQP writes them: name -> type and value.
Fields = Mapping[str, bytes]


class LateHeaders(Compared):
    """Headers that are made out only where a headers exchange asks for them."""

    def __init__(self, make: Callable[[], Compared]) -> None:
        self._make = make

    @cached_property
    def _fields(self) -> Compared:
        return self._make()

    @property
    def asked(self) -> bool:
        """A headers exchange did."""
        return "_fields" in self.__dict__

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


_NOTHING: Final[Compared] = MappingProxyType({})


class Destination(NamedTuple):
    name: str
    is_queue: bool


class Binding(NamedTuple):
    source: str
    destination: Destination
    key: str
    arguments: Table
    #: The same for headers to be compared with.
    wanted: Compared = _NOTHING
    #: The same as AMQP writes them, where that tells more: of a time that it is no number, of a number how wide it is.
    fields: Fields = _NOTHING

    def identity(self) -> Identity:
        """Two bindings with the same identity are one."""
        return self.source, self.destination, self.key, repr(sorted((self.fields or self.arguments).items()))


#: What two bindings that are one have in common.
Identity = tuple[str, Destination, str, str]


#: Of exchanges of other kinds: nothing is ever put there.
_NO_PATTERNS: Final[TopicIndex[Destination]] = TopicIndex()
_NO_HEADERS: Final[HeadersIndex[Identity]] = HeadersIndex()


class Exchange:
    __slots__ = (
        "_by_destination",
        "_by_headers",
        "_by_key",
        "_by_pattern",
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "durable",
        "internal",
        "kind",
        "name",
        "standing",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments or {}
        alternate = self.arguments.get("alternate-exchange")
        self.alternate: str | None = alternate if isinstance(alternate, str) else None
        #: Of its bindings, and of itself.
        self.standing = Standing()
        self.bindings: dict[Identity, Binding] = {}
        self._by_destination: dict[Destination, dict[Identity, Binding]] = {}
        # Of its kind one of these: of a direct, a topic and a headers exchange.
        self._by_key: dict[str, dict[Destination, int]] = {}
        self._by_pattern: TopicIndex[Destination] = TopicIndex() if kind == TOPIC else _NO_PATTERNS
        self._by_headers: HeadersIndex[Identity] = HeadersIndex() if kind == HEADERS else _NO_HEADERS

    @property
    def predeclared(self) -> bool:
        """It is always there."""
        return self.name.startswith(("amq.", RESERVED))

    def changed(self) -> None:
        """Routes through it are to be found anew."""
        self.standing = self.standing.fall()

    def has(self, binding: Binding) -> bool:
        return binding.identity() in self.bindings

    def bind(self, binding: Binding) -> bool:
        """Whether the binding is a new one."""
        identity = binding.identity()
        if identity in self.bindings:
            return False
        self.changed()
        self.bindings[identity] = binding
        if self.kind == TOPIC:
            self._by_pattern.add(binding.key, binding.destination)
        elif self.kind == HEADERS:
            pairs, any_of = _asked_for(binding)
            self._by_headers.add(identity, pairs, any_of)
        elif self.kind == DIRECT:
            counts = self._by_key.setdefault(binding.key, {})
            counts[binding.destination] = counts.get(binding.destination, 0) + 1
        self._by_destination.setdefault(binding.destination, {})[identity] = binding
        return True

    def unbind(self, binding: Binding) -> bool:
        """Whether there was such a binding."""
        identity = binding.identity()
        if self.bindings.pop(identity, None) is None:
            return False
        self.changed()
        same = self._by_destination[binding.destination]
        del same[identity]
        if not same:
            del self._by_destination[binding.destination]
        if self.kind == TOPIC:
            self._by_pattern.remove(binding.key, binding.destination)
        elif self.kind == HEADERS:
            self._by_headers.remove(identity)
        elif self.kind == DIRECT:
            counts = self._by_key[binding.key]
            counts[binding.destination] -= 1
            if not counts[binding.destination]:
                del counts[binding.destination]
            if not counts:
                del self._by_key[binding.key]
        return True

    @property
    def nodes(self) -> int:
        """What its topic patterns take room with, beside themselves."""
        return self._by_pattern.nodes

    def bindings_to(self, destination: Destination) -> list[Binding]:
        return list(self._by_destination.get(destination, {}).values())

    def matches(self, keys: Iterable[str], headers: Compared, found: dict[Destination, None]) -> Iterator[int]:
        """Adds where a message with these routing keys and headers goes from here, each once. In steps: says of each what it cost, in
        bindings or nodes of a trie that were looked at.
        """
        if self.kind == TOPIC:
            yield from self._by_pattern.match(keys, found)
        elif self.kind == HEADERS:
            yield from self._by_their_headers(headers, found)
        elif self.kind == FANOUT:
            found.update(dict.fromkeys(self._by_destination))
            yield len(found)
        else:
            for key in keys:
                found.update(dict.fromkeys(self._by_key.get(key, ())))
            yield len(found) + 1

    def _by_their_headers(self, headers: Compared, found: dict[Destination, None]) -> Iterator[int]:
        cost = 1
        for identity in self._by_headers.candidates(headers):
            binding = self.bindings.get(identity)
            if binding is not None and binding.destination not in found:
                cost += len(binding.wanted)
                if headers_match(binding, headers):
                    found[binding.destination] = None
            cost += 1
            if cost >= STEP:
                yield cost
                cost = 0
        yield cost


def headers_match(binding: Binding, headers: Compared) -> bool:
    """RabbitMQ's rule: ``x-match`` is all (default), any, or either with-x, which looks at names that begin with x- too."""
    pairs, any_of = _asked_for(binding)
    # A binding value of void asks only that the header is there.
    held = (name in headers and (value is None or headers[name] == value) for name, value in pairs)
    return any(held) if any_of else all(held)


def _asked_for(binding: Binding) -> tuple[list[tuple[str, Any]], bool]:
    """The pairs that a binding to a headers exchange looks at, and whether one of them is enough."""
    mode = str(binding.arguments.get("x-match", "all"))
    with_x = mode.endswith("-with-x")
    pairs = [(name, value) for name, value in binding.wanted.items() if name != "x-match" and (with_x or not name.startswith("x-"))]
    return pairs, mode.startswith("any")


def headers_match_problem(arguments: Compared) -> str | None:
    """Why these arguments cannot bind to a headers exchange; None when they can."""
    mode = arguments.get("x-match", "all")
    if mode not in _HEADERS_MATCH:
        return f"x-match must be one of {', '.join(_HEADERS_MATCH)}, not {mode!r}"
    return None
