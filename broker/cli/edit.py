"""``homing edit``: messages with another body or other properties, sent again in the place of those that failed."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.text import Text

from ..answers.failures import Message
from ..answers.parts import Properties
from ..core.settings.units import counted
from ..words.edits import Change
from ..words.safe_text import safe
from . import message_filter as of
from .output import (
    DEFAULT_URL,
    CommandError,
    ExitCode,
    Json,
    Url,
    Yes,
    confirm,
    escape,
    note,
    print_json,
    stdout,
    unreadable,
)
from .redrives import show_full
from .values import property_given

if TYPE_CHECKING:
    import homing

#: Messages of one call.
_AT_A_TIME: Final = 100
#: Refusals that are shown one by one.
_SHOWN: Final = 5


class _Sample(NamedTuple):
    number: int
    difference: list[str]
    #: Properties that sign it.
    signed_by: list[str]
    #: It waits for the delay after a failure, and that goes with the failures.
    delayed: bool


@of.filtered
def edit(
    wanted: of.Filter,
    message_id: Annotated[int | None, typer.Argument(help="The message's number.", show_default="what the filter takes")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="The queue that they are in.", show_default="where the message is")] = None,
    after: of.After = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Set this property: NAME=TEXT, or NAME:=JSON. Repeatable.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="Take this property away. Repeatable.")] = None,
    patch: Annotated[
        Path | None, typer.Option("--patch", help="Apply this to the body, which is JSON: a JSON Patch (a list) or a JSON Merge Patch.")
    ] = None,
    body: Annotated[Path | None, typer.Option("--body", help="Put this file in the body's place.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Another queue, or an address with one.", show_default="where each came from")
    ] = None,
    keep_original: Annotated[bool, typer.Option("--keep-original", help="Leave the originals where they are.")] = False,
    samples: Annotated[int, typer.Option("--samples", min=0, max=_AT_A_TIME, help="Show the difference on so many.")] = 3,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send messages again with another body or other properties, their counts at 0; the originals end as edited.

    What never died keeps its due time or hold and its time to live; the delay after a failure goes with the failures.

    The difference is shown first, on samples. What carries one of [bold]signature-properties[/] is sent only with --yes.
    """
    from .client import call, talk

    if not (set_ or unset or patch or body) or (patch and body):
        raise typer.BadParameter("give --set, --unset, --patch or --body, and of the last two one")
    change = Change(_properties(set_ or [], unset or []), unset or [], _patch(patch), None if body is None else _read(body))
    if message_id is not None:
        wanted = {**wanted, "message_ids": [message_id]}
    elif queue is None or not wanted:
        raise typer.BadParameter("give a message's number, or --queue and a filter")
    if queue is None:
        queue = talk(url, lambda connection: _where(connection, wanted["message_ids"][0]))
    shown = talk(url, lambda connection: _samples(connection, queue, wanted, after, change, max(1, samples)))
    if not as_json:
        for sample in shown[:samples]:
            _draw(sample)
    if dry_run:
        if as_json:
            print_json([{"message_id": each.number, "difference": each.difference, "signed_by": each.signed_by} for each in shown])
        else:
            show_full(call(url, "reckon-redrive", queue=queue, filter=wanted, to=to))
        return
    if not yes and (what := f"message {message_id}" if message_id is not None else of.how_many(url, queue, wanted, living=True)):
        ends = "" if keep_original else ", in the place of what is there"
        confirm(f"{what} of queue {queue} will be edited and sent again{ends}", yes)
    arguments = {"queue": queue, "to": to, "keep_original": keep_original, "signed": yes}
    edited, refused = talk(url, lambda connection: _edit_all(connection, wanted, after, change, arguments))
    if as_json:
        print_json({"edited": [{"message_id": number, "edited": copy} for number, copy in edited.items()], "refused": refused})
    else:
        copies = f", {next(iter(edited))} as {next(iter(edited.values()))}" if len(edited) == 1 else ""
        stdout.print(f"[bold]{counted(len(edited), 'message')}[/] of [bold]{escape(queue)}[/] edited and sent again{copies}")
    for each in refused[:_SHOWN]:
        note(f"{each['message_id']} is as it was: {each['message']}; {each['fix']}")
    if len(refused) > _SHOWN:
        note(f"and {len(refused) - _SHOWN:,} more are as they were")
    if refused:
        raise typer.Exit(ExitCode.FAILED)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise unreadable(file, error) from None


