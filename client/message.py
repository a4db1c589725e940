"""A message as it was received, and how it is settled."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from enum import IntEnum
from time import time_ns
from typing import Any, Final, Protocol

from .failure import failure_map
from .validation import RESERVED_PREFIXES


class State(IntEnum):
    """What this client knows of a message. Only HELD ones can be settled."""

    UNREAD = 0
    HELD = 1
    ACKNOWLEDGED = 2
    RETURNED = 3  # failed, rolled back, recovered, or its consumer was closed
    LOST = 4  # the connection it came on is gone: the broker has it again


#: As names of this module: looking a member up in its enumeration costs as much as everything else in the busiest loops.
UNREAD: Final = State.UNREAD
HELD: Final = State.HELD
ACKNOWLEDGED: Final = State.ACKNOWLEDGED


class Done:
    """An awaitable that has nothing to wait for."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE: Final = Done()


class Settles(Protocol):
    """What settles a message: its consumer's Settlement."""

    def acknowledge_message(self, message: Message, confirm: bool) -> Awaitable[None]: ...

    def fail(self, message: Message, failure: dict[str, Any]) -> None: ...

    def release(self, message: Message) -> None: ...

    def touch(self, message: Message) -> None: ...


class Message:
    """One delivery of a message. Its methods act when they are called, so that a plain function may use them without ``await``;
    only ``acknowledge(confirm=True)`` has something to wait for.

    ``body`` bytes; ``properties`` str to str, int, float, bool, bytes or None; ``delivery_count`` is 1 the first time;
    ``redelivered`` is true from the second on; ``sent_at_ms`` and ``expires_at_ms`` are milliseconds since 1970 UTC, 0 when unknown
    or never.
    """

    __slots__ = (
        "_scope",
        "_settlement",
        "_state",
        "_tag",
        "address",
        "body",
        "delivery_count",
        "durable",
        "expires_at_ms",
        "message_id",
        "priority",
        "properties",
        "sent_at_ms",
    )

    def __init__(
        self,
        settlement: Settles,
        tag: int,
        message_id: int,
        delivery_count: int,
        address: str,
        body: bytes,
        properties: dict[str, Any] | None = None,
        priority: int = 4,
        sent_at_ms: int = 0,
        expires_at_ms: int = 0,
        durable: bool = True,
    ) -> None:
        self._settlement = settlement
        self._tag = tag
        self._state = UNREAD
        self._scope: object | None = None  # the listener's worker that handles it
        self.message_id = message_id
        self.delivery_count = delivery_count
        self.address = address
        self.body = body
        self.properties = {} if properties is None else properties
        self.priority = priority
        self.sent_at_ms = sent_at_ms
        self.expires_at_ms = expires_at_ms
        self.durable = durable

    def __repr__(self) -> str:
        return f"<Message {self.message_id} of {self.address!r}, delivery {self.delivery_count}, {self._state.name.lower()}>"

    @property
    def redelivered(self) -> bool:
        return self.delivery_count >= 2

    def copy_for_send(self) -> dict[str, Any]:
        """What ``producer.send(**copy)`` takes to send it again, to be changed at will: body, properties, priority, durable, and
        ``ttl_ms``, what is left of its time where it expires. The broker's own properties are left out: no program may send them.
        """
        copy: dict[str, Any] = {
            "body": self.body,
            "properties": {name: value for name, value in self.properties.items() if not name.startswith(RESERVED_PREFIXES)},
            "priority": min(self.priority, 9),
            "durable": self.durable,
        }
        if self.expires_at_ms:
            copy["ttl_ms"] = max(1, self.expires_at_ms - time_ns() // 1_000_000)
        return copy

    def acknowledge(self, confirm: bool = False) -> Awaitable[None]:
        """Settle it. INDIVIDUAL: this one. CLIENT: everything delivered to the session (a worker's own with ``concurrency``).

        AUTO, DUPS_OK and TRANSACTED acknowledge by themselves; there it does nothing unless ``confirm`` is asked for. With
        ``confirm`` it returns once the broker has it on disk. Raises SettleError ``not-held`` when the message went back meanwhile.
        """
        return self._settlement.acknowledge_message(self, confirm)

    def nack(
        self,
        reason: str | None = None,
        error: BaseException | str | None = None,
        delay_ms: int | None = None,
        until_ms: int | None = None,
        retryable: bool = True,
        count: bool = True,
        exit_status: int | None = None,
    ) -> Awaitable[None]:
        """Fail this one message. It comes back after the delay that policy or settings give it, or ``delay_ms`` from now, or at
        ``until_ms`` (since 1970 UTC). ``retryable=False`` dead-letters it now; ``count=False`` returns it without counting a failure.
        ``exit_status``: of the program that was run for it; without, that of an ``error`` like subprocess.CalledProcessError.

        Raises SettleError ``not-held`` when it was settled or went back already (AUTO acknowledges before ``receive()`` returns).
        """
        self._settlement.fail(self, failure_map("nack", reason, error, delay_ms, until_ms, retryable, count, exit_status))
        return DONE

    def release(self) -> Awaitable[None]:
        """Give it back uncounted, for others to take (acknowledgement type 5, unmatched)."""
        self._settlement.release(self)
        return DONE

    def touch(self) -> Awaitable[None]:
        """Start the broker's consumer timeout (30 min) anew for this message."""
        self._settlement.touch(self)
        return DONE
