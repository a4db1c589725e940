"""What an orderly stop writes of messages that are not durable, and what the next start says of it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from homing.journal.contract import QueueStat
from homing.journal.declarations import DeclarationRecord
from homing.journal.journal import Journal

from ..broker import Broker
from ..config.config import Config
from ..core.message import REFERENCE_BYTES, MessageReference, Where
from ..core.queue import Queue
from ..topology.amqp.arguments import is_temporary
from ..words.safe_text import safe

log = logging.getLogger("homing")

#: Of one commit: bodies, properties, and what each message takes beside them.
COMMIT_BYTES: Final = 4 << 20
#: The declaration that tells the next start.
_KIND: Final = "upkeep"
_NAME: Final = "kept at stop"
_TEMP_LIMIT: Final = "temp-limit"
#: The part of the disk for messages that are not durable.
_SHARE_OF_DISK: Final = 10
#: So many queues stand in one line of the log.
_MOST_NAMES: Final = 20
_SEQUENCE: Final = attrgetter("sequence")


class Kept(NamedTuple):
    """Messages that were not durable, by queue: those that the stop before wrote, and those that it did not."""

    kept: dict[str, int]
    not_kept: dict[str, int]

    @property
    def any(self) -> bool:
        return bool(self.kept or self.not_kept)

    def said(self) -> str:
        """``kept 7 (orders 5, mails 2), not kept 3 (mails 3)``."""
        parts = (("kept", self.kept), ("not kept", self.not_kept))
        return ", ".join([f"{what} {sum(counts.values())} ({_named(counts)})" for what, counts in parts if counts])


def end_clients(broker: Broker) -> None:
    """What they hold comes back as at a clean close: nobody is blamed for our stopping. What they send again after the start is known."""
    for producer in [each for connection in broker.connections.all.values() for each in connection.producers.values()]:
        if producer.used_at_ms:
            broker.journal.batch.producer_high_watermark(producer.key, producer.high_watermark, producer.used_at_ms)
    broker.duplicate_ids.record_all()
    for connection in list(broker.connections.all.values()):
        broker.connections.disconnect(connection, lost=False)
    broker.settling.finish()
    move_out_of_transient(broker)


def move_out_of_transient(broker: Broker) -> None:
    """Queues that are not durable end with the broker: what is parked in them does not end with them."""
    for queue in list(broker.post_office.queues.values()):
        if queue.parked and not queue.durable:
            broker.office.move_out(queue, "purged")


async def keep_at_stop(broker: Broker, journal: Journal, until_s: float) -> Kept:
    """Writes what lies in durable queues, oldest first, a commit at a time, until it is all there or the time is over. Nothing else
    happens to these messages any more.
    """
    kept, not_kept = Counter[str](), Counter[str]()
    loop = asyncio.get_running_loop()
    broker.to_disk.stopped = True
    broker.going_round.write_all()
    broker.recorder.write_rounds()
    for queue, (number, _) in broker.references.spilled.items():
        if keeps(queue):
            # All of these are older than what is in memory, or stand behind it; to keep them is to say so.
            broker.recorder.passing.keep_spilled(queue, number, broker.now_ms())
            kept[queue.name] += number
        else:
            not_kept[queue.name] += number
    for part in _parts(_in_memory(broker, not_kept)):
        names = Counter([reference.queue.name for reference in part])
        if loop.time() >= until_s or journal.space_low:
            not_kept += names
            continue
        broker.references.keep([reference for reference in part if reference.where is not Where.GONE])
        kept += names
        try:
            async with asyncio.timeout_at(until_s):
                await journal.flush()
        except TimeoutError:
            # It is written all the same: the journal closes with what it has.
            continue
    _count_lost(broker)
    found = Kept(dict(kept), dict(not_kept))
    if found.any:
        broker.journal.batch.declare(DeclarationRecord(_KIND, _NAME, found._asdict()))
        say = log.warning if not_kept else log.info
        say("kept-at-stop: messages that were not durable: %s", found.said())
    return found


def _count_lost(broker: Broker) -> None:
    """What is still only in memory, or on disk for want of it, is gone when the broker is."""
    references, transient, now_ms = broker.references, broker.recorder.transient, broker.now_ms()
    for queue in broker.post_office.queues.values():
        number = sum([not each.durable and each.where is not Where.GONE for each in queue.references.values()])
        if not keeps(queue):
            number += references.spilled.get(queue, (0, 0))[0]
        if number:
            transient.add(queue, QueueStat.LOST, number, now_ms)
    transient.write()


def at_last_stop(declarations: Iterable[DeclarationRecord]) -> Kept:
    """What the stop before left word of."""
    content: Any = next((record.content for record in declarations if (record.kind, record.name) == (_KIND, _NAME)), {})
    return Kept(content.get("kept", {}), content.get("not_kept", {}))


def tell(broker: Broker, kept: Kept) -> None:
    """Once."""
    if kept.any:
        broker.journal.batch.delete_declaration(_KIND, _NAME)
        log.info("kept-at-stop: of the messages that were not durable the stop before had: %s", kept.said())


def temp_limit(config: Config, journal: Journal) -> Callable[[], int]:
    """The most of what is not durable that is on disk for want of memory: unless said, a tenth of the most that was free since the start,
    so that a disk that was full then does not stop those who send it until the next one."""
    said, reserve, statistics = config.broker.temp_limit_bytes, config.journal.disk_reserve_bytes, journal.statistics
    most = 0

    def follow() -> int:
        nonlocal most
        most = max(most, (statistics.disk_free_bytes - reserve) // _SHARE_OF_DISK)
        return most

    return follow if said is None else lambda: said


def tell_of_temp_limit(broker: Broker, config: Config, declarations: Iterable[DeclarationRecord]) -> None:
    """Once: what ``temp-limit`` was of before."""
    if config.broker.temp_limit_bytes is None or any((each.kind, each.name) == (_KIND, _TEMP_LIMIT) for each in declarations):
        return
    broker.journal.batch.declare(DeclarationRecord(_KIND, _TEMP_LIMIT, {}))
    log.warning(
        "temp-limit-changed: broker.temp-limit is now the most of what is not durable that is on disk, where memory is short; it no longer"
        " limits what is in memory (docs/settings.md)"
    )


def keeps(queue: Queue) -> bool:
    """Whether an orderly stop keeps what is in it: not where it ends with the broker or with who uses it, nor where that is not wanted."""
    return queue.durable and not is_temporary(queue) and queue.settings.keep_at_stop


def _in_memory(broker: Broker, not_kept: Counter[str]) -> list[MessageReference]:
    """What is to be written, oldest first."""
    found: list[MessageReference] = []
    for queue in broker.post_office.queues.values():
        passing = [each for each in queue.references.values() if not each.durable and each.where is not Where.GONE]
        if keeps(queue):
            found += passing
        elif passing:
            not_kept[queue.name] += len(passing)
    found.sort(key=_SEQUENCE)
    return found


def _parts(references: list[MessageReference]) -> Iterator[list[MessageReference]]:
    """As many as one commit takes, one at least."""
    part: list[MessageReference] = []
    size = 0
    for reference in references:
        cost = reference.message.weight + REFERENCE_BYTES
        if part and size + cost > COMMIT_BYTES:
            yield part
            part, size = [], 0
        part.append(reference)
        size += cost
    if part:
        yield part


def _named(counts: dict[str, int]) -> str:
    most = sorted(counts.items(), key=lambda each: -each[1])
    more = f" and {len(most) - _MOST_NAMES} more queues" if len(most) > _MOST_NAMES else ""
    return ", ".join([f"{safe(name)} {number}" for name, number in most[:_MOST_NAMES]]) + more