def _properties(set_: list[str], unset: list[str]) -> Properties:
    """Those that are set. Raises what a wrong command line is for names and values that the broker would refuse for each message."""
    from homing.client import UsageError
    from homing.client.validation import check_properties

    found = dict(map(property_given, set_))
    if both := found.keys() & unset:
        raise typer.BadParameter(f"{min(both)} is both in --set and in --unset")
    try:
        check_properties({**dict.fromkeys(unset), **found})
    except UsageError as error:
        raise CommandError(ExitCode.USAGE, error.message, error.fix, code="invalid-property") from None
    return found


def _patch(file: Path | None) -> Any:
    from homing.client import UsageError
    from homing.client.patch import Patch

    if file is None:
        return None
    try:
        return Patch(_read(file))
    except UsageError as error:
        raise CommandError(ExitCode.USAGE, f"{file}: {error.message}", error.fix, code=error.code) from None


async def _where(connection: homing.Connection, message_id: int) -> str:
    from homing.client import CallError

    try:
        found = (await connection.call("history", message_id=message_id))["references"]
    except CallError as error:
        if error.code != "no-such-message":
            raise
        raise CommandError(ExitCode.NOT_FOUND, f"message {message_id} is in no queue", error.fix, code=error.code) from None
    if len(found) == 1:
        return str(found[0]["queue"])
    where = ", ".join(each["queue"] for each in found) or "no queue any more"
    raise CommandError(ExitCode.NOT_FOUND, f"message {message_id} is in {where}", "name one with --queue", code="no-such-message")


async def _samples(
    connection: homing.Connection, queue: str, wanted: Properties, after: str | None, change: Change, number: int
) -> list[_Sample]:
    """The first so many. Raises CommandError where there are none."""
    with of.Scan(connection, "peek-dead-letters", after, page=number, most=number, queue=queue, filter=wanted) as scan:
        async for page in scan:
            if page["messages"]:
                return [_sample(each, change) for each in page["messages"]]
    raise of.none_fits(queue, wanted)


def _sample(message: Message, change: Change) -> _Sample:
    delayed = message["failed"] > 0 and message["due_at_ms"] is not None
    return _Sample(message["message_id"], change.difference(message), message["signed_by"], delayed)


def _draw(sample: _Sample) -> None:
    signed = f"  carries {', '.join(sample.signed_by)}, a signature: only --yes edits it" if sample.signed_by else ""
    delayed = "  goes at once: the delay after its last failure is dropped" if sample.delayed else ""
    stdout.print(f"[bold cyan]{sample.number}[/][yellow]{escape(signed)}{delayed}[/]")
    for line in sample.difference or ["  (nothing is different)"]:
        style = {"-": "red", "+": "green", "@": "cyan"}.get(line[:1], "")
        stdout.print(Text(f"  {safe(line)}", style=style))


async def _edit_all(
    connection: homing.Connection, wanted: Properties, after: str | None, change: Change, arguments: Properties
) -> tuple[dict[int, int], list[Properties]]:
    """What took each one's place, and those that stayed as they were, with why."""
    from homing.client import UsageError

    edited: dict[int, int] = {}
    made: set[int] = set()
    refused: list[Properties] = []
    with of.Scan(connection, "peek-dead-letters", after, page=_AT_A_TIME, queue=arguments["queue"], filter=wanted) as scan:
        async for page in scan:
            edits = []
            # Those that take the place of others may come to the same queue: from the first of them on, all came after this began.
            meant = list(takewhile(lambda each: each["message_id"] not in made, page["messages"]))
            for each in meant:
                try:
                    edits.append(change.of(each))
                except UsageError as error:
                    refused.append({"message_id": each["message_id"], "code": error.code, "message": error.message, "fix": error.fix})
            done = (await of.to_its_end(connection.call("edit", edits=edits, **arguments)))["edits"] if edits else []
            edited |= {each["message_id"]: each["edited"] for each in done if each["edited"] is not None}
            made.update(each["edited"] for each in done if each["edited"] is not None)
            refused += [each for each in done if each["edited"] is None]
            if len(meant) < len(page["messages"]):
                break
    return edited, refused
