"""Producer: whose messages they are, which of them came already, and how many more it may send.

A producer's messages are numbered without gaps; the highest stored number is its *mark*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class CreditSink(Protocol):
    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None: ...


class Bound(Protocol):
    """How much several producers may have sent together without a confirm. Bytes."""

    unconfirmed_bytes: int

    @property
    def room(self) -> int | None: ...

    @property
    def why_full(self) -> str: ...


class Producer:
    """One producer of one connection. ``key`` is its lasting identity: client_id/number."""

    __slots__ = (
        "address",
        "credit_bytes",
        "credit_messages",
        "high_watermark",
        "key",
        "name",
        "number",
        "settled_first",
        "shares",
        "sink",
        "waiting",
    )

    def __init__(self, key: str, number: int, address: str, mark: int, sink: CreditSink, shares: Sequence[Bound] = ()) -> None:
        self.key = key
        #: What people and exports are shown: a client_id is the client's secret.
        self.name = f"{key[:8]}/{number}"
        self.number = number
        self.address = address
        #: The highest number stored for this identity.
        self.high_watermark = mark
        self.sink = sink
        #: What bounds the bytes that are not confirmed.
        self.shares = shares
        #: The first frame after opening fixes where the numbering goes on.
        self.settled_first = False
        self.credit_messages = 0
        self.credit_bytes = 0
        #: Told that it has to wait.
        self.waiting = False
