"""``homing why``, ``homing delete`` and ``homing move``: one message, by its number."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ..answers.lives import Outcome, Reason, Standing
from ..core.settings.units import counted
from ..words.amounts import clock, span
from ..words.timeline import REASONS
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, Yes, confirm, escape, print_json, stdout

Number = Annotated[int, typer.Argument(help="The message's number; receive, peek and history show it.")]


def why(message_id: Number, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show why a message is not delivered now: what it waits for, who holds it, what stands in its way."""
    from .client import call

    found = call(url, "why", message_id=message_id)
    if as_json:
        print_json(found)
        return
    now_ms = time.time_ns() // 1_000_000
    for place in found["places"]:
        stdout.print(f"[bold]{message_id}[/] is in queue [bold]{escape(place['queue'])}[/], {escape(_state(place, now_ms))}")
        for reason in place["reasons"] or [{"code": "next"}]:
            stdout.print(f"  {escape(sentence(reason, now_ms))}")
    if found["ended"]:
        stdout.print(f"[bold]{message_id}[/] is in no queue any more: {escape(_ended(found['ended']))}")


def _state(place: Standing, now_ms: int) -> str:
    kind = ", transient" if place["transient"] else ""
    since = f"{place['state']}{kind}, since {span(max(0, now_ms - place['entered_at_ms']))}"
    if place["failed"]:
        since += f", {counted(place['failed'], 'failed attempt')} so far"
    death = place["died"]
    if death is None:
        return since
    reason = REASONS.get(death["reason"], death["reason"])
    return f"{since}; it was dead-lettered from {death['queue']} at {clock(death['at_ms'], date=True)}: {reason}"


def _ended(outcome: Outcome) -> str:
    to = ", ".join(outcome.get("target_queues", ()))
    return f"{outcome['outcome']} from {outcome['queue']} at {clock(outcome['at_ms'], date=True)}" + (f", to {to}" if to else "")


def sentence(reason: Reason, now_ms: int) -> str:
    """One thing that keeps a message from being delivered, for people."""
    who = reason.get("consumer") or "a consumer"
    match reason["code"]:
        case "waits-until":
            at_ms = reason["at_ms"] or 0
            return f"it waits until {clock(at_ms, date=True)}, {span(max(0, at_ms - now_ms))} from now"
        case "on-hold":
            return "it is on hold until it is released (homing retry QUEUE --release)"
        case "held":
            return _held(reason, now_ms)
        case "parked":
            return f"it is kept and not delivered: {REASONS.get(reason['reason'], reason['reason'])}, and {_nowhere(reason)}"
        case "being-written":
            return "what happened last to it is on its way to the disk"
        case "expired":
            return f"its time to live ran out at {clock(reason['at_ms'], date=True)}: the next sweep takes it"
        case "queue-paused":
            return "the queue is paused (homing queue resume)"
        case "no-consumer":
            return "nobody consumes from the queue"
        case "suspect":
            return (
                f"it was there when several connections ended: it goes alone, to one that holds nothing else of the queue{_awaited(reason)}"
            )
        case "behind":
            first = f", {reason['first']} first" if reason["first"] else ""
            least = "at least " if reason["at_least"] else ""
            return f"before it in the queue: {least}{counted(reason['messages'], 'message')}{first}"
        case "on-disk":
            return "it is on disk only, behind what is in memory"
        case "selector":
            return f"consumer {who} does not want it: {reason['selector']}"
        case "window-full":
            full = f"consumer {who} holds {reason['unsettled']:,} of {reason['prefetch']:,} it may hold"
            return f"{full}, and is slow" if reason["slow"] else full
        case "holds-others":
            return f"consumer {who} holds {counted(reason['unsettled'], 'other message')}"
        case "next":
            return "nothing stands in its way: it goes out next"
        case code:
            return f"consumer {who}: {code.replace('-', ' ')}"


def _awaited(reason: Reason) -> str:
    """What a suspect waits for; an older broker does not say."""
    if (awaited := reason.get("waits_for")) is None:
        return ""
    if awaited["has_suspect"]:
        return f"; connection {awaited['connection']} works on another such message"
    still = counted(awaited["unsettled"], "message")
    return f"; connection {awaited['connection']}, which holds {still} still, gets nothing more until it has settled them, and then this"


def _nowhere(reason: Reason) -> str:
    """Why it has not gone where dead letters go."""
    if (exchange := reason["exchange"]) is not None:
        return f"the exchange {exchange or '(default)'} for its dead letters is missing, leads to no queue, or to one that is full"
    if reason["its_own"]:
        return "the queue is where its dead letters would go"
    if (address := reason["address"]) is None:
        return "it has no dead-letter-address (homing settings set PATTERN dead-letter-address=DLA)"
    return f"{address} has no queue for it, or one that is full"


def _held(reason: Reason, now_ms: int) -> str:
    who = f"consumer {reason['consumer']} on connection {reason['connection']}" + (f" of {reason['user']}" if reason["user"] else "")
    if reason["given_at_ms"] is None:
        return f"{who} has it, unread, since {span(max(0, now_ms - (reason['since_ms'] or 0)))}"
    at = f"{who} works on it since {span(max(0, now_ms - reason['given_at_ms']))}"
    at += "; it is acknowledged in a transaction that is still open" if reason["in_transaction"] else ""
    return f"{at}; what it fails is tried again by its own redelivery policy" if reason.get("own_policy") else at


def delete(
    message_id: Number,
    queue: Annotated[str | None, typer.Option("--queue", help="From this queue only.", show_default="all that it is in")] = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Delete one message. What a consumer holds cannot be deleted."""
    from .client import call

    places = [each["queue"] for each in call(url, "why", message_id=message_id)["places"] if queue in (None, each["queue"])]
    if not places:
        where = f"queue {queue}" if queue is not None else "any queue"
        fix = f"homing history {message_id} shows what became of it"
        raise CommandError(ExitCode.NOT_FOUND, f"message {message_id} is not in {where}", fix, code="no-such-message")
    confirm(f"Message {message_id} goes for good, from {', '.join(places)}", yes)
    gone = call(url, "delete-message", message_id=message_id, queue=queue)
    if as_json:
        print_json(gone)
    else:
        stdout.print(f"[bold]{message_id}[/] is gone from [bold]{escape(', '.join(gone['queues']))}[/]")


def move(
    message_id: Number,
    queue: Annotated[str, typer.Argument(help="Where to; it has to be there.")],
    source: Annotated[str | None, typer.Option("--from", help="Where it is now, if it is in several queues.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Move one message to another queue, with its failures at 0, and so without the delay after the last. Its history stays.

    What never died keeps its due time or hold and its time to live. A queue without room for it refuses, also one that would drop others.
    """
    from .client import call

    moved = call(url, "move-message", message_id=message_id, queue=queue, source=source)
    if as_json:
        print_json(moved)
    else:
        stdout.print(f"[bold]{message_id}[/] moved from [bold]{escape(moved['source'])}[/] to [bold]{escape(moved['queue'])}[/]")
