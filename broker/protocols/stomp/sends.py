"""What one STOMP connection sends: what comes together for one address is handed over together, and its receipts follow the disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ...broker import Broker
from ...connection import Connection
from ...core.amqp.vhost import prefix_of
from ...core.message import Message
from ...errors import Refused
from .codec import receipt_frames
from .outlets import Outlet, ToAddress, ToExchange

#: Where one connection has sent to and need not ask for again.
_MOST_OUTLETS: Final = 100
#: What a message costs a producer's credit beyond its body and properties.
_OVERHEAD_BYTES: Final = 400


class Sends:
    """``write``: to the client."""

    def __init__(self, broker: Broker, connection: Connection, write: Callable[[bytes], None]) -> None:
        self._broker = broker
        self._flow = broker.flow
        self._connection = connection
        self._write = write
        #: By exchange and key; an address is none's key.
        self._outlets: OrderedDict[tuple[str, str], Outlet] = OrderedDict()
        self._opened = 0
        #: To one place, in order, each with the receipt that was asked for, as it is written; empty: none was.
        self._gathered: list[Message] = []
        self._receipts: list[bytes] = []
        self._to: Outlet | None = None

    def to_address(self, address: str, is_topic: bool) -> Outlet:
        """Raises Refused."""
        outlet = self._known(("", address))
        if outlet is None:
            self._opened += 1
            producer = self._broker.producers.open(self._connection, self._opened, address)
            if is_topic:
                self._broker.resources.make_topic(address)
            outlet = self._keep(("", address), ToAddress(self._broker, self._connection, producer, address))
            self._flow.open(producer)
        return outlet

    def to_exchange(self, exchange: str, key: str) -> Outlet:
        """Raises Refused."""
        outlet = self._known((exchange, key))
        if outlet is None:
            sender = self._connection.sender or self._broker.producers.open_sender(self._connection)
            address = prefix_of(self._connection.virtual_host) + exchange
            outlet = self._keep((exchange, key), ToExchange(self._broker, self._connection, sender, address, exchange, key))
        return outlet

    def _known(self, place: tuple[str, str]) -> Outlet | None:
        outlet = self._outlets.get(place)
        if outlet is not None:
            self._outlets.move_to_end(place)
        return outlet

    def _keep(self, place: tuple[str, str], outlet: Outlet) -> Outlet:
        self._outlets[place] = outlet
        if len(self._outlets) > _MOST_OUTLETS:
            _, oldest = self._outlets.popitem(last=False)
            oldest.close()
        return outlet

    def add(self, outlet: Outlet, messages: list[Message], receipts: list[bytes]) -> None:
        """Nothing for another place may be gathered. There may be fewer receipts: these are of the last."""
        self._to = outlet
        self._gathered += messages
        self._receipts += [*[b""] * (len(messages) - len(receipts)), *receipts]

    def is_for_another(self, outlet: Outlet) -> bool:
        """What is gathered is."""
        return bool(self._gathered) and self._to is not outlet

    def store(self) -> tuple[Refused, bytes] | None:
        """Hands over what was gathered, as far as there is room for it in this turn (``left``). Returns why one of it was refused, with its
        receipt: what came behind it is forgotten, as the connection ends.
        """
        messages, receipts, outlet = self._gathered, self._receipts, self._to
        if outlet is None or not messages:
            return None
        stored, refusal = outlet.take_in(messages, self._broker.now_ms())
        self._gathered, self._receipts = messages[stored:], receipts[stored:]
        if stored:
            size = sum([message.size for message in messages[:stored]]) + stored * _OVERHEAD_BYTES
            self._flow.charge(outlet.producer, stored, size)
            if told := [receipt for receipt in receipts[:stored] if receipt]:
                self._broker.journal.when_stored(lambda: self._write(receipt_frames(told)))
            self._flow.top_up(outlet.producer)
        if refusal is None:
            return None
        refused = self._receipts[0]
        self._gathered, self._receipts = [], []
        return refusal, refused

    @property
    def left(self) -> bool:
        """Something is for a later turn."""
        return bool(self._gathered)
