"""A node that is made anew: it asks for a copy of the journal, and whoever leads makes a backup and gives it, part by part."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from homing.journal.backup.backup import Backups
from homing.journal.errors import JournalError
from homing.journal.replication.copies import Copies, Part, Wanted
from homing.journal.replication.leader import AGAIN_S, Pause
from homing.journal.replication.log import LogAway
from homing.journal.store.directory import DATABASE_NAME

log = logging.getLogger("homing")

_PART_BYTES: Final = 2 << 20
#: No faster than this, so that commits find the log's database free.
_BYTES_A_SECOND: Final = 64 << 20
#: How often it is looked whether a node asks, and, where one is given a copy, for the next part.
_LOOK_S: Final = 1.0
_NEXT_S: Final = 0.01
#: What was asked for is asked for again: the database forgets it at a restart of its own.
_ASK_AGAIN_S: Final = 5.0
_SAY_S: Final = 5.0


class _Made(NamedTuple):
    """The copy for a process of a node. ``number``: of an entry that is in it."""

    node: str
    process: str
    source: str
    size: int
    number: int


class Giving:
    """Of who leads: nodes that need it are given its journal, one node after the other. ``place``: a directory for the copy, which is not
    there yet. ``durable``: the log's last entry that is in the journal for sure."""

    def __init__(self, copies: Copies, backups: Backups, place: Path, durable: Callable[[], int], pause: Pause = asyncio.sleep) -> None:
        self._copies = copies
        self._backups = backups
        self._place = place
        self._durable = durable
        self._pause = pause
        self._made: _Made | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            self._discard()
            while True:
                given_bytes = 0
                with suppress(LogAway):
                    given_bytes = await self._give()
                await self._pause(max(_LOOK_S if self._made is None else _NEXT_S, given_bytes / _BYTES_A_SECOND))
        finally:
            self._discard()

    async def _give(self) -> int:
        """Of what somebody waits for. Returns how many bytes."""
        asking = await self._copies.wanted()
        made = self._made
        if made is not None and made[:2] not in [(each.node, each.process) for each in asking]:
            self._discard()
            made = None
        for each in asking:
            if each.waits and (made is None or made[:2] == (each.node, each.process)):
                return await self._give_to(each)
        return 0

    async def _give_to(self, to: Wanted) -> int:
        if self._made is None:
            self._made = await self._make(to)
        if (made := self._made) is None:
            return 0
        content = await asyncio.to_thread(_read, self._place / DATABASE_NAME, to.place)
        await self._copies.give(to, Part(made.source, made.size, content), made.number)
        if to.place + len(content) >= made.size:
            log.info("copy-given: node %s has a copy of the journal, %s", to.node, _mib(made.size))
            self._discard()
        return len(content)

    async def _make(self, to: Wanted) -> _Made | None:
        log.info("copy-asked-for: node %s needs a copy of the journal: a backup is made for it", to.node)
        number = self._durable()
        await self._copies.hold(to, number)
        try:
            made = await self._backups.copy(self._place)
        except JournalError as error:
            log.warning("copy-not-made: %s", error)
            await self._copies.give(to, Part("", 0, b"", str(error)), number)
            return None
        return _Made(to.node, to.process, secrets.token_hex(8), made["bytes"], number)

    def _discard(self) -> None:
        self._made = None
        shutil.rmtree(self._place, ignore_errors=True)


def _read(path: Path, place: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, _PART_BYTES, place)
    finally:
        os.close(descriptor)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.1f} MiB"


async def fetch(copies: Copies, path: Path, pause: Pause = asyncio.sleep) -> None:
    """Writes another node's database to ``path``, whatever it takes."""
    source, place, size, said_s = "", 0, -1, 0.0
    with path.open("wb") as file:
        while place != size:
            part = await _next(copies, place, pause)
            if part.source != source and place:
                # Whoever gave it does so no longer, and this is of another copy.
                source, place, size = "", 0, -1
                file.seek(0)
                file.truncate()
                continue
            source, size = part.source, part.size
            await asyncio.to_thread(file.write, part.content)
            place += len(part.content)
            if (now_s := time.monotonic()) >= said_s + _SAY_S or place == size:
                said_s = now_s
                log.info("rebuilding: %s of %s", _mib(place), _mib(size))


async def _next(copies: Copies, place: int, pause: Pause) -> Part:
    while True:
        with suppress(LogAway):
            await copies.want(place)
            if (part := await _wait_for(copies, place, pause)) is not None:
                return part
        await pause(AGAIN_S)


async def _wait_for(copies: Copies, place: int, pause: Pause) -> Part | None:
    """None: not in time, or there is none to give."""
    waited_s, pause_s = 0.0, _NEXT_S
    while waited_s < _ASK_AGAIN_S:
        part = await copies.part(place)
        if part is not None and not part.why:
            return part
        if part is not None:
            log.warning("no-copy: whoever leads has none to give: %s", part.why)
            await pause(_ASK_AGAIN_S)
            return None
        await pause(pause_s)
        waited_s, pause_s = waited_s + pause_s, min(AGAIN_S, 2 * pause_s)
    return None
