"""What sessions are made of, where somebody looks on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .consumer import Consumer
from .link import Link
from .listener import Listener
from .options import ConsumerOptions, ProducerOptions
from .outbox import Outbox
from .producer import Producer
from .settlement import SessionSettlement, Settlement
from .subscription import Subscription
from .transaction import Transaction


class Parts(NamedTuple):
    """How each is made: the classes themselves, unless ``connect`` was given something that puts others in their places."""

    producer: Callable[[Outbox, ProducerOptions], Producer] = Producer
    consumer: Callable[[Subscription, SessionSettlement, Transaction | None, list[Listener]], Consumer] = Consumer
    settlement: Callable[[Link, int, ConsumerOptions, SessionSettlement], Settlement] = Settlement


class Tracing(Protocol):
    """What ``connect(tracing=…)`` takes: see ``homing.client.otel``."""

    def parts(self, host: str, port: int) -> Parts:
        """For the sessions of a connection to this place."""
