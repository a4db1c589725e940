"""Dead-letter exchanges: where an AMQP queue's dead messages go, as RabbitMQ documents it, and mended where RabbitMQ loses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.core import dead_letter
from broker.core.death import bounded, is_cycle, through_exchange
from broker.core.exchange_origin import Way, last_way
from broker.core.message import Hop, Message, MessageReference
from broker.core.queue import Queue
from broker.errors import Refused
from broker.policies import dead_letter_exchange
from broker.resources import Resources
from broker.state import BrokerState
from broker.virtual_hosts import VirtualHosts
from journal.records import make


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

    def burials(self, queue: Queue, references: Iterable[MessageReference], reason: str) -> Iterator[Burial] | None:
        """What the queue's dead-letter exchange makes of each, to be asked for one after the other, since each may fill what it goes to;
        None for a queue without one: its address's settings hold.
        """
        exchange, replaced = dead_letter_exchange(queue)
        return None if exchange is None else self._burials(references, reason, exchange, replaced)

    def _burials(self, references: Iterable[MessageReference], reason: str, exchange: str, replaced: str | None) -> Iterator[Burial]:
        known: tuple[Message, Burial] | None = None
        limited: list[Queue] = []
        for reference in references:
            message = reference.message
            if known is None or reference.hops or not _came_alike(message, known[0]):
                burial = self._burial(reference, reason, exchange, replaced)
                known = None if reference.hops else (message, burial)
                limited = [queue for queue in burial.queues if queue.settings.limited]
            else:
                # Most die for the first time, and came the same way: they go on the same way.
                hops, queues, cycle = known[1]
                burial = make(Burial, ([dead_letter.hop_like(hops[0], reference)], queues, cycle))
            full = limited and any(map(self._resources.full, limited))
            yield Burial(burial.hops, [], False) if full else burial

    def _burial(self, reference: MessageReference, reason: str, exchange: str, replaced: str | None) -> Burial:
        came = last_way(reference)
        to = Way(exchange, came.keys, came.hidden) if replaced is None else Way(exchange, (replaced,))
        hop = dead_letter.hop(reference, reason, self._state.now_ms())
        before = reference.hops or []
        hops = bounded([through_exchange(hop, before, came, to, replaced is not None), *before], self._state.max_hops)
        if len(hops) > self._state.max_hops:
            return Burial(hops, [], False)
        queues = self._queues(to, reference)
        willing = [queue for queue in queues if not is_cycle(queue.name, hops)]
        return Burial(hops, willing, bool(queues) and not willing)

    def _queues(self, to: Way, reference: MessageReference) -> list[Queue]:
        exchanges = self._virtual_hosts.of(reference.queue).exchanges
        try:
            return exchanges.route(to.exchange, to.keys[0], reference.message.properties or {}, (*to.keys[1:], *to.hidden)).queues
        except Refused:
            return []


def _came_alike(one: Message, other: Message) -> bool:
    return one.address == other.address and one.properties == other.properties
