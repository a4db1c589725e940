"""One entry of the replicated log: a head, and what a batch writes, as bytes. No input or output.

An entry is to be applied by another node to a copy of the same journal, where it gives what the batch gave (commit/batch_writer.py). What
the batch would not write is left out. The head names the entry before by its hash: who follows sees where the past is another one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgpack

from ..commit.batch import WriteBatch
from ..commit.fault_changes import FaultChanges
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

#: Of what is behind the head. A node reads versions up to the first; a leader writes from the second on what every node reads.
VERSION: Final = 1
OLDEST: Final = 1
HASH_BYTES: Final = 32
#: What names the format, version, epoch, number, the hash of the entry before.
_HEAD: Final = struct.Struct(f">3sBQQ{HASH_BYTES}s")
_FORMAT: Final = b"HmE"
_NO_HOPS: Final = -1


class BadEntry(Exception):
    """These bytes are no entry, or one of a later version; the text says which."""


class NewerEntry(BadEntry):
    """It is of a later version than this Homing reads."""


class Position(NamedTuple):
    """A place in the log: the number of an entry, the epoch that it was written in, and its hash. Number 0 is before the first."""

    number: int
    epoch: int
    hash: bytes

    def pack(self) -> bytes:
        return _HEAD.pack(_FORMAT, OLDEST, self.epoch, self.number, self.hash)

    @classmethod
    def number_of(cls, packed: bytes | None) -> int:
        """Of a position, packed; 0 where there is none."""
        return 0 if packed is None else cls.unpack(packed).number

    @classmethod
    def unpack(cls, content: bytes) -> Position:
        """Raises BadEntry."""
        _, number, epoch, found, rest = _unpack_head(content)
        if rest:
            raise BadEntry("there is more than a position")
        return cls(number, epoch, found)


def beginning(broker_id: str) -> Position:
    """Before the first entry, which so says by its hash whose log it is."""
    return Position(0, 0, hash_of(broker_id.encode()))


def behind_a_journal(broker_id: str) -> Position:
    """Behind all that a journal had before it had a log: nobody has that without a copy of it."""
    return Position(1, 0, hash_of(b"before " + broker_id.encode()))


class Entry(NamedTuple):
    """``previous``: the hash of the entry before. ``batch``: see ``pack_batch``, of that version; empty: it writes nothing."""

    version: int
    number: int
    epoch: int
    previous: bytes
    batch: bytes

    def pack(self) -> bytes:
        return _HEAD.pack(_FORMAT, self.version, self.epoch, self.number, self.previous) + self.batch

    @classmethod
    def unpack(cls, content: bytes) -> Entry:
        """Raises BadEntry, and NewerEntry. What the batch holds is not looked at."""
        return cls(*_unpack_head(content))


def _unpack_head(content: bytes) -> tuple[int, int, int, bytes, bytes]:
    if len(content) < _HEAD.size:
        raise BadEntry("it ends within its head")
    name, version, epoch, number, found = _HEAD.unpack_from(content)
    if name != _FORMAT:
        raise BadEntry("it is no entry")
    if version > VERSION:
        raise NewerEntry(f"it is of version {version}, and this Homing reads them up to {VERSION}")
    return version, number, epoch, found, content[_HEAD.size :]


def after(before: Position, epoch: int, batch: bytes, version: int = OLDEST) -> tuple[bytes, Position]:
    """The entry behind ``before``, packed, and where the log stands with it."""
    packed = Entry(version, before.number + 1, epoch, before.hash, batch).pack()
    return packed, Position(before.number + 1, epoch, hash_of(packed))


def follow(before: Position, packed: bytes) -> tuple[Entry, Position]:
    """An entry that was read, and where the log stands with it. Raises BadEntry unless it is the one behind ``before``, and NewerEntry."""
    entry = Entry.unpack(packed)
    if entry.number != before.number + 1 or entry.previous != before.hash or entry.epoch < before.epoch:
        raise BadEntry(f"entry {entry.number} of epoch {entry.epoch} is not the one behind {before.number} of epoch {before.epoch}")
    return entry, Position(entry.number, entry.epoch, hash_of(packed))


def hash_of(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=HASH_BYTES).digest()


def pack_batch(batch: WriteBatch, reserve_up_to: int | None, version: int = OLDEST) -> bytes:
    """What the batch writes, and up to where its commit reserves ids."""
    return PACKERS[version](batch, reserve_up_to)


def _pack_1(batch: WriteBatch, reserve_up_to: int | None) -> bytes:
    """Of maps the items: msgpack has no tuples as keys."""
    messages = batch.messages
    if batch.elide and not messages.keys().isdisjoint(batch.messages_deleted):
        unused = batch.messages_deleted - batch.shared_bodies()
        messages = {message_id: message for message_id, message in messages.items() if message_id not in unused}
    details: list[Any] = []
    changes = batch.fault_changes
    packed: bytes = msgpack.packb(
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
    return packed


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


PACKERS: dict[int, Callable[[WriteBatch, int | None], bytes]] = {1: _pack_1}
UNPACKERS: dict[int, Callable[[bytes], tuple[WriteBatch, int | None]]] = {1: _unpack_1}
