"""``homing faults``: failures that look alike, in groups; ``show``, ``mute``, ``fixed``, … are of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typing_extensions import TypedDict

from ..answers.failures import Fault as FaultAnswer
from ..answers.failures import FaultGroup, FaultOfList, Program
from ..answers.parts import Fields
from ..core.settings.units import counted
from ..words.amounts import clock, span_since
from ..words.safe_text import safe
from .dead_letters import DryRun as DryRemoval
from .dead_letters import show_removal
from .message_filter import done
from .or_list import OrList
from .output import DEFAULT_URL, ExitCode, Json, Url, Yes, body_text, confirm, error_line, escape, note, print_json, stdout
from .redrives import Canary, DryRun, NoStop, Rate, StopAbove, To, Wait, ended, sentence, show_plan
from .tables import Column, Listing, Wide, amount
from .times import time_given
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

_BARS: Final = "▁▂▃▄▅▆▇█"
Fault = Annotated[str, typer.Argument(help="The fault's number, or as much of its beginning as only it has.")]


app = typer.Typer(
    cls=OrList, help="Failures that look alike, in groups: of a queue, or of all; or [bold]show[/], redrive, mute, … one of them."
)


@app.command("list")
def list_faults(
    queue: Annotated[str | None, typer.Argument(help="Only what fails in this queue.")] = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="TIME", parser=time_given, help="Only what failed at this time or later: 24h ago, or 01:30."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Only what never failed before --since, or is back since.", show_default="24h")
    ] = False,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Which faults there are, those first that most messages are dead of or wait for; where, since when, and what became of them."""
    when = {"since_ms": time_given("24h") if since is None else since, "new": new} if new or since is not None else {}

    async def ask(connection: homing.Connection) -> list[FaultOfList]:
        from .client import seen

        return await seen(connection, "faults", first=0, queue=queue, **when)

    show(url, ask, _draw, as_json=as_json, watch=watch, everything=wide)


def _draw(found: list[FaultOfList]) -> RenderableType:
    if not found:
        return "[dim]there is no fault[/]"
    transient = ["transient"] if any(each["transient"] for each in found) else []
    ranks = {"failures": 1, "last hour": 3, "waiting": 1, "dead": 0, **dict.fromkeys(transient, 1), "succeeded": 3, "first": 4, "last": 2}
    columns = [Column("fault"), Column("queue"), Column("error"), *(Column(heading, rank, number=True) for heading, rank in ranks.items())]
    columns.append(Column("consumers", 5))
    rows = []
    for each in found:
        counts: Fields = each
        numbers = [amount(counts[key]) for key in ("failures", "last_hour", "waiting", "dead", *transient, "succeeded")]
        times = [f"{span_since(each[key])} ago" for key in ("first_ms", "last_ms")]
        rows.append(
            (f"[bold]{each['fault']}[/]", escape(each["queue"] or "–"), _error(each), *numbers, *times, _consumers(each["programs"]))
        )
    return Listing(columns, rows)


def _consumers(programs: list[Program]) -> str:
    """Who met it, the latest first: what each calls itself, or the host that it is on."""
    latest = sorted(programs, key=lambda each: -int(each["last_ms"]))
    names = list(dict.fromkeys(each["client_id"] or each["host"] for each in latest))
    return escape(", ".join(names[:2]) + (f", +{len(names) - 2}" if len(names) > 2 else ""))


def _error(group: FaultGroup) -> str:
    text = error_line(group["error_class"], group["text"], 80)
    known: Fields = group
    for said, style in (("muted", "dim"), ("regressed_ms", "red"), ("fixed_in", "green")):
        if known[said] or (said == "fixed_in" and known[said] is not None):
            names = {
                "muted": "muted",
                "regressed_ms": "back",
                "fixed_in": f"fixed in {group['fixed_in']}" if group["fixed_in"] else "fixed",
            }
            return f"{text}  [{style}]{escape(names[said])}[/]"
    return text


