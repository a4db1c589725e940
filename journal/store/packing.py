"""A message, and the maps beside it, as msgpack blobs, with the checksum that proves a body on the way back."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from zlib import crc32

import msgpack

from ..contract import AttemptDetail, HopDetail, HopRecord, MessageRecord, OutcomeDetail, make

_MESSAGE_FIELDS: Final = len(MessageRecord._fields)
_NO_OUTCOME: dict[str, Any] = {
    "address": None,
    "attempts": 0,
    "delivery_count": 0,
    "target_queues": (),
}
_ADDRESS, _PRODUCER = MessageRecord._fields.index("address"), MessageRecord._fields.index("producer")

#: What every hop tells (broker.core.dead_letter.hop), besides when the message was to expire there, if ever.
_TEXTS, _NUMBERS = ("reason", "queue", "address", "routing_type"), ("at_ms", "attempts", "delivery_count")
#: Milliseconds beyond this are no time, nor do they fit into an export's microseconds.
_MOST = 1 << 53
#: Six 64-bit numbers: delivery_count, failed, assigned, state, due_at_ms, expires_at_ms.
_COUNTS = struct.Struct("<6q")
_NO_TIME = -(1 << 63)
#: The largest prime of 32 bits: no single flipped bit, wherever it is, changes a sum by a multiple of it.
_PRIME = 4_294_967_291
#: The rank of the highest priority that a queue can have, 255; that of the lowest is 9.
FIRST_RANK: Final = 9 - 255


class Damaged(Exception):
    """A blob that is not what was written. The text says why, as the second half of a sentence."""


def pack(value: Any) -> bytes:
    """Any map or list of ours. A value that msgpack cannot take is a fault of the caller's checks and raises."""
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(blob: bytes) -> Any:
    try:
        return msgpack.unpackb(blob, strict_map_key=False)
    except (ValueError, TypeError) as error:
        raise Damaged(f"holds no msgpack ({error})") from error


def outcome_map(detail: OutcomeDetail) -> dict[str, Any]:
    """An outcome as it is stored: what is not known, or not there, takes no room."""
    return {name: value for name, value in zip(detail._fields, detail, strict=True) if value is not None and value != ()}


def unpack_attempt(blob: bytes) -> AttemptDetail:
    """Raises Damaged."""
    try:
        return AttemptDetail(**unpack(blob))
    except TypeError as error:
        raise Damaged("a row of table failure is not a packed attempt") from error


def unpack_outcome(blob: bytes, sent_at_ms: int | None, entered_at_ms: int | None) -> tuple[OutcomeDetail, int | None, int | None]:
    """With the times of one of its entries, which stood here before they stood with the entries (0014). Raises Damaged. What an outcome
    does not say is unknown; counts that it does not say are 0.
    """
    found = unpack(blob)
    try:
        detail = _NO_OUTCOME | found
        sent_at_ms, entered_at_ms = detail.pop("sent_at_ms", sent_at_ms), detail.pop("entered_at_ms", entered_at_ms)
        # A list since it was packed, which the compiled build takes for no OutcomeDetail's.
        detail["target_queues"] = tuple(detail["target_queues"])
        return OutcomeDetail(**detail), sent_at_ms, entered_at_ms
    except TypeError as error:
        raise Damaged("holds no packed outcome") from error


def pack_message(message: MessageRecord) -> tuple[bytes, int]:
    """One array of the record's fields in their order, and its crc32."""
    blob: bytes = msgpack.packb(message)
    return blob, crc32(blob)


def packer() -> Callable[[Any], bytes]:
    """``pack`` for many in a row on one thread: it keeps its buffer, which to get and to give back takes longer than small values do."""
    function: Callable[[Any], bytes] = msgpack.Packer().pack
    return function


def pack_hops(hops: Sequence[HopRecord], sequence: int, pack: Callable[[Any], bytes]) -> bytes:
    """The hops of the entry ``sequence``, each a map. The newest says how far behind the entry is that ended, and no number: so it is the
    same for many that moved together. There are none of what was moved by hand and was not dead-lettered.
    """
    if not hops:
        return pack([])
    (ended, detail), *older = hops
    maps = [{**detail, "behind": sequence - ended}]
    maps += [{**detail, "sequence": ended} for ended, detail in older]
    return pack(maps)


