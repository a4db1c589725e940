"""``homing redrive``: a job that sends dead letters back, a few first, and stops where they only come back; ``redrives``: how it fares."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import RenderableType

from ..answers.failures import Redrive, RedrivePlan
from ..core.redrive_job import STOP_ABOVE
from ..core.settings.units import counted
from ..words.amounts import clock, span_since
from ..words.redrives import against, drops, expected, meant, progress
from . import message_filter as of
from .completion import queue_argument
from .or_list import OrList
from .output import DEFAULT_URL, ExitCode, Json, Url, escape, note, print_json, progress_bar, stdout
from .tables import Column, Listing, Wide, amount
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

app = typer.Typer(cls=OrList, help="What [bold]homing redrive[/] has begun: list, status, pause, resume, cancel.")
Number = Annotated[int, typer.Argument(help="The job's number.")]
To = Annotated[str | None, typer.Option("--to", help="Another queue, or an address with one.", show_default="where each came from")]
Rate = Annotated[int, typer.Option("--rate", min=0, help="Messages a second.", show_default="as fast as it goes")]
Canary = Annotated[int, typer.Option("--canary", min=0, help="Send so many first, and go on when they have fared well.")]
StopAbove = Annotated[
    int,
    typer.Option("--stop-above", min=0, max=100, help="Stop when more per cent fail as before or are dead-lettered again, of 20 or more."),
]
NoStop = Annotated[bool, typer.Option("--no-stop", help="Whatever becomes of them.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and what would come back.")]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Until all are sent; exit code 1 where it stopped, left some or was cancelled; or begin only."),
]

_LOOK_S: Final = 0.2


@of.filtered
def redrive(
    queue: Annotated[str, queue_argument("The queue that the dead letters are in.")],
    wanted: of.Filter,
    to: To = None,
    rate: Rate = 0,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many in all.", show_default="all")] = 0,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="In the other order.")] = False,
    canary: Canary = 0,
    stop_above: StopAbove = STOP_ABOVE,
    no_stop: NoStop = False,
    dry_run: DryRun = False,
    wait: Wait = True,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send dead letters back to the queues they came from, with their failures at 0. Their history stays.

    It is a job, which goes on by itself, restarts of the broker included: [bold]homing redrives[/] shows how it fares. Where a queue is
    full it waits while somebody consumes from that; else what finds no room stays where it is.
    """
    from .client import call

    arguments = {"queue": queue, "filter": wanted, "to": to, "rate": rate, "limit": limit, "newest_first": newest_first, "canary": canary}
    arguments["stop_above"] = None if no_stop else stop_above
    if dry_run:
        plan = call(url, "reckon-redrive", **arguments)
        print_json(plan) if as_json else show_plan(plan)
        return

    job: Redrive = call(url, "start-redrive", **arguments)
    if wait:
        job = ended(url, job)
        of.check_found(job["sent"] + job["left"] + (job["state"] != "done"), queue, wanted)
    if as_json:
        print_json(job)
    else:
        stdout.print(sentence(job))
        if not wait:
            note(f"homing redrives status {job['job_id']} shows how it fares")
    if wait and job["state"] != "done":
        raise typer.Exit(ExitCode.FAILED)


@app.command("start", hidden=True)
@functools.wraps(redrive)
def _start(**said: object) -> None:
    redrive(**said)


# As it was spelled before, for a version: begins only.
_said_before = inspect.signature(redrive)
_start.__signature__ = _said_before.replace(  # type: ignore[attr-defined]
    parameters=[each.replace(default=False) if each.name == "wait" else each for each in _said_before.parameters.values()]
)


def ended(url: str, job: Redrive) -> Redrive:
    """Its map then, restarts of the broker included; a terminal shows how far it is meanwhile."""
    from .client import talk_on

    return talk_on(url, lambda connection: _followed(connection, job))


async def _followed(connection: homing.Connection, job: Redrive) -> Redrive:
    with progress_bar(counted=False) as bar:
        task = bar.add_task("", total=None)
        try:
            while job["state"] in ("running", "paused"):
                bar.update(task, description=_far(job))
                await asyncio.sleep(_LOOK_S)
                job = await connection.call("redrive-status", redrive=job["job_id"])
        except asyncio.CancelledError:
            note(f"redrive {job['job_id']} goes on by itself; homing redrives cancel {job['job_id']} ends it")
            raise
    return job


