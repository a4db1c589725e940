"""Operations: what a program does with messages that failed, as the command line does. Each is one call, or several of them."""

from __future__ import annotations

from typing import Any

from .errors import UsageError


class Operations:
    """The base of Connection."""

    async def call(self, verb: str, **arguments: Any) -> Any:
        raise NotImplementedError

    async def retry(
        self, queue: str, *, now: bool = False, at_ms: int | None = None, hold: bool = False, release: bool = False, **wanted: Any
    ) -> int:
        """Gives messages of a queue that failed and wait to be tried again another time, and returns how many: ``now``, ``at_ms`` (since
        1970 UTC), ``hold``: not before ``release``, which lets go what is on hold.

        ``wanted`` is the filter: ``fault="2-9f86d081"``, ``where="region = 'eu'"``; without it all are meant.
        Raises UsageError unless one of the four is given, CallError when the broker refuses it.
        """
        ways = {"now": now or None, "at_ms": at_ms, "hold": hold or None, "release": release or None}
        given = {name: value for name, value in ways.items() if value is not None}
        if len(given) != 1:
            raise UsageError("invalid-argument", f"{len(given)} of now, at_ms, hold and release are given", "give one of them")
        number = 0
        after: Any = None
        while True:
            done = await self.call("retry", queue=queue, filter=wanted, after=after, **given)
            number += int(done["messages"])
            if (after := done["next"]) is None:
                return number
