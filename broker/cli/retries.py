"""``homing retry``, ``homing retrying`` and ``homing due``: what failed and is to be tried again, when, and other times for it."""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group, RenderableType

from ..answers.failures import Due, RepeatedSend, RetryingMessage, RetryingQueue
from ..answers.parts import Fields, Properties
from ..core.repeated import JOB
from ..core.settings.units import counted
from ..words.amounts import clock, span
from . import message_filter as of
from .completion import queue_argument
from .output import DEFAULT_URL, Json, Url, escape, note, print_json, stdout
from .tables import NOTHING, Column, Listing, Wide, amount
from .times import time_to_come
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

_filtered = partial(of.filtered, options=of.OF_WAITING)
_BAR: Final = 40
#: Messages of which it is asked at a time what they failed of.
_ASKED: Final = 100
_MOST_TEXT: Final = 80
#: A time that is past by more is a mistake, such as a wrong year.
_PAST_MS: Final = 24 * 3_600_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@_filtered
def retry(
    queue: Annotated[str, queue_argument("The queue in which they wait.")],
    wanted: of.Filter,
    after: of.After = None,
    now: Annotated[bool, typer.Option("--now", help="Try them as soon as may be.")] = False,
    at: Annotated[
        int | None,
        typer.Option("--at", parser=time_to_come, metavar="TIME", help="Try them then: in 2h, at 01:30, or at 2026-11-23T09:00."),
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Do not try them before they are released; a time to live goes on.")] = False,
    release: Annotated[bool, typer.Option("--release", help="Let go what is on hold; it is tried as soon as may be.")] = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Give other times to messages of a queue that failed and wait to be tried again: all of them, or those that are meant."""
    from .client import talk

    if [now, at is not None, hold, release].count(True) != 1:
        raise typer.BadParameter("give one of --now, --at, --hold and --release")
    now_ms = _now_ms()
    if at is not None and at < now_ms - _PAST_MS:
        raise typer.BadParameter(f"{clock(at, date=True)} is past: name a time to come, or give --now to try them now")
    way: Properties = {"at_ms": at} if at is not None else {"now": now, "hold": hold, "release": release}
    on_hold = 0

    async def change(connection: homing.Connection) -> dict[str, int]:
        nonlocal on_hold
        with of.Scan(connection, "retry", after, acts=True, queue=queue, filter=wanted, **way) as scan:
            async for answer in scan:
                on_hold = answer.get("on_hold", 0)
        return {"messages": scan.messages, "looked_at": scan.looked_at}

    done = talk(url, change)
    if as_json:
        print_json(done)
        return
    past = at is not None and at <= now_ms
    said = "on hold" if hold else "due now" if at is None or past else f"due at {clock(at)}"
    why = f", as {clock(at)} is past" if past else ""
    stdout.print(f"[bold]{counted(done['messages'], 'message')}[/] of [bold]{escape(queue)}[/] {_is(done['messages'])} {said}{why}")
    if on_hold and not hold and not release:
        note(f"{counted(on_hold, 'message')} of the queue {_is(on_hold)} on hold, which --release lets go")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


# -- what waits ----------------------------------------------------------------------------------------------------------


@_filtered
def retrying(
    wanted: of.Filter,
    queue: Annotated[str | None, typer.Argument(help="What failed and waits in it, one by one.", show_default="all, in sum")] = None,
    repeated: Annotated[bool, typer.Option("--repeated", help="What is to come again in it, as its sender asked for.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="At most so many.")] = 20,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """What failed and is to be tried again: when it goes, what it failed of, and at which attempt it is.

    In sum, queue by queue: what is scheduled, sent with a delay too; suspects, each of which waits for a consumer of its own; and what
    most of what is to be tried again failed of, whether it waits or is ready.
    """
    if queue is None:
        if wanted or repeated:
            raise typer.BadParameter("name the queue that they wait in")

        async def ask(connection: homing.Connection) -> list[RetryingQueue]:
            from .client import seen

            return await seen(connection, "retrying")

        show(url, ask, _draw_queues, as_json=as_json, watch=watch, everything=wide)
        return

    if repeated:
        if wanted:
            raise typer.BadParameter("--repeated shows all of a queue: leave out which messages")
        show(url, partial(_ask_repeated, queue, count), partial(_draw_repeated, queue), as_json=as_json, watch=watch, everything=wide)
        return

    async def ask_queue(connection: homing.Connection) -> list[_Shown]:
        found: list[Any] = []
        async for page in of.Scan(connection, "peek-retrying", page=_ASKED, most=count, queue=queue, filter=wanted):
            entries = [[each["message_id"], each["sequence"]] for each in page["messages"]]
            attempts = await connection.call("last-attempts", stays=entries) if entries else []
            found += [{**each, "last_attempt": last} for each, last in zip(page["messages"], attempts, strict=True)]
        return found

    show(url, ask_queue, _draw_messages, as_json=as_json, watch=watch, everything=wide)


class _Shown(RetryingMessage):
    last_attempt: Fields | None


def _draw_queues(found: list[RetryingQueue]) -> RenderableType:
    if not found:
        return "[dim]nothing waits[/]"
    ranks = {"scheduled": 0, "on hold": 2, "suspects": 2, "first goes": 1, "last goes": 2}
    columns = [Column("queue"), *(Column(heading, rank, number=True) for heading, rank in ranks.items()), Column("to be tried again")]
    rows = []
    for each in found:
        counts: Fields = each
        numbers = [amount(counts.get(key, 0)) for key in ("scheduled", "on_hold", "suspects")]
        times = [_in(at_ms) if at_ms is not None else NOTHING for at_ms in (each["first_ms"], each["last_ms"])]
        faults = ", ".join(f"{fault['waiting']:,} × {_error(fault['error_class'], fault['text'])}" for fault in each["faults"])
        rows.append((f"[bold]{escape(each['queue'])}[/]", *numbers, *times, escape(faults)))
    return Listing(columns, rows)


def _draw_messages(found: list[_Shown]) -> RenderableType:
    if not found:
        return "[dim]nothing that failed waits for its time[/]"
    columns = [Column("message"), Column("goes", number=True), Column("attempt", 1, number=True), Column("failed of")]
    rows = []
    for each in found:
        by_rule: Fields = each["attempts_allowed_by_rule"]
        most = by_rule.get((each["last_attempt"] or {}).get("rule", ""), each["attempts_allowed"])
        attempt = f"{each['failed']:,} of {most:,}" if most is not None else f"{each['failed']:,}"
        kind = "  [yellow]transient[/]" if each["transient"] else ""
        rows.append((f"[bold cyan]{each['message_id']}[/]", _goes(each), attempt, escape(_why(each)) + kind))
    return Listing(columns, rows)


def _goes(message: _Shown) -> str:
    if message["state"] == "on-hold":
        return "[magenta]on hold[/]"
    if message["due_at_ms"] is not None:
        return f"{_in(message['due_at_ms'])}  [dim]{clock(message['due_at_ms'])}[/]"
    if (awaited := message["waits_for"]) is None:
        return "alone"
    return f"alone, behind {awaited['unsettled']:,} that {escape(awaited['connection'])} holds"


def _in(at_ms: int) -> str:
    left_ms = at_ms - _now_ms()
    return f"in {span(left_ms)}" if left_ms > 0 else "now"


def _why(message: _Shown) -> str:
    last, fault = message["last_attempt"], message["fault"]
    reported = (last or {}).get("fault") or {}
    if reported.get("error_type") or reported.get("reason"):
        return _error(reported.get("error_type") or "", reported.get("error_text") or reported.get("reason") or "")
    if fault is not None:
        return _error(fault["error_class"], fault["text"])
    if last is not None and "refused" in last:
        return f"(told to whoever may {last['refused']} {last['queue']})"
    return str(last["outcome"]) if last is not None else ""


def _error(error_class: str, text: str) -> str:
    return " ".join(f"{error_class}: {text}".removeprefix(": ").removesuffix(": ").split())[:_MOST_TEXT]


# -- what is to come again ------------------------------------------------------------------------------------------------


async def _ask_repeated(queue: str, count: int, connection: homing.Connection) -> list[RepeatedSend]:
    found: dict[str, RepeatedSend] = {}
    async for page in of.Scan(connection, "repeated", items="repeated", goes_on=False, queue=queue):
        for each in page["repeated"]:
            known = found.setdefault(each["job"], each)
            if known is not each:
                known["messages"] += each["messages"]
                if each["due_at_ms"] < known["due_at_ms"]:
                    known["message_id"], known["due_at_ms"] = each["message_id"], each["due_at_ms"]
    return sorted(found.values(), key=lambda each: each["due_at_ms"])[:count]


def _draw_repeated(queue: str, found: list[RepeatedSend]) -> RenderableType:
    if not found:
        return f"[dim]nothing is to come again in {escape(queue)}[/]"
    columns = [Column("job"), *(Column(heading, number=True) for heading in ("left", "every", "next goes")), Column("next")]
    rows = []
    for each in found:
        goes = f"{_in(each['due_at_ms'])}  [dim]{clock(each['due_at_ms'])}[/]"
        job, message = f"[bold]{escape(each['job'])}[/]", f"[bold cyan]{each['message_id']}[/]"
        rows.append((job, f"{each['messages']:,}", span(each["period_ms"]), goes, message))
    quoted = escape(shlex.quote(queue))
    cancels = f"[dim]homing dead delete {quoted} --living --property {JOB}=JOB cancels what is left, homing delete NUMBER one of it[/]"
    return Group(Listing(columns, rows), cancels)


# -- the calendar --------------------------------------------------------------------------------------------------------


def due(
    queue: Annotated[str | None, typer.Argument(help="Only of this queue.", show_default="all")] = None,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """A calendar of what is due, sent with a delay or to be tried again: by the minute at first, then by the hour, then by the day."""

    async def ask(connection: homing.Connection) -> Due:
        found: Due = await connection.call("due", queue=queue)
        return found

    show(url, ask, _draw_calendar, as_json=as_json, watch=watch, everything=wide)


def _draw_calendar(found: Due) -> RenderableType:
    rows = []
    most = max((each["messages"] for each in found["due"]), default=1)
    for each in found["due"]:
        bar = "█" * max(1, round(_BAR * each["messages"] / most))
        begins = clock(each["from_ms"]).replace(".000", "")
        rows.append((begins, span(each["until_ms"] - each["from_ms"]), f"{each['messages']:,}", f"[magenta]{bar}[/]"))
    if found["on_hold"]:
        rows.append(("on hold", "", f"{found['on_hold']:,}", ""))
    columns = [Column("from"), Column("for"), Column("due", number=True), Column("", 1)]
    return Listing(columns, rows) if rows else "[dim]nothing is due[/]"
