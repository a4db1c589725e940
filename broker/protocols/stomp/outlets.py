"""Where what one STOMP connection sends goes: to an address, or through an exchange."""

from __future__ import annotations

from itertools import islice, takewhile

from ...broker import Broker
from ...connection import Connection
from ...core.amqp.exchange import Compared, LateHeaders
from ...core.amqp.origin import packed, way_of
from ...core.amqp.search import Search
from ...core.message import AMQP_ORIGIN, Message, Properties
from ...core.producer import Producer
from ...core.routing import Route
from ...errors import Refused
from ...properties import measured
from .message_mapping import Sent


class Outlet:
    """``address``: what its messages name; ``producer``: whose credit they take."""

    def __init__(self, broker: Broker, connection: Connection, producer: Producer, address: str) -> None:
        self._broker = broker
        self._connection = connection
        self.producer = producer
        self.address = address

    def take_in(self, messages: list[Message], now_ms: int) -> tuple[int, Refused | None]:
        """See Intake.take_in."""
        raise NotImplementedError

    def told(self, sent: Sent) -> Sent:
        """With what its messages say of their way."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing goes there for now."""
        raise NotImplementedError


class ToAddress(Outlet):
    def take_in(self, messages: list[Message], now_ms: int) -> tuple[int, Refused | None]:
        return self._broker.intake.take_in(self.producer, messages, now_ms)

    def told(self, sent: Sent) -> Sent:
        return sent

    def close(self) -> None:
        self._broker.producers.close(self._connection, self.producer.number)


class ToExchange(Outlet):
    """``exchange`` and ``key`` are names of the connection's virtual host. Raises Refused where it may not be."""

    def __init__(self, broker: Broker, connection: Connection, producer: Producer, address: str, exchange: str, key: str) -> None:
        super().__init__(broker, connection, producer, address)
        self._exchange, self._key = exchange, key
        #: It is long, and goes on.
        self._search: Search | None = None
        self._route(None)

    def take_in(self, messages: list[Message], now_ms: int) -> tuple[int, Refused | None]:
        """What is for no queue is taken in, and gone."""
        stored = 0
        while stored < len(messages):
            properties = messages[stored].properties
            alike = [*takewhile(lambda each: each.properties is properties, islice(messages, stored, None))]  # noqa: B023 (used at once)
            try:
                route = self._route(properties)
            except Refused as refusal:
                return stored, refusal
            taken, refused = (0, None) if route is None else self._along(route, alike, now_ms)
            stored += taken
            if taken < len(alike):
                return stored, refused
        return stored, None

    def told(self, sent: Sent) -> Sent:
        """AMQP's clients see exchange and key."""
        kept = {**(sent.properties or {}), AMQP_ORIGIN: packed(self._exchange, self._key, (), b"")}
        size, extra = measured(kept)
        return sent._replace(properties=kept, properties_bytes=size, properties_extra=extra)

    def close(self) -> None:
        """Its producer is that of all exchanges."""

    def _route(self, properties: Properties | None) -> Route | None:
        """None: it is to be looked for in another turn, too. Raises Refused."""
        if self._search is None:
            headers = LateHeaders(lambda: _compared(properties))
            found = self._broker.virtual_hosts.route(self._connection, self._exchange, self._key, headers)
            if isinstance(found, Route):
                return found
            self._search = found
        route = self._broker.throttle.seek(self._search)
        if route is not None:
            self._search = None
        return route

    def _along(self, route: Route, messages: list[Message], now_ms: int) -> tuple[int, Refused | None]:
        """How many of them there is room for in this turn, or why the next one was refused."""
        intake, throttle, producer = self._broker.intake, self._broker.throttle, self.producer
        if not route.queues:
            return len(messages), None
        if not [each for each in messages if each.delay_ms or each.duplicate_id]:
            stored = intake.publish(route, messages[: throttle.room_for(route)], now_ms)
            if stored is not None:
                intake.sent_to(producer, messages[0], route.queues)
                return stored, None
        for number, message in enumerate(messages):
            if not throttle.room_for(route):
                return number, None
            intake.sent_to(producer, message, route.queues)
            if not self._broker.duplicate_ids.known(message) and not intake.offer(producer, route.queues, message):
                what = f"a queue that exchange {self._exchange} leads to under {self._key[:80]!r} is full"
                return number, Refused("queue-full", what, "send again later, raise max-length, or choose another overflow")
        return len(messages), None


def _compared(properties: Properties | None) -> Compared:
    """As a headers exchange compares texts."""
    return {name: value.encode() for name, value in (properties or {}).items() if isinstance(value, str)}


def route_at_once(broker: Broker, connection: Connection, message: Message) -> Route:
    """Of what was told to go through an exchange. Raises Refused."""
    way = way_of(message)
    found = broker.virtual_hosts.route(connection, way.exchange, way.keys[0], LateHeaders(lambda: _compared(message.properties)))
    while not isinstance(found, Route):
        found = broker.throttle.seek(found) or found
    return found
