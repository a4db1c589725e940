"""What only the server can do, for it knows the files: the journal's past, backups, reload, statistics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, Protocol, TypeVar

from homing.journal.contract import Failed, FaultDescription, FaultLife

from ..answers.administration import Backup, ChangedValue, Export, OutcomeOfTransaction, Part, Reloaded, Reports
from ..answers.inventory import Level, ProcessStatistics, Statistics
from ..answers.lives import Attempt, History, RefusedAttempt
from ..answers.parts import Properties
from ..auth.access import Who, everywhere, free, needs, shown_only
from ..broker import Broker
from ..config.changes import Change
from ..core.rights import Place, Right
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .connections import Socket
from .statistics import Meter, waiting

log = logging.getLogger("homing")

T = TypeVar("T")
#: Queue entries that one call asks about.
_MOST_ENTRIES: Final = 100


class Past(Protocol):
    """What the journal tells, in a thread: short reads (JournalReader)."""

    def history(self, message_id: int) -> History | None: ...

    def last_attempts(self, entries: list[tuple[int, int]]) -> list[Attempt | None]: ...

    def committed(self, transaction_id: str) -> bool: ...

    def fault_lives(self, now_ms: int, fault_ids: Collection[int]) -> dict[int, FaultLife]: ...

    def failures(self, since_ms: int, most: int) -> Iterator[Failed]: ...

    def dead_since(self, queue_ids: list[int]) -> dict[int, tuple[int, int]]: ...

    def events(self, kinds: Sequence[str], since_ms: int, after: int, limit: int) -> list[tuple[int, str, str, Properties]]: ...

    def count_chosen(self, queue_id: int, which: object) -> dict[tuple[int, str | None], int]: ...

    def first_and_last(self, queue_ids: list[int], now_ms: int) -> dict[int, tuple[int, int]]: ...

    def counts(self, queue_id: int, since_ms: int, width_minutes: int) -> list[dict[str, int]]: ...

    def calendar(self, queue_ids: list[int], now_ms: int, parts: Sequence[tuple[int, int]]) -> dict[int, int]: ...

    def fault_hours(self, fault_ids: list[int], now_ms: int) -> dict[int, list[int]]: ...

    def describe_fault(self, fault_ids: list[int], now_ms: int) -> FaultDescription: ...


class Files(Protocol):
    """What it keeps in files for its clients. Parts and lists are read in a thread."""

    def start_export(self, with_tracebacks: bool) -> Export: ...

    def export(self) -> Export: ...

    async def discard_export(self) -> Export: ...

    def export_part(self, name: str, offset: int, most: int) -> Part: ...

    def reports(self) -> Reports: ...

    def report_part(self, name: str, offset: int, most: int) -> Part: ...


class Process(Protocol):
    def past(self) -> Past: ...

    def settings_in_force(self) -> Properties: ...

    def record_settings(self) -> None: ...

    def statistics(self) -> ProcessStatistics: ...

    def sockets(self) -> Mapping[object, Socket]: ...

    async def reload(self) -> list[Change]: ...

    async def backup(self, name: str) -> Backup: ...

    @property
    def files(self) -> Files: ...


# -- at once -------------------------------------------------------------------------------------------------------------


@needs((Right.MONITOR, everywhere))
def settings(broker: Broker, who: Who, *, process: Process) -> Properties:
    return process.settings_in_force()


@needs((Right.MONITOR, everywhere))
def statistics(broker: Broker, who: Who, *, process: Process, meter: Meter) -> Steps[Statistics]:
    messages = yield from meter.messages_in_steps()
    figures = broker.statistics.figures()
    limits: dict[str, Level] = {name: {"used": each.used, "limit": each.limit} for name, each in figures.levels.items()}
    return {"messages": messages, **meter.open(), "producers_wait": waiting(figures), "limits": limits, **process.statistics()}


def _entries(_: Broker, name: str, value: object) -> list[tuple[int, int]]:
    """(message id, sequence) of each, as ``hops`` name them."""
    if type(value) is list and len(value) <= _MOST_ENTRIES and all(type(each) is list and len(each) == 2 for each in value):
        found = [(message_id, sequence) for message_id, sequence in value]
        if all(type(number) is int and 0 <= number <= read.MOST for each in found for number in each):
            return found
    raise Refused("invalid-argument", f"{name} must be at most {_MOST_ENTRIES} pairs of message id and sequence", "hops name both")


# -- reads of the journal, once it knows everything up to now ---------------------------------------------------------------


@shown_only(Right.BROWSE)
async def last_attempts(
    broker: Broker, who: Who, *, process: Process, stays: Annotated[list[tuple[int, int]], _entries]
) -> list[Attempt | RefusedAttempt | None]:
    """Without tracebacks: ``history`` has them. In queues that whoever asks may not browse: ``queue``, and ``refused``: the right."""
    found: list[Attempt | RefusedAttempt | None] = []
    for each in await in_thread(lambda: process.past().last_attempts(stays)):
        if each is None or broker.access.may(who, Right.BROWSE, Place("queue", (each["queue"] or "",))):
            if each is not None and (fault := each.get("fault")):
                fault.pop("traceback", None)
            found.append(each)
        else:
            found.append({"queue": each["queue"], "refused": str(Right.BROWSE)})
    return found


@free
async def transaction_outcome(broker: Broker, who: Who, *, process: Process, transaction_id: read.Text) -> OutcomeOfTransaction:
    """Its id is known to nobody but the client that made it."""
    return {"outcome": "committed" if await in_thread(lambda: process.past().committed(transaction_id)) else "unknown"}


async def in_thread(job: Callable[[], T]) -> T:
    """What the journal says."""
    try:
        return await asyncio.to_thread(job)
    except Refused:
        raise
    except Exception as error:  # a damaged row, a closed file: the caller is answered, the broker goes on
        log.exception("journal-unreadable: the journal could not be read")
        raise Refused("history-unreadable", f"the journal could not be read: {error}", "run homing journal check") from None


async def in_steps(broker: Broker, steps: Steps[T]) -> T:
    """What work in steps comes to, beside all other such work."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def over(settle: Callable[[Any], None], value: object) -> None:
        if not answer.done():  # else nobody waits for it any more
            settle(value)

    broker.work.begin(steps, partial(over, answer.set_result), partial(over, answer.set_exception))
    return await answer


# -- the process ---------------------------------------------------------------------------------------------------------


@needs((Right.ADMINISTER, everywhere), audited=True)
async def backup(broker: Broker, who: Who, *, process: Process, name: read.Text) -> Backup:
    return await process.backup(name)


@needs((Right.ADMINISTER, everywhere), audited=True)
async def reload(broker: Broker, who: Who, *, process: Process) -> Reloaded:
    return {"changed": [_changed(*each) for each in await process.reload()]}


def _changed(path: str, before: object, after: object, needs_restart: bool) -> ChangedValue:
    return {"path": path, "before": before, "after": after, "needs_restart": needs_restart}
