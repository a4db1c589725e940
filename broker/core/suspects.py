"""Suspects: messages of a queue that were there when connections ended, and that the next end would dead-letter. Each goes alone.

A suspect is given to a connection that holds nothing else of the queue. Such a connection is *set apart*: it is given nothing more of the
queue until it settles that, or ``suspect-timeout`` has passed. Where every connection holds something, the one that holds least is set
apart until it holds nothing, and then gets the suspect: so none waits without bound beside consumers that are never empty. Others go on,
and none of them makes room for a second suspect as long as the first is watched.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Final, NamedTuple

from .consumer import Consumer
from .message import MessageReference

#: Suspects that are looked at in one dispatch, and what selectors may cost that: see Selector.cost.
LOOKED_AT: Final = 100
BUDGET: Final = 20_000
#: Until when a connection is set apart that is to get a suspect as soon as it holds nothing.
UNTIL_FREE: Final = 1 << 62


class Awaited(NamedTuple):
    """What a suspect waits for: a connection that is set apart, how much of the queue its consumers hold, and whether that is a suspect."""

    connection: str
    unsettled: int
    has_suspect: bool


class Assigned(NamedTuple):
    """Which suspects go to whom, and which of them have expired. ``asked``: where the next look goes on, 0 where this one was whole."""

    deliveries: list[tuple[Consumer, MessageReference]]
    expired: list[MessageReference]
    asked: int
    cost: int


class Look:
    """One look at the suspects of a queue and its consumers. ``apart``: connection -> until when it is set apart, in ms; is brought up."""

    __slots__ = ("_able", "_apart", "_cost", "_free", "_held", "_watched")

    def __init__(self, consumers: list[Consumer], apart: dict[str, int]) -> None:
        self._apart = apart
        self._cost = 0
        #: By connection: what it holds; and those that hold a suspect, which was given alone and so is the first that they hold.
        self._held: dict[str, int] = {}
        self._watched = {connection for connection, until_ms in apart.items() if until_ms != UNTIL_FREE}
        for consumer in consumers:
            if consumer.unsettled:
                self._held[consumer.connection] = self._held.get(consumer.connection, 0) + len(consumer.unsettled)
                if next(iter(consumer.unsettled.values())).suspect:
                    self._watched.add(consumer.connection)
        self._able = [consumer for consumer in consumers if consumer.able]
        self._free = [
            each for each in self._able if each.credit > 0 and each.connection not in self._held and each.connection not in self._watched
        ]

    def assign(self, suspects: Collection[MessageReference], now_ms: int, until_ms: int, asked: int) -> Assigned:
        """``until_ms``: until when who gets one is set apart at most."""
        first = heapq.nsmallest(LOOKED_AT, suspects, key=lambda each: (-each.priority, each.sequence))
        begin = asked % len(first) if first else 0
        deliveries: list[tuple[Consumer, MessageReference]] = []
        expired: list[MessageReference] = []
        making_room = {each for each, end_ms in self._apart.items() if end_ms == UNTIL_FREE} if begin else set[str]()
        chosen_by_selector = any(consumer.selector is not None for consumer in self._able)
        asked = 0
        for number, reference in enumerate(first[begin:] + first[:begin], begin):
            if self._cost >= BUDGET:
                asked = number
                break
            if reference.expired(now_ms):
                expired.append(reference)
                continue
            taker = next((consumer for consumer in self._free if self._suits(consumer, reference)), None)
            if taker is not None:
                deliveries.append((taker, reference))
                self._apart[taker.connection] = until_ms
                self._watched.add(taker.connection)
                self._free = [consumer for consumer in self._free if consumer.connection != taker.connection]
                continue
            self._make_room(reference, now_ms, making_room)
            if not self._free and not chosen_by_selector:
                break
        if not asked:
            for connection in [each for each, end_ms in self._apart.items() if end_ms == UNTIL_FREE and each not in making_room]:
                del self._apart[connection]
        return Assigned(deliveries, expired, asked, self._cost)

    def _make_room(self, reference: MessageReference, now_ms: int, making_room: set[str]) -> None:
        """Sees to it that one of those that would take it becomes free: one that is set apart already, else the one that holds least.

        One that works on a suspect for so long that it is given others again does not count: it is to go on with those.
        """
        takers = [consumer.connection for consumer in self._able if self._suits(consumer, reference)]
        apart = [each for each in takers if self._apart.get(each, 0) > now_ms]
        if apart:
            making_room.update(each for each in apart if self._apart[each] == UNTIL_FREE)
            return
        busy = [each for each in takers if each in self._held and each not in self._watched]
        least = min(busy, key=self._held.__getitem__, default=None)
        if least is not None:
            making_room.add(least)
            self._apart[least] = UNTIL_FREE

    def _suits(self, consumer: Consumer, reference: MessageReference) -> bool:
        self._cost += consumer.look_cost(reference)
        return consumer.takes(reference)
