"""What came on one connection in one turn of the loop, gathered so that the broker is asked once: messages, acknowledgements, confirms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from ...broker import Broker
from ...core.consumer import Consumer
from ...core.message import Message, MessageReference
from ...core.producer import Producer
from ...core.queue import Queue
from ...core.routing import Route

#: What a message costs a producer's credit beyond its body and properties.
_OVERHEAD_BYTES = 400


class Confirming:
    """A channel with confirms."""

    def confirm(self) -> None:
        """The turn's publishes are with the broker: they are confirmed when they are on disk."""
        raise NotImplementedError


class Gathered:
    """``producer`` is there once the connection is open. ``settled`` is called with consumers whose deliveries were acknowledged."""

    producer: Producer

    def __init__(self, broker: Broker, settled: Callable[[Consumer], None]) -> None:
        self._intake, self._settlement, self._flow = broker.intake, broker.settlement, broker.flow
        self._settled = settled
        #: Messages for one queue, in order, and a route that leads there alone.
        self._arrivals: dict[Queue, tuple[Route, list[Message]]] = {}
        self.acknowledged: defaultdict[Consumer, list[MessageReference]] = defaultdict(list)
        #: Channels that have something to confirm.
        self.confirming: dict[Confirming, None] = {}
        self._messages = 0
        self._bytes = 0

    def publish(self, route: Route, messages: list[Message]) -> int | None:
        """Intake.publish of messages that came just now, but that what goes to one queue alone is handed over together."""
        if len(route.queues) > 1:
            self.hand_over()
            return self._intake.publish(route, messages, messages[-1].sent_at_ms)
        queue = route.queues[0]
        gathered = self._arrivals.get(queue)
        if gathered is None:
            self._arrivals[queue] = route, messages
        else:
            gathered[1].extend(messages)
        return len(messages)

    def charge(self, messages: int, size: int, queues: int) -> None:
        """Counts messages of so many bytes in all, each for so many queues, against the connection's credit."""
        self._messages += messages * queues
        self._bytes += size + messages * _OVERHEAD_BYTES

    def hand_over(self) -> None:
        """What arrived joins its queues, so that nothing overtakes it."""
        arrivals, self._arrivals = self._arrivals, {}
        for route, messages in arrivals.values():
            self._intake.publish(route, messages, messages[-1].sent_at_ms)

    def finish(self) -> None:
        """Everything gathered goes to the broker; confirms and acknowledgements follow."""
        if self._arrivals:
            self.hand_over()
        if self.acknowledged:
            acknowledged, self.acknowledged = self.acknowledged, defaultdict(list)
            for consumer, references in acknowledged.items():
                self._settlement.acknowledge(consumer, references)
                self._settled(consumer)
        if self.confirming:
            confirming, self.confirming = self.confirming, {}
            for channel in confirming:
                channel.confirm()
        if self._messages:
            self._flow.charge(self.producer, self._messages, self._bytes)
            self._messages = self._bytes = 0
            self._flow.top_up(self.producer)
