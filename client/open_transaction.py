"""What producers and consumers of a TRANSACTED session know of its open transaction."""

from __future__ import annotations

import asyncio

from .errors import TransactionError


class OpenTransaction:
    def __init__(self, number: int) -> None:
        self.number = number
        self.sends = 0  # messages written into it
        self.holding = False  # a COMMIT is out: what is sent now belongs to the next transaction and waits
        self.broken: TransactionError | None = None  # lost with a connection; raised by the next send, commit or rollback
        self.committing: asyncio.Task[None] | None = None

    async def quiet(self) -> None:
        """Wait until no COMMIT is out."""
        if self.committing is not None and not self.committing.done():
            await asyncio.wait([self.committing])
