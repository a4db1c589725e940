"""What one STOMP connection sends: what comes together for one address is handed over together, and its receipts follow the disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ...broker import Broker
from ...connection import Connection
from ...core.message import Message
from ...core.producer import Producer
from ...errors import Refused
from .codec import receipt_frames

#: Addresses that one connection has sent to and need not ask for again.
_MOST_PRODUCERS: Final = 100
#: What a message costs a producer's credit beyond its body and properties.
_OVERHEAD_BYTES: Final = 400


class Sends:
    """``write``: to the client."""

    def __init__(self, broker: Broker, connection: Connection, write: Callable[[bytes], None]) -> None:
        self._broker = broker
        self._intake, self._flow = broker.intake, broker.flow
        self._connection = connection
        self._write = write
        self._producers: OrderedDict[str, Producer] = OrderedDict()
        self._opened = 0
        #: For one address, in order, each with the receipt that was asked for, as it is written; empty: none was.
        self._gathered: list[Message] = []
        self._receipts: list[bytes] = []
        self._to: Producer | None = None

    def producer(self, address: str, is_topic: bool) -> Producer:
        """Who sends to that address. Raises Refused."""
        producer = self._producers.get(address)
        if producer is not None:
            self._producers.move_to_end(address)
            return producer
        self._opened += 1
        producer = self._broker.open_producer(self._connection, self._opened, address)
        if is_topic:
            self._broker.make_topic(self._connection, address)
        self._producers[address] = producer
        self._flow.open(producer)
        if len(self._producers) > _MOST_PRODUCERS:
            oldest = next(each for each in self._producers if each != address)
            self._broker.close_producer(self._connection, self._producers.pop(oldest).number)
        return producer

    def add(self, producer: Producer, messages: list[Message], receipts: list[bytes]) -> None:
        """Nothing for another address may be gathered. There may be fewer receipts: these are of the last."""
        self._to = producer
        self._gathered += messages
        self._receipts += [*[b""] * (len(messages) - len(receipts)), *receipts]

    def is_for_another(self, producer: Producer) -> bool:
        """What is gathered is."""
        return bool(self._gathered) and self._to is not producer

    def store(self) -> tuple[Refused, bytes] | None:
        """Hands over what was gathered, as far as there is room for it in this turn (``left``). Returns why one of it was refused, with its
        receipt: what came behind it is forgotten, as the connection ends.
        """
        messages, receipts, producer = self._gathered, self._receipts, self._to
        if producer is None or not messages:
            return None
        stored, refusal = self._intake.take_in(producer, messages, self._broker.now_ms())
        self._gathered, self._receipts = messages[stored:], receipts[stored:]
        if stored:
            size = sum([message.size for message in messages[:stored]]) + stored * _OVERHEAD_BYTES
            self._flow.charge(producer, stored, size)
            if told := [receipt for receipt in receipts[:stored] if receipt]:
                self._broker.journal.when_stored(lambda: self._write(receipt_frames(told)))
            self._flow.top_up(producer)
        if refusal is None:
            return None
        refused = self._receipts[0]
        self._gathered, self._receipts = [], []
        return refusal, refused

    @property
    def left(self) -> bool:
        """Something is for a later turn."""
        return bool(self._gathered)
