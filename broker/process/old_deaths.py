"""Dead letters of before their causes were kept get them, some at a time, while the broker serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from homing.journal.contract import DEATHS
from homing.journal.declarations import DeclarationRecord
from homing.journal.read.old_deaths import Cursor, OldDeath

from ..broker import Broker

log = logging.getLogger("homing")

_KIND: Final = "upkeep"
_NAME: Final = "old deaths"
_AT_A_TIME: Final = 200
Read = Callable[[Cursor, int], tuple[list[OldDeath], Cursor | None]]


def are_left(declarations: Iterable[DeclarationRecord]) -> bool:
    """Whether the journal may have some (migration 12)."""
    return any((record.kind, record.name) == (_KIND, _NAME) for record in declarations)


async def find_causes(broker: Broker, read: Read) -> None:
    """``read`` is called in a thread. What goes wrong is logged, and begins anew at the next start."""
    after: Cursor | None = (0, 0)
    number = 0
    try:
        while after is not None:
            deaths, after = await asyncio.to_thread(read, after, _AT_A_TIME)
            _keep(broker, deaths)
            number += len(deaths)
            on_disk = asyncio.Event()
            broker.journal.when_readable(on_disk.set)
            await on_disk.wait()
    except Exception:
        log.exception("old-deaths-unread: why dead letters of an older version are there could not be read; the next start tries again")
        return
    broker.journal.batch.delete_declaration(_KIND, _NAME)
    if number:
        log.info("old-deaths: why %d dead letters of an older version are there is known now", number)


def _keep(broker: Broker, deaths: list[OldDeath]) -> None:
    causes: dict[int, int] = {}
    for death in deaths:
        if death.reason in DEATHS:
            cause = broker.fault_groups.dead_lettered_before(death.died_in, death.fault, death.reason, death.message_id, death.at_ms)
            causes[death.sequence] = cause
            queue = broker.post_office.queues_by_id.get(death.queue_id)
            reference = queue.references.get(death.sequence) if queue is not None else None
            if reference is not None and not reference.cause:
                reference.cause = cause
            if queue is not None:
                broker.fault_groups.dead_letters.count(queue, cause, 1)
    broker.journal.batch.faults().causes.update(causes)