@app.command("show")
def show_fault(fault: Fault, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """One fault: a traceback, its last 24 hours, in which queues, who met it in which release, and messages that show it."""
    from .client import call

    found: FaultAnswer = call(url, "fault", fault=fault)
    if as_json:
        print_json(found)
        return
    said = f": {found['text']}" if found["text"] else "" if found["traceback"] else f" on {found['groups'][0]['queue']}, without a report"
    stdout.print(f"[bold]{found['fault']}[/]  {escape(found['error_class'])}{escape(said)}")
    if found["traceback"]:
        stdout.print(body_text(found["traceback"].encode(), limit=16_384), markup=False, style="dim")
    stdout.print(_trend(found["hours"]))
    for each in found["groups"]:
        stdout.print(_group(each))


def _trend(hours: list[int]) -> Text:
    most = max(hours) or 1
    bars = "".join(_BARS[number * (len(_BARS) - 1) // most] if number else "·" for number in hours)
    return Text.assemble(
        "last 24 hours  ", (bars, "bold"), f"  {counted(sum(hours), 'failure')}, at most {most if any(hours) else 0:,} in one"
    )


def _group(each: FaultGroup) -> RenderableType:
    numbers: Fields = each
    counts = ", ".join(f"{numbers[key]:,} {name}" for key, name in _COUNTS if numbers[key])
    lines = [Text.assemble(("queue ", "dim"), (safe(each["queue"] or "–"), "bold"), f"  {counts}")]
    lines.append(Text(f"  first {clock(each['first_ms'], date=True)}, last {clock(each['last_ms'], date=True)}"))
    if said := _said_of(each):
        lines.append(Text(safe(f"  {said}")))
    if each["dead_in"]:
        lines.append(Text(safe(f"  dead in {', '.join(each['dead_in'])}")))
    for program in each["programs"]:
        known = ((program["client_id"], "client"), (program["host"], "on"), (program["version"], "version"))
        who = " ".join(f"{name} {text}" for text, name in known if text)
        lines.append(Text(safe(f"  met by {who}: {clock(program['first_ms'], date=True)} to {clock(program['last_ms'], date=True)}")))
    if each["message_ids"]:
        lines.append(Text(f"  such as {', '.join(map(str, each['message_ids'][-5:]))} (homing history ID)"))
    return Group(*lines)


def _said_of(each: FaultGroup) -> str:
    said = ["muted"] if each["muted"] else []
    if each["fixed_in"] is not None:
        version = f" in {each['fixed_in']}" if each["fixed_in"] else ""
        said.append(f"said to be fixed{version} at {clock(each['fixed_ms'], date=True)}")
    if each["regressed_ms"] is not None:
        said.append(f"back since {clock(each['regressed_ms'], date=True)}")
    return ", ".join(said)


_COUNTS: Final = (
    ("failures", "failures"),
    ("waiting", "waiting"),
    ("dead", "dead"),
    ("transient", "of these transient"),
    ("succeeded", "succeeded since"),
    ("redriven", "sent back"),
    ("back_succeeded", "of these succeeded"),
    ("back_died", "of these dead again"),
    ("last_day", "in the last day"),
)


@app.command()
def redrive(
    fault: Fault,
    to: To = None,
    rate: Rate = 0,
    canary: Canary = 0,
    stop_above: StopAbove = 20,
    no_stop: NoStop = False,
    dry_run: DryRun = False,
    wait: Wait = True,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send back all that is dead of a fault, as [bold]homing redrive[/] does, from each queue that has any."""
    from .client import talk

    arguments = {"to": to, "rate": rate, "canary": canary, "stop_above": None if no_stop else stop_above}
    verb = "reckon-redrive" if dry_run else "start-redrive"

    async def conversation(connection: homing.Connection) -> list[Any]:
        found = await connection.call("fault", fault=fault)
        wanted = {"fault": found["fault"]}
        return [await connection.call(verb, queue=queue, filter=wanted, **arguments) for queue in _dead_in(found)]

    answers = talk(url, conversation)
    if wait and not dry_run:
        answers = [ended(url, job) for job in answers]
    if as_json:
        print_json(answers)
    else:
        for each in answers:
            show_plan(each) if dry_run else stdout.print(sentence(each))
        if not answers:
            stdout.print("[dim]nothing is dead of it[/]")
        elif not dry_run and not wait:
            note("homing redrives shows how they fare")
    if wait and any(job.get("state", "done") != "done" for job in answers):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def retry(fault: Fault, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Try all that failed of a fault last and waits for its time now, in whichever queue."""
    from .client import talk

    async def conversation(connection: homing.Connection) -> _Acted:
        found = await connection.call("fault", fault=fault)
        waiting = sorted(each["queue"] for each in found["groups"] if each["waiting"])
        return await _in_each(connection, "retry", found["fault"], waiting, now=True)

    _acted(talk(url, conversation), "due now", as_json)


@app.command()
def delete(fault: Fault, dry_run: DryRemoval = False, yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Delete all that is dead of a fault and no consumer holds, in whichever queue it is."""
    from .client import call, talk

    found: FaultAnswer = call(url, "fault", fault=fault)
    if dry_run:
        show_removal(url, as_json, _dead_in(found), {"fault": found["fault"]})
        return
    queues, messages = _dead_in(found), counted(sum(each["dead"] for each in found["groups"]), "message")
    if queues:
        confirm(f"This removes {messages} dead of fault {found['fault']} for good, from {', '.join(queues)}", yes)
    _acted(talk(url, lambda connection: _in_each(connection, "delete-dead-letters", found["fault"], queues)), "removed", as_json)


class _Acted(TypedDict):
    fault: str
    messages: int
    queues: dict[str, int]


async def _in_each(connection: homing.Connection, verb: str, fault: str, queues: list[str], **how: Any) -> _Acted:
    """Does it with what failed of the fault in each queue; how many messages that were."""
    how = {"filter": {"fault": fault}, "goes_on": False, **how}
    acted = {each: (await done(connection, verb, queue=each, **how))["messages"] for each in queues}
    return {"fault": fault, "messages": sum(acted.values()), "queues": acted}


def _acted(acted: _Acted, sentence: str, as_json: bool) -> None:
    if as_json:
        print_json(acted)
    else:
        stdout.print(f"[bold]{counted(acted['messages'], 'message')}[/] of fault [bold]{acted['fault']}[/] {sentence}")


def _dead_in(found: FaultAnswer) -> list[str]:
    """The queues that have dead letters of the fault."""
    return sorted({queue for each in found["groups"] for queue in each["dead_in"]})


@app.command()
def mute(fault: Fault, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Report nothing more of a fault; it is counted as ever."""
    _said(url, as_json, "is muted", "mute-fault", fault=fault)


@app.command()
def unmute(fault: Fault, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Report a muted fault again."""
    _said(url, as_json, "is reported again", "mute-fault", fault=fault, muted=False)


@app.command()
def fixed(
    fault: Fault,
    version: Annotated[str | None, typer.Argument(help="The consumers' version that it is gone from.", show_default="from now on")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Say that a fault is fixed. Should that version, or a later one, fail so again, the fault is shown as back, and the log says so."""
    _said(url, as_json, f"is said to be fixed{f' in {version}' if version else ''}", "fault-fixed", fault=fault, version=version)


@app.command()
def reopen(fault: Fault, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Take back that a fault is fixed: its next failure is one like any other."""
    _said(url, as_json, "is open again", "fault-fixed", fault=fault, fixed=False)


def _said(url: str, as_json: bool, sentence: str, verb: str, **arguments: object) -> None:
    from .client import call

    found = call(url, verb, **arguments)
    if as_json:
        print_json(found)
    else:
        stdout.print(f"fault [bold]{escape(found['fault'])}[/] {escape(sentence)}")
