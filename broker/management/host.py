"""What only the server can do, for it knows the files: the journal's past, backups, reload, statistics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from homing.journal.contract import Failed, FaultDescription, FaultLife

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


class Host(Protocol):
    def history(self, message_id: int) -> dict[str, Any] | None: ...

    def last_attempts(self, entries: list[tuple[int, int]]) -> list[dict[str, Any] | None]: ...

    def committed(self, transaction_id: str) -> bool: ...

    def fault_lives(self, fault_ids: Collection[int]) -> dict[int, FaultLife]: ...

    def failures(self, since_ms: int, most: int) -> Iterator[Failed]: ...

    def dead_since(self, queue_ids: list[int]) -> dict[int, tuple[int, int]]: ...

    def events(self, kinds: Sequence[str], since_ms: int, after: int, limit: int) -> list[tuple[int, str, str, dict[str, Any]]]: ...

    def count_chosen(self, queue_id: int, which: Any) -> dict[tuple[int, str | None], int]: ...

    def first_and_last(self, queue_ids: list[int]) -> dict[int, tuple[int, int]]: ...

    def counts(self, queue_id: int, since_ms: int, width_minutes: int) -> list[dict[str, int]]: ...

    def calendar(self, queue_ids: list[int], now_ms: int, parts: Sequence[tuple[int, int]]) -> dict[int, int]: ...

    def fault_hours(self, fault_ids: list[int]) -> dict[int, list[int]]: ...

    def describe_fault(self, fault_ids: list[int]) -> FaultDescription: ...

    def settings_in_force(self) -> dict[str, Any]: ...

    def record_settings(self) -> None: ...

    def statistics(self) -> dict[str, Any]: ...

    def sockets(self) -> Mapping[Any, Socket]: ...

    async def reload(self) -> list[Change]: ...

    async def backup(self, name: str) -> dict[str, Any]: ...

    def start_export(self, with_tracebacks: bool) -> dict[str, Any]: ...

    def export_status(self) -> dict[str, Any]: ...

    async def discard_export(self) -> dict[str, Any]: ...

    def export_part(self, name: str, offset: int, most: int) -> dict[str, Any]: ...

    def reports(self) -> dict[str, Any]: ...

    def report_part(self, name: str, offset: int, most: int) -> dict[str, Any]: ...


# -- at once -------------------------------------------------------------------------------------------------------------


@needs((Right.MONITOR, everywhere))
def settings(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    read.only(arguments)
    return host.settings_in_force()


@needs((Right.MONITOR, everywhere))
def statistics(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host, meter: Meter) -> Steps[dict[str, Any]]:
    read.only(arguments)
    messages = yield from meter.messages_in_steps()
    figures = broker.figures()
    limits = {name: level._asdict() for name, level in figures.levels.items()}
    return {"messages": messages, **meter.open(), "producers_wait": waiting(figures), "limits": limits, **host.statistics()}


# -- reads of the journal, once it knows everything up to now ---------------------------------------------------------------


@shown_only(Right.BROWSE)
async def last_attempts(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> list[dict[str, Any] | None]:
    """Without tracebacks: ``history`` has them. In queues that whoever asks may not browse: ``queue``, and ``refused``: the right."""
    read.only(arguments, "stays")
    entries = read.entries(arguments)
    found: list[dict[str, Any] | None] = await in_thread(lambda: host.last_attempts(entries))
    browsable = [each is None or broker.access.may(who, Right.BROWSE, Place("queue", (each["queue"],))) for each in found]
    refused = {"refused": str(Right.BROWSE)}
    found = [each if told or each is None else {"queue": each["queue"], **refused} for each, told in zip(found, browsable, strict=True)]
    for fault in [each["fault"] for each in found if each is not None and each.get("fault")]:
        fault.pop("traceback", None)
    return found


@free
async def transaction_outcome(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    """Its id is known to nobody but the client that made it."""
    read.only(arguments, "transaction_id")
    transaction_id = read.text(arguments, "transaction_id")
    return {"outcome": "committed" if await in_thread(lambda: host.committed(transaction_id)) else "unknown"}


async def in_thread(job: Callable[[], Any]) -> Any:
    """What the journal says."""
    try:
        return await asyncio.to_thread(job)
    except Refused:
        raise
    except Exception as error:  # a damaged row, a closed file: the caller is answered, the broker goes on
        log.exception("journal-unreadable: the journal could not be read")
        raise Refused("history-unreadable", f"the journal could not be read: {error}", "run homing journal check") from None


async def in_turns(broker: Broker, steps: Steps[T]) -> T:
    """What work in steps comes to, whose turn it is with all other such work."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def over(settle: Callable[[Any], None], value: object) -> None:
        if not answer.done():  # else nobody waits for it any more
            settle(value)

    broker.work.begin(steps, partial(over, answer.set_result), partial(over, answer.set_exception))
    return await answer


# -- the process ---------------------------------------------------------------------------------------------------------


@needs((Right.ADMINISTER, everywhere), audited=True)
async def backup(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    read.only(arguments, "name")
    return await host.backup(read.text(arguments, "name"))


@needs((Right.ADMINISTER, everywhere), audited=True)
async def reload(broker: Broker, who: Who, arguments: dict[str, Any], *, host: Host) -> dict[str, Any]:
    read.only(arguments)
    return {"changed": [change._asdict() for change in await host.reload()]}
