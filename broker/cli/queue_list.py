"""``homing queues``: what stands in the queues, and what became of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group, RenderableType

from ..answers.inventory import Queue
from ..answers.parts import Fields
from ..core.amqp.vhost import split
from ..core.settings.wildcard import ANY_WORDS, ONE_WORD, pattern_matches, pattern_problem
from .output import DEFAULT_URL, Json, Url, escape
from .tables import NOTHING, Column, Listing, Wide, amount
from .watch import Watch, show

if TYPE_CHECKING:
    import homing

#: (key of the queue map, heading, rank), counts first to last as a message lives; what none has is left out from the seventh on.
_COUNTS: Final = (
    ("pending", "pending", 0),
    ("dead", "dead", 1),
    ("delivering", "delivering", 3),
    ("scheduled", "scheduled", 3),
    ("parked", "parked", 1),
    ("consumers", "consumers", 1),
    ("on_hold", "on hold", 4),
    ("sent", "sent", 5),
    ("moved_in", "moved in", 6),
    ("succeeded", "succeeded", 5),
    ("retried", "retried", 6),
    ("dead_lettered", "dead-lettered", 4),
    ("expired", "expired", 6),
    ("dropped", "dropped", 6),
    ("purged", "purged", 7),
    ("moved_out", "moved out", 7),
    ("edited", "edited", 7),
)
_ALWAYS: Final = 6
_STYLES: Final = {"dead": "red", "retried": "yellow", "dead_lettered": "red", "parked": "red", "succeeded": "green"}


class Order(StrEnum):
    """What queues are sorted by; the largest first, names from A to Z."""

    NAME = "name"
    MESSAGES = "messages"
    PENDING = "pending"
    DEAD = "dead"
    DELIVERING = "delivering"
    SCHEDULED = "scheduled"
    PARKED = "parked"
    CONSUMERS = "consumers"
    FAILED = "failed"
    DEAD_LETTERED = "dead-lettered"
    IN = "in"
    OUT = "out"
    MEMORY = "memory"

    def of(self, queue: Fields) -> float:
        match self:
            case Order.NAME:
                return 0
            case Order.IN:
                return _in(queue)
            case Order.OUT:
                return float(queue["rates"]["succeeded"])
            case Order.MEMORY:
                return float(queue["memory_bytes"])
        return float(queue[self.value.replace("-", "_")])


def queues(
    pattern: Annotated[
        str | None,
        typer.Argument(help="Only names with this in them, or that fit its wildcards: 'orders.#'.", show_default="all"),
    ] = None,
    sort: Annotated[Order, typer.Option("--sort", help="What to sort by: those with the most come first.")] = Order.NAME,
    top: Annotated[int | None, typer.Option("--top", min=1, help="Only the first so many.", show_default="all")] = None,
    watch: Watch = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """All queues: what waits in them, what comes in and succeeds a second, and what became of the rest since the broker started."""
    if pattern is not None and _has_wildcards(pattern) and (problem := pattern_problem(pattern)):
        raise typer.BadParameter(f"{pattern!r} cannot be a pattern: {problem}")

    async def ask(connection: homing.Connection) -> list[Queue]:
        from .client import seen

        found = await seen(connection, "queues")
        fitting = [each for each in found if pattern is None or _fits(pattern, each["name"])]
        found[:] = sorted(fitting, key=lambda each: (-sort.of(each), each["name"]))[:top]
        return found

    show(url, ask, partial(_draw, pattern), as_json=as_json, watch=watch, everything=wide)


def _has_wildcards(pattern: str) -> bool:
    return any(word in (ONE_WORD, ANY_WORDS) for word in pattern.split("."))


def _fits(pattern: str, name: str) -> bool:
    """In virtual hosts also by the name that it has there."""
    if not _has_wildcards(pattern):
        return pattern in name
    return pattern_matches(pattern, name) or pattern_matches(pattern, split(name)[1])


def _draw(pattern: str | None, found: Sequence[Fields]) -> RenderableType:
    if not found:
        none = "there is no queue yet; the first message or consumer makes one" if pattern is None else f"no queue fits {escape(pattern)}"
        return f"[dim]{none}[/]"
    counts = [*_COUNTS[:_ALWAYS], *(each for each in _COUNTS[_ALWAYS:] if any(queue[each[0]] for queue in found))]
    named = {"": _state, "address": _address, "policy": _policy, "owner": _owner}
    texts = {heading: cells for heading, of in named.items() if any(cells := [of(queue) for queue in found])}
    state = texts.pop("", None)
    columns = [Column("queue"), *([Column("state", 1)] if state else [])]
    columns += [Column(heading, rank, number=True) for _, heading, rank in counts[:_ALWAYS]]
    columns += [Column("in/s", 2, number=True), Column("out/s", 2, number=True)]
    columns += [Column(heading, rank, number=True) for _, heading, rank in counts[_ALWAYS:]]
    columns += [Column(heading, 8) for heading in texts]
    rows = []
    for at, queue in enumerate(found):
        numbers = [_count(key, queue[key]) for key, *_ in counts]
        rates = [_rate(_in(queue)), _rate(queue["rates"]["succeeded"])]
        rest = [cells[at] for cells in texts.values()]
        row = [f"[bold]{escape(queue['name'])}[/]", *([state[at]] if state else [])]
        rows.append([*row, *numbers[:_ALWAYS], *rates, *numbers[_ALWAYS:], *rest])
    limits = dict.fromkeys(queue["blocked"] for queue in found if queue["blocked"] not in (None, "queue-full"))
    said = [f"[red]producers wait[/]: {', '.join(limits)} [dim](homing status)[/]"] if limits else []
    return Group(Listing(columns, rows), *said)


def _state(queue: Fields) -> str:
    """Its own; what holds back producers of all queues is said once."""
    said = ["[yellow]paused[/]"] if queue["paused"] else []
    return " ".join([*said, "[red]full[/]"] if queue["blocked"] == "queue-full" else said)


def _address(queue: Fields) -> str:
    return f"[dim]{escape(queue['address'])}[/]" if queue["address"] != queue["name"] else ""


def _policy(queue: Fields) -> str:
    return f"[dim]{escape(queue['policy'])}[/]" if queue["policy"] else ""


def _owner(queue: Fields) -> str:
    return escape(", ".join(filter(None, (queue["owner"], queue["runbook"]))))


def _in(queue: Fields) -> float:
    return float(queue["rates"]["sent"] + queue["rates"]["moved_in"])


def _rate(a_second: float) -> str:
    return f"{a_second:,.1f}" if a_second else NOTHING


def _count(key: str, value: int) -> str:
    style = _STYLES.get(key)
    return f"[{style}]{value:,}[/]" if style and value else amount(value)
