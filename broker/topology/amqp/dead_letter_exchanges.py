"""Dead-letter exchanges: where an AMQP queue's dead messages go, as RabbitMQ documents it, and not lost where RabbitMQ loses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from homing.journal.contract import Death

from ...core import dead_letter
from ...core.amqp.account import AmqpAccount
from ...core.amqp.exchange import Compared, LateHeaders
from ...core.amqp.origin import Way, last_way
from ...core.amqp.vhost import split
from ...core.amqp.x_death import bounded, is_cycle, through_exchange
from ...core.message import Message, MessageReference
from ...core.queue import Queue
from ...core.reserved import RESERVED
from ...entries.references import Moved
from ...errors import Refused
from ..resources import Resources
from .policies import dead_letter_exchange
from .virtual_hosts import VirtualHosts


class DeadLetterRoute(NamedTuple):
    """Where messages dead-lettered together go. Without queues they are parked until somebody takes them, unless they are removed."""

    moved: list[Moved]
    queues: list[Queue]
    #: Why they are removed; "" where they are not.
    removed_for: str = ""
    #: Why they are parked, where the queue's settings do not tell.
    kept_for: str = ""


class DeadLetterExchanges:
    def __init__(
        self, resources: Resources, virtual_hosts: VirtualHosts, amqp: AmqpAccount, max_hops: int, now_ms: Callable[[], int]
    ) -> None:
        self._max_hops = max_hops
        self._now_ms = now_ms
        self._resources = resources
        self._virtual_hosts = virtual_hosts
        self._amqp = amqp

    def routes(self, queue: Queue, references: Iterable[MessageReference], reason: Death) -> list[DeadLetterRoute] | None:
        """What the queue's dead-letter exchange makes of them; None for a queue without one: its address's settings hold."""
        exchange, replaced = dead_letter_exchange(queue)
        return None if exchange is None else self._routes(references, reason, exchange, replaced)

    def leads_to(self, queue: Queue) -> list[Queue] | None:
        """Where its dead-letter exchange takes what was sent to the queue by name, with no headers; None for a queue without one."""
        exchange, replaced = dead_letter_exchange(queue)
        if exchange is None:
            return None
        key = split(queue.name)[1] if replaced is None else replaced
        return self._queues(queue, Way(exchange, (key,)), {})

    def why_nowhere(self, queue: Queue) -> str | None:
        """Why no queue takes what goes to its dead-letter exchange; None for a queue without one."""
        exchange, key = dead_letter_exchange(queue)
        if exchange is None:
            return None
        there = exchange in self._virtual_hosts.of(queue).exchanges.exchanges
        way = f" with routing key '{key}'" if key is not None else ""
        return (
            f"its dead-letter exchange '{exchange}' leads to no queue{way}"
            if there
            else f"its dead-letter exchange '{exchange}' is not there"
        )

    def _routes(self, references: Iterable[MessageReference], reason: Death, exchange: str, replaced: str | None) -> list[DeadLetterRoute]:
        routes: list[DeadLetterRoute] = []
        known: DeadLetterRoute | None = None
        for reference in references:
            if known is not None and not reference.hops and _came_alike(reference.message, known.moved[0][0].message):
                # Most are dead-lettered for the first time, and came the same way: they go on the same way.
                known.moved.append((reference, [dead_letter.hop_like(known.moved[0][1][0], reference)]))
                continue
            route, by_headers = self._route(reference, reason, exchange, replaced)
            last = routes[-1] if routes else None
            if last is not None and last[1:] == route[1:]:
                last.moved.extend(route.moved)
                known = None
            else:
                routes.append(route)
                known = None if reference.hops or by_headers else route
        return routes

    def _route(self, reference: MessageReference, reason: Death, exchange: str, replaced: str | None) -> tuple[DeadLetterRoute, bool]:
        """And whether that depends on its headers."""
        came = last_way(reference)
        to = Way(exchange, came.keys, came.hidden) if replaced is None else Way(exchange, (replaced,))
        hop = dead_letter.hop(reference, reason, self._now_ms())
        before = reference.hops or []
        hops = bounded([through_exchange(hop, before, came, to, replaced is not None), *before], self._max_hops)
        moved = [(reference, hops)]
        if len(hops) > self._max_hops:
            return DeadLetterRoute(moved, [], kept_for=too_many_hops(self._max_hops)), False
        headers = LateHeaders(lambda: self._amqp.headers_seen(reference.message, hops))
        queues = self._queues(reference.queue, to, headers)
        willing = [queue for queue in queues if not is_cycle(queue.name, hops)]
        # Nobody rejected it on its way round.
        why = "it would go round for ever" if queues and not willing else ""
        return DeadLetterRoute(moved, willing, why), headers.asked

    def _queues(self, queue: Queue, to: Way, headers: Compared) -> list[Queue]:
        if to.exchange.startswith(RESERVED):
            return []
        exchanges = self._virtual_hosts.of(queue).exchanges
        try:
            return exchanges.route(to.exchange, to.keys[0], headers, (*to.keys[1:], *to.hidden)).queues
        except Refused:
            return []


def too_many_hops(most: int) -> str:
    return f"they have been dead-lettered more than {most} times"


def _came_alike(one: Message, other: Message) -> bool:
    return one.address == other.address and one.properties == other.properties
