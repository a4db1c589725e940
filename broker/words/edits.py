"""An edit of messages: what is to be different of each, and that as diff shows it."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from ..answers.failures import Message
from ..answers.parts import Properties
from .safe_text import body_text


class Change(NamedTuple):
    """What is to be different of each. ``patch``: a Patch of client.patch, or None."""

    set: Properties
    unset: list[str]
    patch: Any
    body: bytes | None

    def body_of(self, message: Message) -> bytes:
        """Raises UsageError where the patch does not fit."""
        before: bytes = message["body"]
        if self.patch is not None:
            changed: bytes = self.patch.applied(before)
            return changed
        return before if self.body is None else self.body

    def of(self, message: Message) -> Properties:
        """As the call takes it."""
        body = self.body_of(message)
        changed = {"body": body} if body != message["body"] else {}
        return {"message_id": message["message_id"], "set": self.set, "unset": self.unset, **changed}

    def difference(self, message: Message) -> list[str]:
        """Line by line, as diff shows it, without what stays but for some lines around; or that the patch does not fit."""
        from homing.client import UsageError

        try:
            body = self.body_of(message)
        except UsageError as error:
            return [f"({error.message}; {error.fix})"]
        properties = message["properties"]
        after = {name: value for name, value in {**properties, **self.set}.items() if name in self.set or name not in self.unset}
        stays = {name for name in properties.keys() & after.keys() if _same(properties[name], after[name])}
        lines = [f"-{name}: {value}" for name, value in properties.items() if name not in stays]
        lines += [f"+{name}: {value}" for name, value in after.items() if name not in stays]
        bodies = (_lines(message["body"]), _lines(body))
        lines += list(difflib.unified_diff(*bodies, lineterm=""))[2:]
        if bodies[0] == bodies[1] and body != message["body"]:
            lines.append("(the body differs in what is not shown: in how JSON is written, or in what is long or binary)")
        return lines


def _same(before: object, after: object) -> bool:
    """Of two properties: 1 is neither true nor 1.0."""
    return type(before) is type(after) and before == after


def _lines(body: bytes) -> list[str]:
    """JSON one value a line, so that what differs can be seen; as it is what would lose something by that."""
    from homing.client.patch import read, written

    try:
        return written(read(body), indent=2).splitlines()
    except ValueError:
        return body_text(body).splitlines()
