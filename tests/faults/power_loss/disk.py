"""A disk that keeps what was synced, and of the rest whatever chance leaves: the state after a power cut at any place of a record.

What may be lost: blocks written since the file's last sync (each block on its own, at any of the states it went through), the
file's new length, and names made or removed since their directory's last sync (each name on its own). A shortening is one step
of the file system: done or not; blocks it cut off come back only as long as it is not done. Bytes outside a written range are
never damaged, which is what SQLite asks of a disk (its "powersafe overwrite").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple

from tests.faults.power_loss.recording import Record


class Loss(Enum):
    """What becomes of everything that was not synced."""

    ALL_LOST = "nothing unsynced is left"
    NONE_LOST = "everything unsynced is there"
    BLOCKS = "some blocks of 4 KiB are left"
    TORN = "some sectors of 512 B are left"


class _Write(NamedTuple):
    offset: int
    data: bytes


class _Truncate(NamedTuple):
    length: int


@dataclass(eq=False)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[_Write | _Truncate] = field(default_factory=list)
    #: Operations that became durable so far; a sync's mark counts from the file's beginning.
    settled: int = 0

    def mark(self) -> int:
        return self.settled + len(self.pending)

    def settle(self, mark: int) -> None:
        """Everything before the mark is on disk."""
        count = max(0, mark - self.settled)
        for step in self.pending[:count]:
            _apply(self.durable, step)
        del self.pending[:count]
        self.settled += count

    def after(self, loss: Loss, chance: Random) -> bytes:
        content = bytearray(self.durable)
        if loss is Loss.NONE_LOST:
            for step in self.pending:
                _apply(content, step)
        elif loss is not Loss.ALL_LOST:
            _Survivor(content, 4096 if loss is Loss.BLOCKS else 512, chance).keep_some(self.pending)
        return bytes(content)


def _apply(content: bytearray, step: _Write | _Truncate) -> None:
    if isinstance(step, _Truncate):
        del content[step.length :]
        content.extend(bytes(step.length - len(content)))
    else:
        if len(content) < step.offset:
            content.extend(bytes(step.offset - len(content)))
        content[step.offset : step.offset + len(step.data)] = step.data


class _Survivor:
    """Chooses what is left of one file's unsynced operations. ``content``: the synced state, changed in place."""

    def __init__(self, content: bytearray, block_bytes: int, chance: Random) -> None:
        self._content = content
        self._block_bytes = block_bytes
        self._chance = chance
        self._blocks: dict[int, list[_Write]] = {}
        self._lengths = [len(content)]

    def keep_some(self, steps: list[_Write | _Truncate]) -> None:
        truncates = sum(isinstance(step, _Truncate) for step in steps)
        done = self._chance.randint(0, truncates)
        #: Beyond this a write belongs to a length that the disk never got to know.
        reach: int | None = None
        for step in steps:
            if isinstance(step, _Write):
                self._write(step if reach is None else _Write(step.offset, step.data[: max(0, reach - step.offset)]))
            elif done:
                done -= 1
                self._truncate(step.length)
            else:
                reach = step.length if reach is None else min(reach, step.length)
        self._choose()

    def _write(self, step: _Write) -> None:
        end = step.offset + len(step.data)
        place = step.offset
        while place < end:
            block = place // self._block_bytes
            until = min(end, (block + 1) * self._block_bytes)
            self._blocks.setdefault(block, []).append(_Write(place, step.data[place - step.offset : until - step.offset]))
            place = until
        if step.data:
            self._lengths.append(max(self._lengths[-1], end))

    def _truncate(self, length: int) -> None:
        _apply(self._content, _Truncate(length))
        for block, writes in list(self._blocks.items()):
            kept = [_Write(offset, data[: length - offset]) for offset, data in writes if offset < length]
            self._blocks[block] = kept
        self._lengths = [length]

    def _choose(self) -> None:
        likely = self._chance.choice((0.1, 0.5, 0.9))
        for writes in self._blocks.values():
            # A block that was written several times may hold any of the states between.
            kept = len(writes) if self._chance.random() < likely else self._chance.randrange(len(writes) + 1) if len(writes) > 1 else 0
            for write in writes[:kept]:
                _apply(self._content, write)
        length = self._lengths[-1] if self._chance.random() < 0.5 else self._chance.choice(self._lengths)
        _apply(self._content, _Truncate(length))


class _Naming(NamedTuple):
    name: str
    #: None: the name was removed.
    what: _File | _Directory | None


@dataclass(eq=False)
class _Directory:
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    pending: list[_Naming] = field(default_factory=list)
    settled: int = 0

    def mark(self) -> int:
        return self.settled + len(self.pending)

    def settle(self, mark: int) -> None:
        count = max(0, mark - self.settled)
        for step in self.pending[:count]:
            _name(self.durable, step)
        del self.pending[:count]
        self.settled += count

    def after(self, loss: Loss, chance: Random) -> dict[str, _File | _Directory]:
        found = dict(self.durable)
        if loss is Loss.ALL_LOST:
            return found
        for name in {step.name for step in self.pending}:
            steps = [step for step in self.pending if step.name == name]
            kept = len(steps) if loss is Loss.NONE_LOST else chance.randint(0, len(steps))
            for step in steps[:kept]:
                _name(found, step)
        return found


def _name(names: dict[str, _File | _Directory], step: _Naming) -> None:
    if step.what is None:
        names.pop(step.name, None)
    else:
        names[step.name] = step.what


class Disk:
    """Replays a record up to some place; ``after`` gives what a power cut there may leave of one directory."""

    def __init__(self, root_inode: int) -> None:
        self._root = _Directory()
        self._things: dict[int, _File | _Directory] = {root_inode: self._root}
        self._syncs: dict[tuple[int, int], int] = {}

    def hold(self, name: str, inode: int, files: dict[str, tuple[int, bytes]]) -> None:
        """A directory that is there, synced, before the record begins. ``files``: name -> (inode, content)."""
        directory = self._things[inode] = self._root.durable[name] = _Directory()
        for file_name, (file_inode, content) in files.items():
            self._things[file_inode] = directory.durable[file_name] = _File(bytearray(content))

    def apply(self, record: Record) -> None:
        kind, thread, inode, offset, data = record
        if kind in "cdu":
            self._directory(offset).pending.append(_Naming(data.decode(), self._made(kind, inode)))
        elif kind == "s":
            self._syncs[thread, inode] = self._things[inode].mark()
        elif kind == "e":
            self._things[inode].settle(self._syncs.pop((thread, inode)))
        elif kind == "w":
            self._file(inode).pending.append(_Write(offset, data))
        elif kind == "t":
            self._file(inode).pending.append(_Truncate(offset))
        elif kind != "m":
            raise ValueError(f"the recorder cannot follow {data!r}")

    def _made(self, kind: str, inode: int) -> _File | _Directory | None:
        if kind == "u":
            return None
        made = self._things[inode] = _File() if kind == "c" else _Directory()
        return made

    def _file(self, inode: int) -> _File:
        found = self._things[inode]
        assert isinstance(found, _File)
        return found

    def _directory(self, inode: int) -> _Directory:
        found = self._things[inode]
        assert isinstance(found, _Directory)
        return found

    def after(self, directory: str, loss: Loss, chance: Random) -> dict[str, bytes] | None:
        """name -> content of the files in a directory right below the root; None: the directory itself is gone."""
        found = self._root.after(loss, chance).get(directory)
        if not isinstance(found, _Directory):
            return None
        files = found.after(loss, chance)
        return {name: file.after(loss, chance) for name, file in files.items() if isinstance(file, _File)}
