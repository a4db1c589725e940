"""A local transaction: what a session, or an AMQP channel, has sent and acknowledged, held back until it commits as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .consumer import Consumer
from .message import MessageReference

#: What a front end keeps of something sent.
Send = TypeVar("Send")


class Transaction(Generic[Send]):
    """``broken`` is set (code, message, fix) once it can no longer commit; what follows is then not kept."""

    __slots__ = ("acknowledged", "broken", "bytes", "operations", "sends", "started_at_ms", "timed_out")

    def __init__(self, timed_out: Callable[[], None] | None = None) -> None:
        #: When the first operation came; None: none has.
        self.started_at_ms: int | None = None
        #: What is to happen when it has been open too long; None: it is rolled back, and its commit will be refused.
        self.timed_out = timed_out
        self.sends: list[Send] = []
        self.acknowledged: list[tuple[Consumer, list[MessageReference]]] = []
        self.operations = 0
        self.bytes = 0
        self.broken: tuple[str, str, str] | None = None

    def fail(self, code: str, message: str, fix: str) -> None:
        """The first reason stands; what was held is let go."""
        if self.broken is None:
            self.broken = (code, message, fix)
        self.sends.clear()
        self.acknowledged.clear()
        self.operations = 0
        self.bytes = 0

    def excess(self, max_operations: int, max_bytes: int) -> tuple[str, str, str] | None:
        """(code, message, fix) when a limit is passed."""
        if self.operations <= max_operations and self.bytes <= max_bytes:
            return None
        return (
            "transaction-too-large",
            f"a transaction holds at most {max_operations} operations and {max_bytes} bytes",
            "commit more often, or raise limits: max-transaction-operations and max-transaction-bytes",
        )
