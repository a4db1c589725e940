"""Operations: what a program does with messages that failed, as the command line does. Each is one call, or several of them."""

from __future__ import annotations

from typing import Any

from .errors import CallError, UsageError
from .patch import Patch


class Operations:
    """The base of Connection."""

    async def call(self, verb: str, **arguments: Any) -> Any:
        raise NotImplementedError

    async def retry(
        self, queue: str, *, now: bool = False, at_ms: int | None = None, hold: bool = False, release: bool = False, **wanted: Any
    ) -> int:
        """Gives messages of a queue that failed and wait to be tried again another time, and returns how many: ``now``, ``at_ms`` (since
        1970 UTC), ``hold``: not before ``release``, which lets go what is on hold.

        ``wanted`` is the filter: ``fault="3-9f86d081"``, ``where="region = 'eu'"``; without it all are meant.
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

    async def edit(
        self,
        message_id: int,
        *,
        queue: str | None = None,
        body: bytes | None = None,
        patch: list[Any] | dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        without_properties: list[str] | None = None,
        to: str | None = None,
        keep_original: bool = False,
        signed: bool = False,
    ) -> int:
        """Sends a durable message again with another ``body``, or the body with a ``patch`` applied (a list: JSON Patch; a map: JSON Merge
        Patch), with these ``properties`` or without others; returns the number of what takes its place, counts at 0.

        It goes back to the queue that it came from first, or ``to`` another one; the original ends as edited, unless ``keep_original``.
        ``queue``: where it is, needed where that is several. ``signed``: even if it carries one of ``signature-properties``.
        Raises UsageError where nothing is changed, for what is no patch and where it does not fit, CallError when the broker refuses it.
        """
        if body is None and patch is None and not properties and not without_properties:
            raise UsageError("invalid-argument", "nothing is changed", "give a body, a patch, properties or without_properties")
        if body is not None and patch is not None:
            raise UsageError("invalid-argument", "both a body and a patch are given", "give one of them")
        change = None if patch is None else Patch(patch)
        if queue is None:
            queue = await self._only_queue(message_id)
        if change is not None:
            page = await self.call("peek-dead-letters", queue=queue, filter={"message_ids": [message_id]})
            if not page["messages"]:
                raise CallError("no-such-message", f"message {message_id} is not in queue {queue}", "homing history shows where it went")
            body = change.applied(page["messages"][0]["body"])
        wanted = {"message_id": message_id, "body": body, "set": properties or {}, "unset": without_properties or []}
        done = await self.call("edit", queue=queue, edits=[wanted], to=to, keep_original=keep_original, signed=signed)
        (answer,) = done["edits"]
        if answer["edited"] is None:
            raise CallError(answer["code"], answer["message"], answer["fix"])
        return int(answer["edited"])

    async def _only_queue(self, message_id: int) -> str:
        """Raises CallError where the message is in no queue, or in several."""
        found = (await self.call("history", message_id=message_id))["references"]
        if len(found) != 1:
            where = ", ".join(each["queue"] for each in found) or "no queue"
            code, fix = ("invalid-argument", "name one of them") if found else ("no-such-message", "homing history shows where it went")
            raise CallError(code, f"message {message_id} is in {where}", fix)
        return str(found[0]["queue"])
