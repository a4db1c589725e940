"""An AMQP connection as its channels know it: who is asked, who is notified, and what is kept for all of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from ...broker import Broker
from ...connection import Connection
from ...core.amqp.search import Search
from ...core.consumer import Consumer
from ...core.memory import Cache, Kind, Owner
from ...core.message import MessageReference, Properties
from ...core.producer import Producer
from ...core.routing import Route
from ...shares import Share
from ..exceptions import Exceptions
from ..output import PatientOutput
from .batch import Gathered
from .codec import FRAME_OVERHEAD, HEADER_BYTES, AmqpError, PublishEvent, PublishRun
from .codec_methods import DIALECTS, PROTOCOL_HEADER
from .login import introduced
from .message_mapping import View
from .options import AmqpOptions

log = logging.getLogger("homing")


class Pattern(NamedTuple):
    """All that messages with the same exchange, routing key and properties have in common."""

    route: Route
    address: str
    properties: Properties | None
    properties_bytes: int
    #: See Message.extra; 0 where an earlier message has the same properties, and was charged for them.
    properties_extra: int
    priority: int
    durable: bool
    ttl_ms: int | None
    #: Some queue keeps them, and some does not.
    lasting: bool
    passing: bool


class Subscriber:
    """A consumer of a channel's, as the broker speaks to it."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def deliver(self, references: list[MessageReference]) -> None:
        raise NotImplementedError

    def settled(self) -> None:
        """Some of its deliveries were acknowledged."""
        raise NotImplementedError

    def cancelled(self) -> None:
        """The broker ended it: the queue is gone."""
        raise NotImplementedError


class AmqpConnection:
    """The session (session.py) is one. ``connection`` and ``producer`` are there from connection.open on."""

    connection: Connection
    producer: Producer
    _output: PatientOutput

    def __init__(self, broker: Broker, options: AmqpOptions) -> None:
        self.broker = broker
        self.options = options
        self.frame_max = options.frame_max
        self.dialect = DIALECTS[PROTOCOL_HEADER]
        self._said_left_out = False
        self.view = self.view_within(options.frame_max)
        self.login = ""
        self.exceptions = Exceptions()
        self.notifies_cancels = False
        #: What its channels and queues count among.
        self.shares: Sequence[Share] = ()
        #: By the number of the broker's consumer.
        self.subscribers: dict[int, Subscriber] = {}
        #: (exchange, routing key, properties) -> what such publishes come to.
        self.patterns: Cache[tuple[str, str, bytes], Pattern] = Cache(broker.memory, options.max_cache_bytes)
        #: What is published and still looks for its way.
        self.search: tuple[tuple[str, str, bytes], Search] | None = None
        #: What its channels hold of failures that were reported is charged to this.
        self.reports = Owner(broker.memory, Kind.CONNECTIONS)
        self.gathered = Gathered(broker, self.settled)
        self._consumers = 0

    @property
    def shown(self) -> str:
        """Which connection this is, for the log."""
        opened: Connection | None = getattr(self, "connection", None)
        if opened is None:
            return f"connection from {self._output.endpoint}, user {self.login or 'not logged in'}"
        return f"connection {opened.name} ({self._output.endpoint}), user {self.login}, vhost {opened.virtual_host}"

    def view_within(self, frame_max: int) -> View:
        """How messages are shown in frames of that size."""
        return View(frame_max - FRAME_OVERHEAD - HEADER_BYTES, self.options.goes_on, self._left_out)

    def _left_out(self, reference: MessageReference) -> None:
        """Something that we add to its headers did not fit into the client's frames: the log says so once."""
        if self._said_left_out:
            return
        self._said_left_out = True
        log.warning(
            "death-headers-left-out: %s takes frames of %d bytes, and message %d of queue %s would pass that with all that is told of its"
            " deaths: the oldest entries of x-death are left out, of others, too",
            self.shown,
            self.frame_max,
            reference.message.message_id,
            reference.queue.name,
        )

    def next_consumer(self) -> int:
        self._consumers += 1
        return self._consumers

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def defer(self) -> None:
        """Nothing further is acted on until ``go_on``: an answer waits for the disk, and what was asked later comes after it."""
        raise NotImplementedError

    def go_on(self) -> None:
        raise NotImplementedError

    @property
    def postponed(self) -> bool:
        """Nothing further is acted on for now."""
        raise NotImplementedError

    def postpone(self, event: PublishEvent | PublishRun) -> None:
        """There is no room for it in this turn (throttle.py): it goes on in a later one, and so does all that comes behind it."""
        raise NotImplementedError

    def introduced(self, said: dict[str, str]) -> None:
        """What the program says of itself in a report, by name."""
        opened = self.connection
        opened.client, opened.library = introduced(opened.client, opened.library, said)

    def late(self) -> bool:
        """Whether this turn has been long enough."""
        raise NotImplementedError

    def wait_turn(self, events: Sequence[PublishEvent | PublishRun]) -> None:
        """These, which a read may hold very many of, are for another turn of the loop."""
        raise NotImplementedError

    def gave_back(self) -> None:
        """Deliveries were refused: until that is on disk they stand nowhere where they could be seen."""
        raise NotImplementedError

    def settle_first(self) -> None:
        """Nothing further is acted on before what of it ends in steps has ended."""
        raise NotImplementedError

    def settled(self, consumer: Consumer) -> None:
        """Some of the consumer's deliveries were acknowledged."""
        raise NotImplementedError

    def close_channel(self, channel: int, error: AmqpError) -> None:
        """The broker closes it, and says why."""
        raise NotImplementedError

    def forget_content(self, channel: int) -> None:
        """What is half here of a message that comes on this channel is let go."""
        raise NotImplementedError

    def broken(self, error: Exception) -> None:
        """A fault of ours: this connection ends, the others go on."""
        raise NotImplementedError

    # -- what the broker says to its consumers -----------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._output.writable

    def deliver(self, consumer: Consumer, references: list[MessageReference]) -> None:
        subscriber = self.subscribers.get(consumer.number)
        if subscriber is not None:
            subscriber.deliver(references)

    def pull_empty(self, consumer: Consumer) -> None:
        """Nobody pulls here: a get is answered at once."""

    def cancelled(self, consumer: Consumer, code: str, message: str, fix: str) -> None:
        subscriber = self.subscribers.pop(consumer.number, None)
        if subscriber is not None:
            subscriber.cancelled()

    def not_held(self, consumer: Consumer, tags: list[int]) -> None:
        """What timed out is with others again, and there is room for more; a late acknowledgement of it is passed over."""
        self.settled(consumer)
