"""What the broker knows of one connection, whatever protocol it speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .core.amqp.vhost import DEFAULT
from .core.consumer import NOBODY, Client, Consumer, HeldBytes, Library, Sink
from .core.message import MessageReference
from .core.producer import CreditSink, Producer
from .core.redelivery import PolicyMap
from .core.transaction import Transaction
from .shares import Share


class FrontEnd(Sink, CreditSink, Protocol):
    """A protocol's session, as far as the broker talks to it."""

    def pull_empty(self, consumer: Consumer) -> None: ...

    def cancelled(self, consumer: Consumer, code: str, message: str, fix: str) -> None: ...

    def not_held(self, consumer: Consumer, tags: list[int]) -> None: ...

    def end(self, code: str, message: str, fix: str) -> None:
        """Says why and ends the connection; what the broker has not let go of yet is for the caller."""


class Connection:
    __slots__ = (
        "client",
        "client_id",
        "connected_at_ms",
        "consumers",
        "front_end",
        "kept",
        "late_reports",
        "library",
        "name",
        "number",
        "open",
        "peer",
        "policies",
        "producers",
        "retired",
        "returns_at_once",
        "sender",
        "shares",
        "transactions",
        "user",
        "virtual_host",
    )

    def __init__(
        self,
        number: int,
        client_id: str,
        user: str,
        front_end: FrontEnd,
        policies: PolicyMap | None,
        now_ms: int,
        client: Client = NOBODY,
        peer: str = "",
    ) -> None:
        self.number = number
        self.client_id = client_id
        self.client = client
        self.library = Library()
        #: How many failures it reported of what it had acknowledged.
        self.late_reports = 0
        self.user = user
        #: Where it came from: address and port.
        self.peer = peer
        self.connected_at_ms = now_ms
        #: AMQP's; everybody else is in ``/`` and names the others in full.
        self.virtual_host = DEFAULT
        #: AMQP's: see Consumer.
        self.returns_at_once = False
        self.front_end = front_end
        self.policies = policies
        #: Shown to people: client ids are the clients' secret, numbers are not.
        self.name = f"c{number}"
        self.open = True
        #: What it has counts among these: its user's, and those of the address it came from.
        self.shares: Sequence[Share] = ()
        self.producers: dict[int, Producer] = {}
        #: One for all that comes, where messages are not numbered (AMQP).
        self.sender: Producer | None = None
        self.consumers: dict[int, Consumer] = {}
        #: Consumers that were closed while their session (or AMQP channel) still held messages of theirs, and those of single gets.
        self.retired: dict[int, Consumer] = {}
        #: What these hold.
        self.kept = HeldBytes()
        #: Of sessions, or AMQP's channels.
        self.transactions: dict[int, Transaction[Any]] = {}

    @property
    def bounds(self) -> list[Share]:
        """Those that bound the bytes that are not confirmed."""
        return [each for each in self.shares if each.room is not None]

    def retire(self, consumer: Consumer) -> None:
        """It is closed, and something that it was given is kept."""
        self.retired[consumer.number] = consumer
        consumer.retire()

    def all_consumers(self) -> list[Consumer]:
        """Closed ones that still hold messages included."""
        return [*self.consumers.values(), *self.retired.values()]

    def consumers_of(self, session: int) -> list[Consumer]:
        """The session's, closed ones that still hold messages included."""
        return [consumer for consumer in self.all_consumers() if consumer.session == session]

    @property
    def has_something_open(self) -> bool:
        return bool(self.producers or self.consumers or self.retired or self.transactions or self.sender)

    @property
    def held_bytes(self) -> int:
        """What the messages take in memory that were handed out on it and are not settled."""
        return self.kept.bytes + sum([consumer.held_bytes for consumer in self.consumers.values()])

    def held(self) -> list[MessageReference]:
        return [reference for consumer in self.all_consumers() for reference in consumer.unsettled.values()]
