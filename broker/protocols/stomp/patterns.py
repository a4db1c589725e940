"""Wildcards of a subscription: what they match now, and what is made later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...broker import Broker
from ...core.amqp.declared import AMQP
from ...core.amqp.vhost import split
from ...core.queue import Queue
from ...core.reserved import RESERVED
from ...core.routing import ANYCAST, Address, RoutingTypes
from ...core.settings.wildcard import words_match
from ...steps import STEP, Steps
from .destinations import QUEUE, TOPIC, Destination

#: As ActiveMQ writes ``#``.
_THE_REST: Final = ">"


class Watch:
    """``prefix``: of the connection's virtual host, whose names alone are looked at. ``found`` is called with each, perhaps again."""

    def __init__(self, broker: Broker, prefix: str, patterns: list[Destination], found: Callable[[Destination], None]) -> None:
        self._broker = broker
        self._prefix = prefix
        self._patterns = [(each.kind, _words(each.name)) for each in patterns]
        self._found = found
        self._over = False

    def begin(self) -> None:
        """Topics are there at once, for what is sent from here on; queues, which keep what is sent, a few at a time."""
        broker, resources = self._broker, self._broker.resources
        resources.queue_made.append(self._queue)
        resources.address_made.append(self._address)
        for address in list(broker.post_office.addresses.values()):
            self._address(address)
        broker.work.begin(broker.step_times.of("let go", self._queues()))

    def _queues(self) -> Steps[None]:
        queues = self._broker.post_office.queues
        for number, name in enumerate(list(queues), 1):
            if self._over:
                return
            if (queue := queues.get(name)) is not None:
                self._queue(queue)
            if not number % STEP:
                yield

    def end(self) -> None:
        self._over = True
        self._broker.resources.queue_made.remove(self._queue)
        self._broker.resources.address_made.remove(self._address)

    def _queue(self, queue: Queue) -> None:
        """But for those that one connection has to itself."""
        if queue.routing_type == ANYCAST and not queue.options.get(AMQP, {}).get("exclusive"):
            self._look(QUEUE, queue.name)

    def _address(self, address: Address) -> None:
        if RoutingTypes.MULTICAST in address.routing_types:
            self._look(TOPIC, address.name)

    def _look(self, kind: str, full: str) -> None:
        prefix, name = split(full)
        if prefix == self._prefix and not name.startswith(RESERVED):
            words = name.split(".")
            if any(kind == wanted and words_match(pattern, words) for wanted, pattern in self._patterns):
                self._found(Destination(name, kind))


def _words(pattern: str) -> list[str]:
    words = pattern.split(".")
    return [*words[:-1], "#"] if words[-1] == _THE_REST else words