def unpack_hops(blob: bytes, sequence: int) -> list[HopRecord]:
    """Raises Damaged unless these are hops of the entry ``sequence``, with the detail that whoever reads them takes for granted."""
    maps = unpack(blob)
    if not isinstance(maps, list):
        raise Damaged("has hops that are no list")
    hops: list[HopRecord] = []
    for detail in maps:
        if not isinstance(detail, dict) or not _is_detail(detail):
            raise Damaged(f"has hop {len(hops)} without its detail")
        # Up to version 5 each had its own number, and that of its message.
        behind = detail.pop("behind", None)
        ended = detail.pop("sequence", None) if behind is None else sequence - behind if type(behind) is int else None
        if type(ended) is not int or not 0 <= ended < sequence:
            raise Damaged(f"has hop {len(hops)} of an entry that cannot have been")
        hops.append((ended, cast(HopDetail, detail)))
    return hops


def hops_unpacker() -> Callable[[bytes, int], list[HopRecord]]:
    """``unpack_hops`` for a page of entries: many moved together, and what is said of these is read once, and is one."""
    known: dict[bytes, tuple[int, list[HopRecord]]] = {}

    def unpack_next(blob: bytes, sequence: int) -> list[HopRecord]:
        found = known.get(blob)
        if found is None:
            found = known[blob] = (sequence, unpack_hops(blob, sequence))
            return found[1]
        if not found[1]:
            return []
        at, ((ended, detail), *older) = found
        return [(ended + sequence - at, detail), *older]

    return unpack_next


def _is_detail(detail: dict[str, Any]) -> bool:
    numbers = [*(detail.get(name) for name in _NUMBERS), detail.get("expires_at_ms") or 0]
    return all(type(detail.get(name)) is str for name in _TEXTS) and all(type(n) is int and -_MOST < n < _MOST for n in numbers)


def checksum_of_counts(
    delivery_count: int, failed: int, assigned: int, state: int, due_at_ms: int | None, expires_at_ms: int | None, *_: int
) -> int:
    """Of what changes of a reference, whichever it is; but for why it did (ReferenceCounts), by which nothing is delivered."""
    due = _NO_TIME if due_at_ms is None else due_at_ms
    return crc32(_COUNTS.pack(delivery_count, failed, assigned, state, due, _NO_TIME if expires_at_ms is None else expires_at_ms))


def counts_checksum(
    queue_id: int,
    rank: int,
    sequence: int,
    delivery_count: int,
    failed: int,
    assigned: int,
    state: int,
    due_at_ms: int | None,
    expires_at_ms: int | None,
) -> int:
    """Checksum of these numbers, and of the place where the row stands."""
    counts = checksum_of_counts(delivery_count, failed, assigned, state, due_at_ms, expires_at_ms)
    # Absolute, because SQLite and Python differ in what is left of a negative number; the rank of a priority above 9 is one.
    return abs(counts + queue_id * 1009 + rank * 7 + sequence) % _PRIME


def placed(counts: str, queue_id: str = "queue_id", rank: str = "rank", sequence: str = "sequence") -> str:
    """``counts_checksum`` in SQL, for rows that change alike: ``counts`` stands for their checksum_of_counts."""
    return f"abs({counts} + {queue_id} * 1009 + {rank} * 7 + {sequence}) % {_PRIME}"


def check_counts(
    queue_id: Any,
    rank: Any,
    sequence: Any,
    delivery_count: Any,
    failed: Any,
    assigned: Any,
    state: Any,
    due_at_ms: Any,
    expires_at_ms: Any,
    checksum: Any,
) -> None:
    """Raises Damaged unless counts, state and times are what was written, whatever they are now. Where none was ever set there is no
    checksum."""
    if checksum is None:
        right = delivery_count == failed == assigned == state == 0 and due_at_ms is None and expires_at_ms is None
    else:
        try:
            counts = (delivery_count, failed, assigned, state, due_at_ms, expires_at_ms)
            right = counts_checksum(queue_id, rank, sequence, *counts) == checksum
        except (struct.error, TypeError):
            right = False
    if not right:
        raise Damaged("has counts or times that fail their checksum")


def unpack_message(blob: bytes, checksum: int, message_id: int) -> MessageRecord:
    """Raises Damaged unless the blob is, byte for byte, what was packed for this message."""
    if crc32(blob) != checksum:
        raise Damaged("fails its checksum")
    fields = unpack(blob)
    if isinstance(fields, list) and len(fields) == _MESSAGE_FIELDS - 1:
        # Up to version 14 all that were stored were durable, and none said so.
        fields.append(True)
    if not isinstance(fields, list) or len(fields) != _MESSAGE_FIELDS:
        raise Damaged("is not a packed message")
    if fields[0] != message_id:
        raise Damaged(f"holds message {fields[0]}")
    # A backlog names few addresses and producers many times; and a number that is there already is not kept twice.
    fields[0], fields[_ADDRESS], fields[_PRODUCER] = message_id, sys.intern(fields[_ADDRESS]), sys.intern(fields[_PRODUCER])
    return make(MessageRecord, fields)
