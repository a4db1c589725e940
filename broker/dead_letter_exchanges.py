"""Dead-letter exchanges: where an AMQP queue's dead messages go, as RabbitMQ documents it, and mended where RabbitMQ loses them."""

from __future__ import annotations

from typing import NamedTuple

from broker.core import dead_letter
from broker.core.death import bounded, is_cycle, through_exchange
from broker.core.exchange_origin import Way, last_way
from broker.core.message import Hop, MessageReference
from broker.core.queue import Queue
from broker.errors import Refused
from broker.policies import dead_letter_exchange
from broker.resources import Resources
from broker.state import BrokerState
from broker.virtual_hosts import VirtualHosts


class Burial(NamedTuple):
    """Where a message goes on. No queue: nobody takes it now. ``cycle``: it would go round for ever without anybody's rejection."""

    hops: list[Hop]
    queues: list[Queue]
    cycle: bool


class DeadLetterExchanges:
    def __init__(self, state: BrokerState, resources: Resources, virtual_hosts: VirtualHosts) -> None:
        self._state = state
        self._resources = resources
        self._virtual_hosts = virtual_hosts

    def burial(self, reference: MessageReference, reason: str) -> Burial | None:
        """What the queue's dead-letter exchange makes of it; None for a queue without one: its address's settings hold."""
        exchange, replaced = dead_letter_exchange(reference.queue)
        if exchange is None:
            return None
        came = last_way(reference)
        to = Way(exchange, came.keys, came.hidden) if replaced is None else Way(exchange, (replaced,))
        hop = dead_letter.hop(reference, reason, self._state.now_ms())
        before = reference.hops or []
        hops = bounded([through_exchange(hop, before, came, to, replaced is not None), *before], self._state.max_hops)
        queues = self._queues(to, reference)
        willing = [queue for queue in queues if not is_cycle(queue.name, hops)]
        if len(hops) > self._state.max_hops or any(self._resources.full(queue) for queue in willing):
            return Burial(hops, [], False)
        return Burial(hops, willing, bool(queues) and not willing)

    def _queues(self, to: Way, reference: MessageReference) -> list[Queue]:
        exchanges = self._virtual_hosts.of(reference.queue).exchanges
        try:
            return exchanges.route(to.exchange, to.keys[0], reference.message.properties or {}, (*to.keys[1:], *to.hidden)).queues
        except Refused:
            return []
