"""The options that say which messages are meant, the same for all commands, and what they come to in a call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import typer

from ..answers.parts import Properties
from ..core.settings.units import counted
from ..words.filters import options_of
from .output import CommandError, ExitCode, as_command_error, note, progress_bar
from .times import time_given
from .values import property_given

if TYPE_CHECKING:
    import homing

T = TypeVar("T")
_POSITIONAL: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _option(kind: Any, name: str, help_text: str, **more: Any) -> Any:
    return Annotated[kind | None, typer.Option(name, help=help_text, rich_help_panel="Which messages", **more)]


#: The ``filter`` of a call; empty where nothing was said.
Filter = Properties

#: Key of the filter -> its option.
OPTIONS: Final[Properties] = {
    "fault": _option(str, "--fault", "Failed last of this fault: its number (homing faults), or the first 4 digits of it or more."),
    "error_type": _option(str, "--error-type", "Failed last with an error of this type, such as ValueError."),
    "reason": _option(str, "--reason", "Dead for this reason: delivery_limit, poison, not-retryable, expired, maxlen or rejected."),
    "from_queue": _option(str, "--from-queue", "Dead-lettered from this queue."),
    "since_ms": _option(
        int, "--since", "Came at this time or later: 2h ago, 01:30, or 2026-11-23T09:00.", parser=time_given, metavar="TIME"
    ),
    "until_ms": _option(int, "--until", "Came before this time.", parser=time_given, metavar="TIME"),
    "key": _option(str, "--key", "The property that message-key-property names is this."),
    "amqp_message_id": _option(str, "--amqp-message-id", "The message-id that an AMQP client gave it is this. Looks at each."),
    "app_id": _option(str, "--app-id", "The app-id that an AMQP client gave it is this. Looks at each."),
    "message_ids": _option(list[int], "--id", "This message. Repeatable."),
    "properties": _option(list[str], "--property", "This property is so: NAME=TEXT, or NAME:=JSON. Repeatable; looks at each."),
    "where": _option(str, "--where", "A selector holds: \"region = 'eu'\". Looks at each."),
    "body_contains": _option(str, "--body-contains", "The body has this text in it. Looks at each."),
}


#: Of what is not dead.
OF_WAITING: Final = {name: option for name, option in OPTIONS.items() if name not in ("reason", "from_queue")}


def filtered(command: Callable[..., None], options: Properties = OPTIONS) -> Callable[..., None]:
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
        try:
            command(wanted=wanted, **said)
        except Exception as error:
            refused = as_command_error(error)
            if refused is None or refused.code != "invalid-selector":
                raise
            # A wrong command line, as any other filter that is none.
            refused.exit_code = ExitCode.USAGE
            raise refused from None

    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options


def _place(text: str) -> str:
    if not re.fullmatch(r"(-?\d+,)?\d+", text):
        raise typer.BadParameter(f"{text!r} is no place that a command has shown")
    return text


#: Where a command is to go on.
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        parser=_place,
        metavar="PLACE",
        help="Go on from this place, which a command that was stopped has shown.",
        rich_help_panel="Which messages",
    ),
]


def how_many(url: str, queue: str, wanted: Filter, living: bool) -> str | None:
    """How many messages of a queue fit, for who is asked whether it may be; None: there is nothing to ask. ``living``: as ``reckoned``."""
    from .client import talk

    number, exact, _ = talk(url, lambda connection: reckoned(connection, queue, wanted, living))
    check_found(number, queue, wanted, LIVING if not living else "")
    return f"{'' if exact else 'at most '}{counted(number, 'message')}" if number else None


#: What else to say where only dead letters are meant.
LIVING: Final = "; what is no dead letter goes with --living alone"


def none_fits(queue: str, wanted: Filter, besides: str = "") -> CommandError:
    fix = f"homing peek shows what is there; what a consumer holds stays with it{besides}"
    return CommandError(ExitCode.NOT_FOUND, f"no message of {queue} fits {' '.join(options_of(wanted))}", fix, code="no-such-message")


def check_found(number: int, queue: str, wanted: Filter, besides: str = "") -> None:
    """Raises CommandError where messages were meant by their numbers, and none of these was there."""
    if not number and "message_ids" in wanted:
        raise none_fits(queue, wanted, besides)


async def reckoned(connection: homing.Connection, queue: str, wanted: Filter, living: bool) -> tuple[int, bool, set[int]]:
    """How many dead letters of a queue fit, ``living``: how many messages; whether it is not only how many would have to be looked at; and
    the numbers of some dead ones."""
    found = await connection.call("reckon-redrive", queue=queue, filter=wanted)
    alive = sum(each["messages"] for each in found["would_bounce"] if each["code"] == "not-dead") if living else 0
    return found["messages"] + alive, found["exact"], {each["message_id"] for each in found["samples"]}


class Scan:
    """A verb's answers, each begun where the one before left off; how far it is is shown on a terminal.

    What ends it before its time leaves behind how far it was and where to go on, Ctrl-C also that nothing was done yet. Ctrl-C ends what
    only shows at once, and what ``acts`` when its step is done.
    """

    def __init__(
        self,
        connection: homing.Connection,
        verb: str,
        after: str | None = None,
        *,
        page: int = 0,
        most: int = 0,
        items: str = "messages",
        acts: bool = False,
        goes_on: bool = True,
        **arguments: Any,
    ) -> None:
        """``page``: messages of an answer, ``most`` of all, 0: as many as there are; ``items``: what an answer calls them;
        ``goes_on``: the command has ``After``."""
        self._ask = partial(connection.call, verb, **arguments)
        self._after: Any = None
        if after is not None:
            numbers = [int(number) for number in after.split(",")]
            self._after = numbers if len(numbers) > 1 else numbers[0]
        self._page, self._most, self._items, self._acts, self._goes_on = page, most, items, acts, goes_on
        self._progress = progress_bar(counted=False)
        self._task = self._progress.add_task(verb, total=None)
        self.messages = self.looked_at = 0

    async def __aiter__(self) -> AsyncIterator[Any]:
        while not self._most or self.messages < self._most:
            limit = {"limit": min(self._page, self._most - self.messages if self._most else self._page)} if self._page else {}
            raise_if_cancelled()
            with self._progress if self.looked_at else nullcontext():
                ask = self._ask(after=self._after, **limit)
                answer = await (to_its_end(ask) if self._acts else ask)
            yield answer
            found = answer[self._items]
            number = found if isinstance(found, int) else len(found)
            self.messages += number
            self.looked_at += answer.get("looked_at", number)
            self._progress.update(self._task, description=self._far)
            self._after = answer["next"]
            if self._after is None:
                return

    @property
    def _far(self) -> str:
        return f"{self.messages:,} {'done' if self._acts else 'found'}, {self.looked_at:,} looked at"

    @property
    def rest(self) -> str | None:
        """The option that goes on from here; None at the end, and before the first answer."""
        if self._after is None or not self.looked_at:
            return None
        return f"--after={','.join(map(str, self._after)) if isinstance(self._after, list) else self._after}"

    def show_rest(self, queue: str, wanted: Filter) -> None:
        """For who has shown some of a queue: that there was nothing, or where to go on."""
        if not self.messages:
            note(f"no message of {queue} fits" if wanted else f"{queue} is empty")
        elif self.rest is not None:
            note(f"there may be more: {self.rest}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.rest is not None:
            note(f"stopped: {self._far}" + (f"; {self.rest} goes on from there" if self._goes_on else ""))
        elif kind is not None and not self.looked_at and issubclass(kind, asyncio.CancelledError):
            note("stopped before anything was done: the same command begins again")


async def done(connection: homing.Connection, verb: str, after: str | None = None, **arguments: Any) -> dict[str, int]:
    """Has the verb done with all that is meant; returns ``messages`` and ``looked_at``, added up."""
    with Scan(connection, verb, after, acts=True, **arguments) as scan:
        async for _ in scan:
            pass
    return {"messages": scan.messages, "looked_at": scan.looked_at}


async def to_its_end(call: Coroutine[object, object, T]) -> T:
    """What it comes to, also where Ctrl-C came meanwhile: ``raise_if_cancelled`` heeds that."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


def raise_if_cancelled() -> None:
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
