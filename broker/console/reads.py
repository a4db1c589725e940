"""What pages and the API show of a broker where that takes more than one call of it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, NamedTuple, TypeVar

import homing

from ..answers.failures import Message
from ..answers.inventory import Statistics
from ..answers.lives import History, Source
from ..answers.parts import Properties
from ..words.amounts import clock
from ..words.deaths import Death, deaths_in
from ..words.prospects import chances, prospect, sources_of
from ..words.timeline import At, Event, life, verdict
from .overview import Answers, Finding, findings

T = TypeVar("T")
#: Fault groups, and queues with dead letters, that the overview looks at: those that do most damage.
_MOST_FAULTS: Final = 100
#: Entries that the broker gives at once.
_MOST_OF_A_PAGE: Final = 250
#: Of a thousand messages that are looked at one by one, which are some 30 ms each.
_LOOK_PAGES: Final = 4
#: Queues that it looks at each; where there are more it looks at none.
MOST_QUEUES: Final = 1000


async def listing(connection: homing.Connection, verb: str, most: int, **arguments: object) -> tuple[list[Any], bool]:
    """The first of what a call has with pages, and whether there is more."""
    found: list[Any] = []
    after = None
    while len(found) < most:
        page = await connection.call(verb, **arguments, limit=min(_MOST_OF_A_PAGE, most - len(found)), after=after)
        found += page["items"]
        after = page["next"]
        if after is None:
            return found, False
    return found, True


async def if_told(asked: Awaitable[T]) -> T | None:
    """None where whoever asks may not know."""
    try:
        return await asked
    except homing.CallError as error:
        if error.code != "access-refused":
            raise
        return None


async def is_there(connection: homing.Connection, queue: str) -> bool:
    """Whether there is a queue of that name, of which whoever asks may not know more."""
    try:
        await connection.call("queue", queue=queue)
    except homing.CallError as error:
        return error.code != "no-such-queue"
    return True


class Overview(NamedTuple):
    """``untold``: of what nothing may be known; ``looked_at_queues``: whether they were few enough for that."""

    statistics: Statistics | None
    findings: list[Finding]
    untold: list[str]
    looked_at_queues: bool


async def overview(connection: homing.Connection, now_ms: int) -> Overview:
    statistics: Statistics | None = await if_told(connection.call("statistics"))
    few = statistics is not None and statistics["queues"] <= MOST_QUEUES
    faults = await if_told(connection.call("faults", queue=None, limit=_MOST_FAULTS, after=0))
    dead = await if_told(listing(connection, "dead-letters", _MOST_FAULTS))
    queues = await if_told(listing(connection, "queues", MOST_QUEUES)) if few else None
    answers = Answers(
        statistics,
        faults and faults["items"],
        dead and dead[0],
        await if_told(connection.call("retrying")),
        await if_told(connection.call("redrives")),
        queues and queues[0],
    )
    untold = [name for name, said in answers._asdict().items() if said is None and (name != "queues" or few)]
    return Overview(statistics, findings(answers, now_ms), untold, few)


class Letters(NamedTuple):
    """``rows``: messages, each with why it is a dead letter; None where it is none."""

    rows: list[tuple[Message, Death | None]]
    looked_at: int
    next: int | None


async def letters(connection: homing.Connection, queue: str, wanted: Properties, **page: Any) -> Letters:
    """Of a queue those that the filter takes; ``page``: limit, after, newest_first. One that no index answers looks at some thousands."""
    found = await connection.call("peek-dead-letters", queue=queue, filter=wanted, pages=_LOOK_PAGES, **page)
    deaths = await deaths_in(connection, found)
    return Letters(list(zip(found["messages"], deaths, strict=True)), found["looked_at"], found["next"])


class Removal(NamedTuple):
    """What a deletion would take: so many, or at most so many, and some of them."""

    messages: int
    exact: bool
    samples: Letters


async def removal(connection: homing.Connection, queue: str, wanted: Properties, samples: int) -> Removal:
    plan = await connection.call("reckon-redrive", queue=queue, filter=wanted, to=None)
    found = await letters(connection, queue, wanted, limit=samples)
    dead = {each["message_id"] for each in plan["samples"]}
    return Removal(plan["messages"], plan["exact"], found._replace(rows=[row for row in found.rows if row[0]["message_id"] in dead]))


class Life(NamedTuple):
    """``found``: as the broker tells it; ``sources``: where it would be sent back to, each with its ``chances`` there."""

    found: History
    events: list[Event]
    sources: list[Source]
    verdict: str | None


async def life_of(connection: homing.Connection, message_id: int, now_ms: int, at: At = clock) -> Life:
    found: History = await connection.call("history", message_id=message_id)
    sources = sources_of(found)
    for source in sources:
        explained = await if_told(connection.call("explain", address=source["address"]))
        source["chances"] = chances(source if explained is None else prospect(source, explained, found))
    return Life(found, life(found, now_ms, at), sources, verdict(found) if sources else None)
