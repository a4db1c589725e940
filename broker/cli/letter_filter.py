"""The options that say which messages are meant, the same for all commands, and what they come to in a call."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from .output import progress_bar
from .values import property_given

PANEL: Final = "Which messages"


def _time(text: str | int) -> int:
    """``2h`` ago, or a date and time of the reader's zone where it names none."""
    from ..core.settings.units import parse_duration_ms

    if isinstance(text, int):
        return text
    if re.fullmatch(r"\d+(\.\d+)?\s*[a-z]+", text):
        try:
            return time.time_ns() // 1_000_000 - parse_duration_ms(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a duration, such as 2h, nor a time, such as 2026-11-23T09:00") from None


def _option(name: str, help_text: str, **more: Any) -> Any:
    return typer.Option(name, help=help_text, rich_help_panel=PANEL, **more)


Fault = Annotated[str | None, _option("--fault", "Dead of this fault: its number (homing faults), or the beginning of it.")]
ErrorType = Annotated[str | None, _option("--error-type", "Dead of errors of this type, such as ValueError.")]
Reason = Annotated[
    str | None, _option("--reason", "Dead for this reason: delivery_limit, poison, not-retryable, expired, maxlen or rejected.")
]
FromQueue = Annotated[str | None, _option("--from-queue", "Died in this queue.")]
Since = Annotated[int | None, _option("--since", "Came at this time or later: 2h ago, or 2026-11-23T09:00.", parser=_time, metavar="TIME")]
Until = Annotated[int | None, _option("--until", "Came before this time.", parser=_time, metavar="TIME")]
Key = Annotated[str | None, _option("--key", "The property that message-key-property names is this.")]
Ids = Annotated[list[int] | None, _option("--id", "This message. Repeatable.")]
Properties = Annotated[list[str] | None, _option("--property", "This property is so: NAME=TEXT, or NAME:=JSON. Repeatable; looks at each.")]
Where = Annotated[str | None, _option("--where", "A selector holds: \"region = 'eu'\". Looks at each.")]
BodyContains = Annotated[str | None, _option("--body-contains", "The body has this text in it. Looks at each.")]


def given(
    fault: str | None,
    error_type: str | None,
    reason: str | None,
    from_queue: str | None,
    since: int | None,
    until: int | None,
    key: str | None,
    ids: list[int] | None,
    properties: list[str] | None,
    where: str | None,
    body_contains: str | None,
) -> dict[str, Any]:
    """The ``filter`` of a call; empty where nothing was said."""
    said: dict[str, Any] = {
        "fault": fault,
        "error_type": error_type,
        "reason": reason,
        "from_queue": from_queue,
        "since_ms": since,
        "until_ms": until,
        "key": key,
        "message_ids": ids or None,
        "properties": dict(map(property_given, properties)) if properties else None,
        "where": where,
        "body_contains": body_contains,
    }
    return {name: value for name, value in said.items() if value is not None}


async def in_pages(connection: Any, verb: str, **arguments: Any) -> dict[str, int]:
    """Calls the verb again where it left off, until it is at its end; returns ``messages`` and ``looked_at``, added up.

    How far it is is shown on a terminal; Ctrl-C ends it between two steps, and what was done is done.
    """
    after: int | None = 0
    done = {"messages": 0, "looked_at": 0}
    with progress_bar(counted=False) as progress:
        task = progress.add_task(verb, total=None)
        while after is not None:
            answer = await connection.call(verb, after=after, **arguments)
            after = answer["next"]
            done = {name: done[name] + answer[name] for name in done}
            progress.update(task, description=f"{done['messages']:,} of {done['looked_at']:,} looked at")
    return done
