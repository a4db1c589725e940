"""Pulls: each is one credit of a consumer with prefetch 0, until a message answers it or its time is over.

Messages answer the oldest pull first. What is left when its time comes is answered "nothing came", each by itself: a pull without end
is not ended by another's deadline.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

from ..connection import Connection
from ..core.consumer import Consumer
from ..core.scheduled import NEVER


class Pulls:
    def __init__(self) -> None:
        #: The deadlines of each consumer's pulls, oldest pull first, and when the consumer is looked at.
        self._waiting: dict[Consumer, tuple[Connection, deque[int]]] = {}
        self._look_at: dict[Consumer, int] = {}
        self._heap: list[tuple[int, int, Consumer]] = []
        self._number = count()
        #: ``end`` is wanted then, and finds nothing before.
        self.look_at_ms = NEVER

    def add(self, connection: Connection, consumer: Consumer, deadline_ms: int | None) -> None:
        """One credit more; ``deadline_ms`` None: without end."""
        _, deadlines = self._waiting.setdefault(consumer, (connection, deque()))
        _drop_answered(consumer, deadlines)
        consumer.pulls += 1
        deadlines.append(NEVER if deadline_ms is None else deadline_ms)
        if deadline_ms is not None:
            self._look(consumer, deadline_ms)

    def _look(self, consumer: Consumer, at_ms: int) -> None:
        if at_ms < self._look_at.get(consumer, NEVER):
            self._look_at[consumer] = at_ms
            heapq.heappush(self._heap, (at_ms, next(self._number), consumer))
            self.look_at_ms = min(self.look_at_ms, at_ms)

    def forget(self, consumer: Consumer) -> None:
        self._waiting.pop(consumer, None)
        self._look_at.pop(consumer, None)

    def _next_ms(self) -> int | None:
        """The earliest deadline, if any pull has one."""
        while self._heap and self._look_at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def end(self, now_ms: int, may_end: Callable[[Consumer], bool]) -> None:
        """Answers the pulls whose time is over; those of a consumer that may not be answered yet are looked at again."""
        later: list[Consumer] = []
        while (at_ms := self._next_ms()) is not None and at_ms <= now_ms:
            consumer = heapq.heappop(self._heap)[2]
            del self._look_at[consumer]
            connection, deadlines = self._waiting[consumer]
            _drop_answered(consumer, deadlines)
            if not may_end(consumer):
                later.append(consumer)
                continue
            left = [deadline_ms for deadline_ms in deadlines if deadline_ms > now_ms]
            over = len(deadlines) - len(left)
            consumer.pulls -= over
            self._waiting[consumer] = connection, deque(left)
            if (earliest := min(left, default=NEVER)) < NEVER:
                self._look(consumer, earliest)
            for _ in range(over):
                connection.front_end.pull_empty(consumer)
        for consumer in later:
            self._look(consumer, now_ms)
        self.look_at_ms = self._next_ms() or NEVER


def _drop_answered(consumer: Consumer, deadlines: deque[int]) -> None:
    while len(deadlines) > consumer.pulls:
        deadlines.popleft()
