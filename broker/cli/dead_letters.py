"""``homing dead``: which dead letters there are, and those that a filter takes: exported, deleted, moved."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer
from rich.console import Group, RenderableType

from ..answers.failures import DeadQueue
from ..answers.parts import Properties
from ..core.settings.units import counted
from ..words.amounts import span_since
from ..words.deaths import deaths_in
from . import message_filter as of
from . import redrives
from .completion import queue_argument
from .or_list import OrList
from .output import (
    DEFAULT_URL,
    CommandError,
    ExitCode,
    Json,
    Url,
    Yes,
    body_json,
    confirm,
    error_line,
    escape,
    note,
    print_json,
    stdout,
    write_privately,
)
from .tables import NOTHING, Column, Listing, Wide, amount
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

app = typer.Typer(
    cls=OrList, help="Dead letters: which there are, of a queue or of all; and those that a filter takes: [bold]export[/], delete, move."
)
Queue = Annotated[str, queue_argument("The queue that they are in.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show how many would be removed, and some of them.")]
#: Messages of one answer.
_PAGE: Final = 250
_SAMPLES: Final = 5


@app.command("list")
def list_dead(
    queue: Annotated[str | None, queue_argument("Only those that are in this queue, or came from it.")] = None,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """All queues that have dead letters: how many, since when, of which fault most, from where, and how many were sent back before.

    [bold]homing peek QUEUE[/] shows the messages.
    """

    async def ask(connection: homing.Connection) -> list[DeadQueue]:
        from .client import seen

        found = await seen(connection, "dead-letters")
        if queue is not None:
            found[:] = [each for each in found if queue in (each["queue"], *each["sources"])]
            if not found:
                await connection.call("peek", queue=queue, limit=1)  # refused where there is none of that name
        return found

    show(url, ask, partial(_draw, queue), as_json=as_json, watch=watch, everything=wide)


def _draw(queue: str | None, found: list[DeadQueue]) -> RenderableType:
    if not found:
        return (
            "[dim]there are no dead letters[/]" if queue is None else f"[dim]there are no dead letters in {escape(queue)}, nor from it[/]"
        )
    transient = any(each["transient"] for each in found)
    ranks = {"messages": 0, "oldest": 2, "newest": 1, "sent back": 3, **({"transient": 1} if transient else {})}
    columns = [Column("queue"), *(Column(heading, rank, number=True) for heading, rank in ranks.items())]
    owned = any(each["owners"] or each["runbooks"] for each in found)
    columns += [Column("most are dead of"), Column("they came from", 4), *([Column("owner", 5)] if owned else [])]
    rows = []
    for each in found:
        ages = [f"{span_since(each[name])} ago" for name in ("oldest_ms", "newest_ms")]
        back = f"{100 * each['sent_back'] / each['messages']:.0f} %" if each["sent_back"] else NOTHING
        numbers = [f"{each['messages']:,}", *ages, back, *([amount(each["transient"])] if transient else [])]
        sources = escape(", ".join(each["sources"])) or (each["refused"] and f"[dim]told to whoever may {each['refused']} it[/]") or ""
        row = [f"[bold]{escape(each['queue'])}[/]", *numbers, _top(each), sources]
        rows.append([*row, *([escape(", ".join((*each["owners"], *each["runbooks"])))] if owned else [])])
    if queue is None:
        return Listing(columns, rows)
    return Group(Listing(columns, rows), *(f"[dim]homing peek {escape(shlex.quote(each['queue']))} shows them[/]" for each in found))


def _top(each: DeadQueue) -> str:
    top = each["top_fault"]
    if top is None:
        return f"[dim]{escape(', '.join(each['reasons']))}[/]"
    what = error_line(top["error_class"], top["text"], 60)
    share = f"{100 * each['top_messages'] / each['messages']:.0f} % of {counted(each['faults'], 'fault')}"
    return f"{top['fault']}  {what}  [dim]{share}[/]"


@app.command()
@of.filtered
def export(
    queue: Queue,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, one JSON object a line; - is stdout.")],
    wanted: of.Filter,
    after: of.After = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Write dead letters to a file, with their bodies, properties and why they were dead-lettered; they stay where they are.

    What was written before it was stopped is in FILE.partial; with --after it goes on there.
    """
    from .client import talk

    write_privately()

    async def conversation(connection: homing.Connection, to: TextIO) -> int:
        with of.Scan(connection, "peek-dead-letters", after, page=_PAGE, queue=queue, filter=wanted) as scan:
            async for page in scan:
                deaths = await deaths_in(connection, page)
                for message, death in zip(page["messages"], deaths, strict=True):
                    exported = {**message, "body": body_json(message["body"]), "dead_letter": death and death.shown()}
                    print_json(exported, line=True, to=to)
        return scan.messages

    if str(out) == "-":
        with open(1, "w", encoding="utf-8", closefd=False) as to:
            talk(url, lambda connection: conversation(connection, to))
        return
    partial_file = out.with_name(f"{out.name}.partial")
    try:
        with open(partial_file, "w" if after is None else "a", encoding="utf-8") as to:
            number = talk(url, lambda connection: conversation(connection, to))
        partial_file.replace(out)
    except OSError as error:
        raise CommandError(
            ExitCode.FAILED, f"{out} cannot be written: {error.strerror}", "name another file, or make room", code="not-written"
        ) from None
    finally:
        if partial_file.exists() and not partial_file.stat().st_size:
            partial_file.unlink()
    note(f"{counted(number, 'dead letter')} written to {out}")