def show_plan(plan: RedrivePlan) -> None:
    about = "" if plan["exact"] else "at most "
    of_each = "" if plan["exact"] and plan["messages"] == sum(each["messages"] for each in plan["to"]) else "at most "
    transient = f", {plan['transient']:,} of them transient" if plan["transient"] else ""
    stdout.print(f"{about}[bold]{counted(plan['messages'], 'message')}[/] of [bold]{escape(plan['queue'])}[/] would be sent{transient}")
    for each in plan["to"]:
        to = escape(each["queue"]) if each["queue"] else "where each came from"
        so_far = f"; {said}" if (said := expected(each)) else ""
        stdout.print(f"  {of_each}{each['messages']:,} to {to}" + (f", dead of {each['fault']}" if each["fault"] else "") + so_far)
    for sample in plan["samples"]:
        why = f", {sample['reason']} {span_since(sample['entered_at_ms'])} ago" if sample["reason"] else ""
        stdout.print(f"  [dim]such as[/] {sample['message_id']} to {escape(sample['to'])}{why}")
    for doubt in drops(plan):
        stdout.print(f"  [yellow]at most {doubt.messages:,} {doubt.verdict}[/]: {escape(doubt.why)}")
    _show_bounces(plan, of_each)


def show_full(plan: RedrivePlan) -> None:
    """Only what finds no room, or may not go."""
    stays = ("queue-full", "access-refused", "consume-refused")
    _show_bounces({**plan, "would_bounce": [each for each in plan["would_bounce"] if each["code"] in stays]}, "at most ")


def _show_bounces(plan: RedrivePlan, about: str) -> None:
    """What speaks against it."""
    for each in against(plan):
        stdout.print(f"  [yellow]{about}{each.messages:,} {each.verdict}[/]: {escape(each.why)} ({escape(each.which)})")


@app.command("list")
def list_redrives(watch: Watch = False, wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Jobs at work, and the last that have ended."""

    async def ask(connection: homing.Connection) -> list[Redrive]:
        from .client import seen

        return await seen(connection, "redrives")

    show(url, ask, _draw, as_json=as_json, watch=watch, everything=wide)


def _draw(found: list[Redrive]) -> RenderableType:
    if not found:
        return "[dim]there was no redrive yet[/]"
    texts = {"redrive": 0, "queue": 0, "which, and how": 4, "state": 0, "started": 3}
    numbers_of = {"sent": 0, "succeeded": 1, "not settled": 2, "dead again": 1, "left there": 2}
    columns = [Column(heading, rank) for heading, rank in texts.items()]
    columns += [Column(heading, rank, number=True) for heading, rank in numbers_of.items()]
    rows = []
    for job in found:
        numbers = [amount(job[name]) for name in ("sent", "succeeded", "waiting", "died", "left")]
        state = escape(job["state"] + (f": {job['why']}" if job["why"] else ""))
        started = f"{span_since(job['started_ms'])} ago"
        rows.append((str(job["job_id"]), f"[bold]{escape(job['queue'])}[/]", escape(meant(job)), state, started, *numbers))
    return Listing(columns, rows)


@app.command()
def status(redrive: Number, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """How far a job is, and what became of what it sent."""
    job = _said(url, as_json, "redrive-status", redrive)
    if not as_json and job["state"] in ("running", "paused") and (to_go := _to_go(url, job)) is not None:
        stdout.print(f"  about {to_go:,} to go")


def _to_go(url: str, job: Redrive) -> int | None:
    """Of what was there when it began; None where each message would have to be looked at, or the queue is gone."""
    from homing.client import CallError

    from .client import call

    began_ms = job["started_ms"] + 1
    wanted = {**job["wanted"], "until_ms": min(job["wanted"].get("until_ms") or began_ms, began_ms)}
    try:
        plan = call(url, "reckon-redrive", queue=job["queue"], filter=wanted, to=job["target"])
    except CallError as error:
        if error.code != "no-such-queue":
            raise
        return None
    left: int = plan["messages"]
    return None if not plan["exact"] else min(left, job["limit"] - job["sent"]) if job["limit"] else left


@app.command()
def pause(redrive: Number, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Send nothing more until it is resumed, restarts included."""
    _said(url, as_json, "pause-redrive", redrive)


@app.command()
def resume(redrive: Number, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Go on where it was paused."""
    _said(url, as_json, "resume-redrive", redrive)


@app.command()
def cancel(redrive: Number, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """End a job. What it has sent stays where it went."""
    _said(url, as_json, "cancel-redrive", redrive)


def _said(url: str, as_json: bool, verb: str, redrive: int) -> Redrive:
    from .client import call

    job: Redrive = call(url, verb, redrive=redrive)
    if as_json:
        print_json(job)
    else:
        stdout.print(sentence(job))
    return job


def sentence(job: Redrive) -> str:
    why = f": {escape(job['why'])}" if job["why"] else ""
    when = (
        f", since {clock(job['started_ms'])}"
        if job["ended_ms"] is None
        else f", from {clock(job['started_ms'])} to {clock(job['ended_ms'])}"
    )
    which = f" ({escape(said)})" if (said := meant(job)) else ""
    return f"redrive [bold]{job['job_id']}[/] of [bold]{escape(job['queue'])}[/]{which} is {job['state']}{why}{when}\n  {_far(job)}"


def _far(job: Redrive) -> str:
    return escape(progress(job))
