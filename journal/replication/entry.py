"""One entry of the replicated log: a head, and what a batch writes, as bytes. No input or output.

An entry is to be applied by another node to a copy of the same journal (commit/packed_batch.py). The head names the entry before by its
hash: who follows sees where the past is another one.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from ..commit.packed_batch import OLDEST, VERSION, BadEntry

HASH_BYTES: Final = 32
#: What names the format, version, epoch, number, the hash of the entry before.
_HEAD: Final = struct.Struct(f">3sBQQ{HASH_BYTES}s")
_FORMAT: Final = b"HmE"


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
