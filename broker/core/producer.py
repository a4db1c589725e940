"""Producer: whose messages they are, which of them came already, and how many more it may send.

A producer's messages are numbered without gaps; the highest stored number is its *high watermark*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

#: Beyond its credit a producer may send so much: what was on its way when it was told.
BEYOND_MESSAGES: Final = 4000
BEYOND_BYTES: Final = 32 * 1024 * 1024


class CreditSink(Protocol):
    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None: ...


class Bound(Protocol):
    """How much several producers may have sent together without a confirm. Bytes."""

    unconfirmed_bytes: int

    @property
    def room(self) -> int | None: ...

    @property
    def why_full(self) -> str: ...


def limit_in(why: str) -> str:
    """Why producers wait begins with the name of a limit and a colon."""
    return why.partition(":")[0]


class Wait(NamedTuple):
    """Why a producer waits, and since when."""

    why: str
    since_ms: int

    @property
    def limit(self) -> str:
        return limit_in(self.why)


class Producer:
    """One producer of one connection. ``client`` (its id, or the connection's name) and ``number`` are its lasting identity, ``key`` in the
    journal."""

    __slots__ = (
        "address",
        "client",
        "credit_bytes",
        "credit_messages",
        "high_watermark",
        "key",
        "lasting",
        "name",
        "number",
        "passing",
        "settled_first",
        "shares",
        "sink",
        "used_at_ms",
        "waiting",
        "window_bytes",
    )

    def __init__(self, client: str, number: int, address: str, high_watermark: int, sink: CreditSink, shares: Sequence[Bound] = ()) -> None:
        self.client = client
        self.key = f"{client}/{number}"
        #: What people and exports are shown: a client_id is the client's secret.
        self.name = f"{client[:8]}/{number}"
        self.number = number
        self.address = address
        #: The highest number stored for this identity.
        self.high_watermark = high_watermark
        #: When it stored anything last; 0: not since it was opened.
        self.used_at_ms = 0
        self.sink = sink
        #: What bounds the bytes that are not confirmed.
        self.shares = shares
        #: The first frame after opening fixes where the numbering goes on.
        self.settled_first = False
        self.credit_messages = 0
        self.credit_bytes = 0
        #: What ``credit_bytes`` came to when it was granted some last.
        self.window_bytes = 0
        #: Whether what it sent last was durable, and whether some of it was not; neither where it has sent nothing yet.
        self.lasting = self.passing = False
        #: What it was notified of, where it has to wait.
        self.waiting: Wait | None = None
