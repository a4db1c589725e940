"""Which bindings of an exchange a message matches, found at the cost of the matches and not of the bindings. Pure.

Topic patterns stand in a trie by words, as in RabbitMQ: a key is walked over the nodes that are alive, and patterns share what they begin
with. Bindings of a headers exchange stand under one of their pairs, the one that the fewest others stand under.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_ONE: Final = "*"
_MANY: Final = "#"
#: Nodes or bindings that are looked at in one step of a search.
STEP: Final = 256


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


class _Node(Generic[T]):
    """Where patterns that begin alike have come to. ``many``: behind a ``#``, which may take further words."""

    __slots__ = ("any_number", "any_word", "ends", "literal", "many")

    def __init__(self, many: bool = False) -> None:
        #: None where there is none: of most nodes there are very many.
        self.literal: dict[str, _Node[T]] | None = None
        self.any_word: _Node[T] | None = None
        self.any_number: _Node[T] | None = None
        #: What patterns lead to that end here, and how many bindings do; None as above.
        self.ends: dict[T, int] | None = None
        self.many = many

    def after(self, word: str) -> _Node[T] | None:
        if word == _MANY:
            return self.any_number
        if word == _ONE:
            return self.any_word
        return None if self.literal is None else self.literal.get(word)

    def make(self, word: str) -> _Node[T]:
        node: _Node[T] = _Node(word == _MANY)
        self._set(word, node)
        return node

    def remove(self, word: str) -> None:
        self._set(word, None)

    def _set(self, word: str, node: _Node[T] | None) -> None:
        if word == _MANY:
            self.any_number = node
        elif word == _ONE:
            self.any_word = node
        elif node is not None:
            self.literal = self.literal or {}
            self.literal[word] = node
        elif self.literal is not None:
            del self.literal[word]

    @property
    def ends_all(self) -> bool:
        """No pattern goes on behind it."""
        return not self.literal and self.any_word is None and self.any_number is None


class TopicIndex(Generic[T]):
    """Topic patterns, and what each leads to: ``*`` is exactly one word, ``#`` any number of them."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        #: Of the trie, but for the root.
        self.nodes = 0

    def add(self, pattern: str, target: T) -> None:
        """Counted: as often as it was added it is to be removed."""
        node = self._root
        for word in words_of(pattern):
            following = node.after(word)
            if following is None:
                following = node.make(word)
                self.nodes += 1
            node = following
        node.ends = node.ends or {}
        node.ends[target] = node.ends.get(target, 0) + 1

    def remove(self, pattern: str, target: T) -> None:
        words, path = words_of(pattern), [self._root]
        for word in words:
            node = path[-1].after(word)
            assert node is not None, "only what was added is removed"
            path.append(node)
        ends = path[-1].ends
        assert ends is not None, "only what was added is removed"
        ends[target] -= 1
        if not ends[target]:
            del ends[target]
        while words and not path[-1].ends and path[-1].ends_all:
            path.pop()
            path[-1].remove(words.pop())
            self.nodes -= 1

    @property
    def is_empty(self) -> bool:
        return self._root.ends_all and not self._root.ends

    def match(self, keys: Iterable[str], found: dict[T, None]) -> Iterator[int]:
        """Adds what patterns lead to that one of the keys fits. In steps: says of each how many nodes it looked at. What is bound
        in between may be found, or not.
        """
        walk = _Walk(found)
        for key in dict.fromkeys(keys):
            alive: dict[_Node[T], None] = {}
            walk.reach(self._root, alive)
            for word in words_of(key):
                following: dict[_Node[T], None] = {}
                for node in alive:
                    walk.cost += 1
                    if node.many:
                        following[node] = None
                    if node.literal and (literal := node.literal.get(word)) is not None:
                        walk.reach(literal, following)
                    if node.any_word is not None:
                        walk.reach(node.any_word, following)
                    if walk.cost >= STEP:
                        yield walk.paid()
                alive = following
            for node in alive:
                walk.take(node)
        yield walk.paid()


class _Walk(Generic[T]):
    """Of all keys of a message. ``cost``: nodes looked at, and ends taken, since the last step."""

    __slots__ = ("_found", "_taken", "cost")

    def __init__(self, found: dict[T, None]) -> None:
        self._found = found
        #: Nodes whose ends are among what was found.
        self._taken: set[_Node[T]] = set()
        self.cost = 0

    def reach(self, node: _Node[T], alive: dict[_Node[T], None]) -> None:
        """It is alive, and so is what stands behind a ``#`` that takes no word. What ends with ``#`` fits whatever else comes."""
        alive[node] = None
        while node.any_number is not None:
            node = node.any_number
            if node in alive:
                return
            self.take(node)
            if node.ends_all:
                return
            alive[node] = None

    def take(self, node: _Node[T]) -> None:
        self.cost += 1
        if node.ends and node not in self._taken:
            self._taken.add(node)
            self._found.update(dict.fromkeys(node.ends))
            self.cost += len(node.ends)

    def paid(self) -> int:
        cost, self.cost = self.cost, 0
        return cost


#: Where a binding stands: the name of a header, and its value, or nothing where it is the name alone that the binding asks for.
Slot = tuple[str, object] | tuple[str]


class HeadersIndex(Generic[T]):
    """Bindings of a headers exchange by what they ask for."""

    def __init__(self) -> None:
        self._by_slot: dict[Slot, dict[T, None]] = {}
        #: Those that ask for nothing that could be looked up, and fit whatever comes.
        self._others: dict[T, None] = {}
        self._slots: dict[T, list[Slot]] = {}

    def add(self, binding: T, pairs: Iterable[tuple[str, object]], any_of: bool) -> None:
        """``any_of``: one of the pairs is enough; else all of them are asked for. Values are found by ``==``, void by its name."""
        slots = [_slot(name, value) for name, value in pairs]
        if not any_of and slots:
            slots = [min(slots, key=lambda slot: len(self._by_slot.get(slot, ())))]
        self._slots[binding] = slots
        for slot in slots:
            self._by_slot.setdefault(slot, {})[binding] = None
        if not slots and not any_of:
            self._others[binding] = None

    def remove(self, binding: T) -> None:
        self._others.pop(binding, None)
        for slot in self._slots.pop(binding):
            there = self._by_slot.get(slot, {})
            there.pop(binding, None)
            if not there:
                self._by_slot.pop(slot, None)

    def candidates(self, headers: Mapping[str, object]) -> dict[T, None]:
        """All that may fit, in no order; each is to be looked at."""
        found = dict(self._others)
        for name, value in headers.items():
            found.update(self._by_slot.get((name,), {}))
            found.update(self._by_slot.get(_slot(name, value), {}))
        return found


def _slot(name: str, value: object) -> Slot:
    """What is void asks for the name alone."""
    return (name,) if value is None else (name, value)
