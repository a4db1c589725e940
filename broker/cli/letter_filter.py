"""The options that say which messages are meant, the same for all commands, and what they come to in a call."""

from __future__ import annotations

import functools
import inspect
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from .output import note, progress_bar
from .values import property_given

_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


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


def _option(kind: Any, name: str, help_text: str, **more: Any) -> Any:
    return Annotated[kind | None, typer.Option(name, help=help_text, rich_help_panel="Which messages", **more)]


#: The ``filter`` of a call; empty where nothing was said.
Filter = dict[str, Any]

#: Key of the filter -> its option.
OPTIONS: Final[dict[str, Any]] = {
    "fault": _option(str, "--fault", "Failed last of this fault: its number (homing faults), or the beginning of it."),
    "error_type": _option(str, "--error-type", "Failed last with an error of this type, such as ValueError."),
    "reason": _option(str, "--reason", "Dead for this reason: delivery_limit, poison, not-retryable, expired, maxlen or rejected."),
    "from_queue": _option(str, "--from-queue", "Died in this queue."),
    "since_ms": _option(int, "--since", "Came at this time or later: 2h ago, or 2026-11-23T09:00.", parser=_time, metavar="TIME"),
    "until_ms": _option(int, "--until", "Came before this time.", parser=_time, metavar="TIME"),
    "key": _option(str, "--key", "The property that message-key-property names is this."),
    "message_ids": _option(list[int], "--id", "This message. Repeatable."),
    "properties": _option(list[str], "--property", "This property is so: NAME=TEXT, or NAME:=JSON. Repeatable; looks at each."),
    "where": _option(str, "--where", "A selector holds: \"region = 'eu'\". Looks at each."),
    "body_contains": _option(str, "--body-contains", "The body has this text in it. Looks at each."),
}


#: Of what is not dead.
OF_WAITING: Final = {name: option for name, option in OPTIONS.items() if name not in ("reason", "from_queue")}


def filtered(command: Callable[..., None], options: dict[str, Any] = OPTIONS) -> Callable[..., None]:
    """The command with ``options`` in the place of its parameter ``wanted``, which it is given as one ``Filter``."""
    signature = inspect.signature(command, eval_str=True)
    instead = [inspect.Parameter(name, _POSITIONAL, default=None, annotation=option) for name, option in options.items()]
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += instead if each.name == "wanted" else [each]

    @functools.wraps(command)
    def with_options(**said: Any) -> None:
        wanted = {name: value for name in options if (value := said.pop(name)) not in (None, [])}
        if "properties" in wanted:
            wanted["properties"] = dict(map(property_given, wanted["properties"]))
        command(wanted=wanted, **said)

    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options


@contextmanager
def shown_when_stopped(said: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C within it leaves behind how far it was."""
    from asyncio import CancelledError

    try:
        yield
    except CancelledError:
        note(f"stopped after {said()}")
        raise


async def in_pages(connection: Any, verb: str, **arguments: Any) -> dict[str, int]:
    """Calls the verb again where it left off, until it is at its end; returns ``messages`` and ``looked_at``, added up.

    How far it is is shown on a terminal; Ctrl-C ends it between two steps, what was done is done, and how much that is is shown.
    """
    after: Any = None
    done = {"messages": 0, "looked_at": 0}

    def said() -> str:
        return f"{done['messages']:,} of {done['looked_at']:,} looked at"

    with progress_bar(counted=False) as progress, shown_when_stopped(said):
        task = progress.add_task(verb, total=None)
        while True:
            answer = await connection.call(verb, after=after, **arguments)
            after = answer["next"]
            done = {name: done[name] + answer[name] for name in done}
            progress.update(task, description=said())
            if after is None:
                return done