@app.command()
@of.filtered
def delete(
    queue: Queue,
    wanted: of.Filter,
    after: of.After = None,
    living: Annotated[bool, typer.Option("--living", help="Also messages that are no dead letters.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Delete the dead letters of a queue that the filter takes and no consumer holds. What never died, or was sent back, stays."""
    if dry_run:
        show_removal(url, as_json, [queue], wanted, living)
        return
    if not yes and (number := of.how_many(url, queue, wanted, living)):
        confirm(f"This removes {number} of queue {queue} for good", yes)
    said = f"removed from [bold]{escape(queue)}[/]"
    _done(url, as_json, said, "delete-dead-letters", after, queue=queue, filter=wanted, living=living)


@app.command()
@of.filtered
def move(
    queue: Queue,
    to: Annotated[str, queue_argument("Where to; it has to be there.")],
    wanted: of.Filter,
    after: of.After = None,
    dry_run: redrives.DryRun = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Move the messages of a queue that the filter takes into another one, with their failures at 0, until that has no room left.

    What never died keeps its due time or hold and its time to live; the delay after a failure goes with the failures.
    """
    from .client import call

    if dry_run:
        plan = call(url, "reckon-redrive", queue=queue, filter=wanted, to=to)
        print_json(plan) if as_json else redrives.show_plan(plan)
        return
    _done(url, as_json, f"moved to [bold]{escape(to)}[/]", "move-dead-letters", after, queue=queue, to=to, filter=wanted)


def show_removal(url: str, as_json: bool, queues: list[str], wanted: of.Filter, living: bool = False) -> None:
    """What a deletion would remove of each queue, and the first of them."""
    from .client import talk

    async def conversation(connection: homing.Connection) -> list[Properties]:
        return [await _removal(connection, queue, wanted, living) for queue in queues]

    found = talk(url, conversation)
    if as_json:
        print_json(found)
        return
    for each in found:
        about = "" if each["exact"] else "at most "
        stdout.print(f"{about}[bold]{counted(each['messages'], 'message')}[/] of [bold]{escape(each['queue'])}[/] would be removed")
        for sample in each["samples"]:
            death = f"  {sample['death']}" if sample["death"] else ""
            transient = "  transient" if sample["transient"] else ""
            stdout.print(f"  [dim]such as[/] {sample['message_id']}{escape(death)}{transient}")


async def _removal(connection: homing.Connection, queue: str, wanted: of.Filter, living: bool) -> Properties:
    number, exact, dead = await of.reckoned(connection, queue, wanted, living)
    page = await connection.call("peek-dead-letters", queue=queue, filter=wanted, limit=_SAMPLES)
    deaths = await deaths_in(connection, page)
    samples = [
        {"message_id": each["message_id"], "death": death and death.sentence(), "transient": each["transient"]}
        for each, death in zip(page["messages"], deaths, strict=True)
        if living or each["message_id"] in dead
    ]
    return {"queue": queue, "messages": number, "exact": exact, "samples": samples}


def _done(url: str, as_json: bool, sentence: str, verb: str, after: str | None, **arguments: Any) -> None:
    from .client import talk

    done = talk(url, lambda connection: of.done(connection, verb, after, **arguments))
    besides = "" if arguments.get("living", True) else of.LIVING
    of.check_found(done["messages"], arguments["queue"], arguments["filter"], besides)
    if as_json:
        print_json(done)
    else:
        stdout.print(f"[bold]{counted(done['messages'], 'message')}[/] {sentence}")
