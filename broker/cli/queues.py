"""``homing queues``, ``homing peek`` and ``homing redrive``: what stands in the queues, and sending it back."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from rich.table import Table

from .output import DEFAULT_URL, Json, Url, body_json, body_text, clock, counted, escape, note, print_json, stdout

#: (key of the queue map, heading): what can be said of a queue in one line, counts first to last as a message lives.
COUNTS: Final = (
    ("pending", "pending"),
    ("delivering", "delivering"),
    ("scheduled", "scheduled"),
    ("parked", "parked"),
    ("consumers", "consumers"),
    ("sent", "sent"),
    ("succeeded", "succeeded"),
    ("failed", "failed"),
    ("dead_lettered", "dead-lettered"),
    ("expired", "expired"),
)


def queues(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """All queues with what waits in them and what became of the rest."""
    from .client import listing

    found = listing(url, "queues")
    if as_json:
        print_json(found)
        return
    if not found:
        note("there is no queue yet; the first message or consumer makes one")
        return
    shown = [(key, heading) for key, heading in COUNTS if any(key in queue for queue in found)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("queue")
    for _, heading in shown:
        table.add_column(heading, justify="right")
    for queue in sorted(found, key=lambda each: str(each["name"])):
        name = f"[bold]{escape(queue['name'])}[/]" + ("  [yellow]paused[/]" if queue.get("paused") else "")
        if queue.get("address", queue["name"]) != queue["name"]:
            name += f"  [dim]on {escape(queue['address'])}[/]"
        if queue.get("policy"):
            name += f"  [dim]policy {escape(queue['policy'])}[/]"
        table.add_row(name, *(_number(key, queue.get(key, 0)) for key, _ in shown))
    stdout.print(table)


def _number(key: str, value: int) -> str:
    if not value:
        return "[dim]·[/]"
    style = {"failed": "yellow", "dead_lettered": "red", "parked": "red", "succeeded": "green"}.get(key)
    return f"[{style}]{value:,}[/]" if style else f"{value:,}"


def peek(
    queue: Annotated[str, typer.Argument(help="The queue to look into.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=10_000, help="At most this many.")] = 10,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Look at what waits in a queue, in order, without taking it. With [bold]--json[/], one JSON object a line."""
    from .client import call

    messages, after = list[dict[str, Any]](), None
    while len(messages) < count:
        page = call(url, "peek", queue=queue, limit=min(100, count - len(messages)), after=after)
        messages += page["messages"]
        after = page["next"]
        if after is None:
            break
    if as_json:
        for message in messages:
            print_json({**message, "body": body_json(message["body"])} if "body" in message else message, line=True)
        return
    for message in messages:
        _show(message)
    if not messages:
        note(f"{queue} is empty")


def _show(message: dict[str, Any]) -> None:
    """One waiting message: its number, how often it was tried, when it is due; then its body."""
    parts = [f"[bold cyan]{message['message_id']}[/]", escape(str(message.get("address", "")))]
    if message.get("failed"):
        parts.append(f"[yellow]failed {message['failed']} ×[/]")
    if message.get("due_at_ms") is not None:
        parts.append(f"[magenta]due {clock(message['due_at_ms'])}[/]")
    state = message.get("state")
    if isinstance(state, str) and state not in ("ready", "pending"):
        parts.append(f"[dim]{escape(state)}[/]")
    stdout.print("  ".join(parts))
    if isinstance(message.get("body"), bytes):
        stdout.print(body_text(message["body"], limit=400), markup=False, style="dim")


def redrive(
    queue: Annotated[str, typer.Argument(help="A dead-letter queue.")],
    message_id: Annotated[list[int] | None, typer.Option("--id", help="Only this message. Repeatable.")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send dead letters back to the queues they died in, with their failure count at 0 again. Their history stays."""
    from .client import call

    value = call(url, "redrive", queue=queue, message_ids=message_id)
    if as_json:
        print_json(value)
    else:
        stdout.print(f"{counted(value['messages'], 'message', style='bold')} sent back from [bold]{escape(queue)}[/]")
