"""What a batch writes, as bytes, and back. No input or output.

Applied to a copy of the same journal it gives what the batch gave (batch_writer.py). What the batch would not write is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Final

import msgpack

from ..contract import (
    AddressRecord,
    AttemptDetail,
    Attempts,
    EditRecord,
    FaultRecord,
    HopRecord,
    MessageRecord,
    OutcomeDetail,
    Outcomes,
    PolicyRecord,
    QueueRecord,
    ReferenceCounts,
    ReferenceRecord,
)
from ..declarations import DeclarationRecord
from .batch import WriteBatch
from .fault_changes import FaultChanges

#: A node reads versions up to the first; a leader writes from the second on what every node reads.
VERSION: Final = 1
OLDEST: Final = 1
#: As msgpack.packb.
Pack = Callable[[Any], bytes]


class BadEntry(Exception):
    """These bytes are no entry, or one of a later version; the text says which."""


def pack_batch(batch: WriteBatch, reserve_up_to: int | None, version: int = OLDEST, pack: Pack = msgpack.packb) -> bytes:
    """What the batch writes, and up to where its commit reserves ids."""
    return PACKERS[version](batch, reserve_up_to, pack)


def _pack_1(batch: WriteBatch, reserve_up_to: int | None, pack: Pack) -> bytes:
    """Of maps the items: msgpack has no tuples as keys."""
    messages = batch.messages
    if batch.elide and not messages.keys().isdisjoint(batch.messages_deleted):
        unused = batch.messages_deleted - batch.shared_bodies()
        messages = {message_id: message for message_id, message in messages.items() if message_id not in unused}
    details: list[Any] = []
    changes = batch.fault_changes
    return pack(
        (
            reserve_up_to,
            batch.begun_ms,
            batch.clock_ms,
            _references(batch.records(), details),
            details,
            [(sequence, source) for sequence, source in batch.sources.items() if sequence in batch.added],
            [(counts, [each for each, _ in alike]) for counts, alike in groupby(batch.changed.items(), lambda item: item[1])],
            list(batch.deleted),
            list(batch.deleted_first),
            list(batch.unspilled.items()),
            list(batch.spill_ended.items()),
            list(messages.values()),
            list(batch.messages_deleted),
            batch.attempts,
            list(batch.attempts_deleted.items()),
            batch.outcomes,
            list(batch.queue_stats.items()),
            list(batch.consumer_stats.items()),
            [
                *(list(changes.stats.items()), list(changes.records.values()), list(changes.texts.items())),
                *(list(changes.folded.items()), list(changes.keys.items()), list(changes.causes.items())),
            ],
            list(batch.queues.values()),
            list(batch.addresses.items()),
            list(batch.declarations.items()),
            list(batch.producers.items()),
            list(batch.duplicates),
            list(batch.forgotten),
            list(batch.transactions.items()),
            list(batch.policies.values()),
            list(batch.settings_rows.items()),
            list(batch.edits.values()),
            list(batch.stories.items()),
            batch.events,
        )
    )


def _references(records: Iterable[ReferenceRecord], details: list[Any]) -> list[Any]:
    """With their hops, whose details go into ``details``, once each, and are named by their places there. Of a message that stands in a row
    of its own, its number."""
    places: dict[int, int] = {}
    rows: list[Any] = []
    for *plain, hops, message, shared, spilled in records:
        known: list[tuple[int, int]] | None = None
        if hops is not None:
            known = []
            for ended, detail in hops:
                place = places.setdefault(id(detail), len(details))
                if place == len(details):
                    details.append(detail)
                known.append((ended, place))
        rows.append((*plain, known, message.message_id if shared else message, shared, spilled))
    return rows


def unpack_batch(packed: bytes, version: int = OLDEST) -> tuple[WriteBatch, int | None]:
    """What ``pack_batch`` packed, as a batch that writes it, which nobody waits for. Raises BadEntry."""
    if version not in UNPACKERS:
        raise BadEntry(f"it is of version {version}, and this Homing reads them up to {VERSION}")
    if not packed:
        return WriteBatch(), None
    try:
        return UNPACKERS[version](packed)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadEntry(f"it holds no batch ({type(error).__name__}: {error})") from error


def _unpack_1(packed: bytes) -> tuple[WriteBatch, int | None]:
    batch = WriteBatch()
    fields = msgpack.unpackb(packed, strict_map_key=False)
    reserve_up_to, batch.begun_ms = fields[:2]
    if not isinstance(reserve_up_to, int | None):
        raise TypeError("no number")
    _take_references(batch, fields[2:14])
    _take_history(batch, fields[14:19])
    _take_states(batch, fields[19:])
    return batch, reserve_up_to


def _take_references(batch: WriteBatch, fields: list[Any]) -> None:
    clock_ms, references, details, sources, changed, deleted, deleted_first, unspilled, spill_ended, messages, unused, attempts = fields
    batch.clock_ms = clock_ms
    for *plain, hops, message, shared, spilled in references:
        known: list[HopRecord] | None = None if hops is None else [(ended, details[place]) for ended, place in hops]
        of = MessageRecord(message, "", b"", None, 0, 0, None, "") if shared else MessageRecord(*message)
        row: tuple[Any, ...] = (*plain, known, of, shared, spilled)
        record = ReferenceRecord(*row)
        batch.added[record.sequence] = record
    batch.sources.update(sources)
    for counts, sequences in changed:
        batch.changed.update(dict.fromkeys(sequences, ReferenceCounts(*counts)))
    batch.deleted.update(deleted)
    batch.deleted_first.update(deleted_first)
    batch.unspilled.update(unspilled)
    batch.spill_ended.update(spill_ended)
    batch.messages.update({message[0]: MessageRecord(*message) for message in messages})
    batch.messages_deleted.update(unused)
    batch.attempts += [
        Attempts(queue_id, attempt, at_ms, AttemptDetail(*detail), [(message_id, sequence) for message_id, sequence in entries])
        for queue_id, attempt, at_ms, detail, entries in attempts
    ]


def _take_history(batch: WriteBatch, fields: list[Any]) -> None:
    attempts_deleted, outcomes, queue_stats, consumer_stats, faults = fields
    batch.attempts_deleted.update(_keyed(attempts_deleted))
    for queue_id, at_ms, outcome, (address, attempts, delivery_count, reason, targets, *more), entries in outcomes:
        detail = OutcomeDetail(address, attempts, delivery_count, reason, tuple(targets), *more)
        batch.outcomes.append(Outcomes(queue_id, at_ms, outcome, detail, [(a, b, c, d) for a, b, c, d in entries]))
    batch.queue_stats.update(_keyed(queue_stats))
    batch.consumer_stats.update(_keyed(consumer_stats))
    stats, records, texts, folded, keys, causes = faults
    changes = batch.fault_changes = FaultChanges()
    changes.stats.update(_keyed(stats))
    changes.records.update({record[0]: FaultRecord(*record) for record in records})
    changes.texts.update({fault_id: (text, traceback) for fault_id, (text, traceback) in texts})
    changes.folded.update(folded)
    changes.keys.update(keys)
    changes.causes.update(causes)


def _take_states(batch: WriteBatch, fields: list[Any]) -> None:
    queues, addresses, declarations, producers, duplicates, forgotten, transactions, policies, settings, edits, stories, events = fields
    batch.queues.update({queue[0]: QueueRecord(*queue) for queue in queues})
    batch.addresses.update({name: _or_none(AddressRecord, record) for name, record in addresses})
    batch.declarations.update(_keyed([(key, _or_none(DeclarationRecord, record)) for key, record in declarations]))
    batch.producers.update({name: None if mark is None else (mark[0], mark[1]) for name, mark in producers})
    for address, duplicate_id in duplicates:
        batch.duplicates[address, duplicate_id] = None
    batch.forgotten.update(forgotten)
    batch.transactions.update(transactions)
    batch.policies.update({policy[0]: PolicyRecord(*policy) for policy in policies})
    batch.settings_rows.update(settings)
    batch.edits.update({edit[0]: EditRecord(*edit) for edit in edits})
    batch.stories.update(_keyed([(key, None if told is None else (told[0], told[1])) for key, told in stories]))
    batch.events += [(kind, at_ms, queue, address, content) for kind, at_ms, queue, address, content in events]


def _keyed(rows: Iterable[tuple[Iterable[Any], Any]]) -> dict[Any, Any]:
    return {tuple(key): value for key, value in rows}


def _or_none(record: Callable[..., Any], fields: list[Any] | None) -> Any:
    return None if fields is None else record(*fields)


PACKERS: dict[int, Callable[[WriteBatch, int | None, Pack], bytes]] = {1: _pack_1}
UNPACKERS: dict[int, Callable[[bytes], tuple[WriteBatch, int | None]]] = {1: _unpack_1}
