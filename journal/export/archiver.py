"""Archives of dead letters, made by a process of its own: where rows become columns the broker's loop would wait, and its memory grow."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from .. import apart
from ..contract import ReferenceRecord
from ..errors import JournalError
from ..store.packing import pack, pack_hops, pack_message, unpack

#: The process ends when nothing was archived for so long.
_IDLE_S: Final = 60.0


class Archiver:
    """Of the journal in ``directory``, into ``place``. The process runs from the first archive on."""

    def __init__(self, directory: Path, place: Path) -> None:
        self._directory = directory
        self._place = place
        self._child: Process | None = None
        self._used_at = 0.0

    async def archive(
        self, name: str, sequences: Sequence[int], why: str, at_ms: int, in_memory: Sequence[tuple[str, ReferenceRecord]] = ()
    ) -> tuple[Path, dict[int, int]]:
        """As archive.archive; JournalError also ``export-io``, where the process ended early. ``in_memory``: those that stand in no row,
        each with the name of its queue."""
        if self._child is None or self._child.returncode is not None:
            self._child = await apart.start("homing.journal.export.archiver", str(self._directory), str(self._place))
        try:
            order = {"name": name, "sequences": sequences, "why": why, "at_ms": at_ms}
            answer = await _ask(self._child, await asyncio.to_thread(_written, order, in_memory))
        except BaseException:
            # What it would answer is of no use to the next order.
            await self.close()
            raise
        self._used_at = time.monotonic()
        if "code" in answer:
            raise JournalError(answer["code"], answer["message"], answer["fix"])
        return Path(answer["out"]), dict(answer["entries"])

    async def rest(self) -> None:
        """Now and then."""
        if self._child is not None and time.monotonic() - self._used_at > _IDLE_S:
            await self.close()

    async def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await apart.end(child)


def _written(order: dict[str, Any], in_memory: Sequence[tuple[str, ReferenceRecord]]) -> bytes:
    letters = pack([_letter(queue, record) for queue, record in in_memory])
    return json.dumps({**order, "letters": base64.b64encode(letters).decode()}).encode() + b"\n"


def _letter(queue: str, record: ReferenceRecord) -> tuple[Any, ...]:
    """See archive.Letter."""
    overlay = None if record.hops is None else pack_hops(record.hops, record.sequence, pack)
    entry = (record.queue_id, 9 - record.priority, record.sequence, record.message.message_id)
    return queue, (*entry, record.delivery_count, record.failed, record.entered_at_ms, overlay, *pack_message(record.message))


async def _ask(child: Process, order: bytes) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(order)
    with contextlib.suppress(ConnectionError):
        await child.stdin.drain()
    line = await child.stdout.readline()
    if not line.endswith(b"\n"):
        raise JournalError("export-io", "The process that archives dead letters ended early.", "Look at the broker's log.")
    answer: dict[str, Any] = json.loads(line)
    return answer


def main() -> int:
    """``DIRECTORY PLACE``: makes the archive that each line of standard input orders, and answers it with a line."""
    from .archive import archive

    directory, place = Path(sys.argv[1]), Path(sys.argv[2])
    os.nice(10)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            letters = unpack(base64.b64decode(order.pop("letters")))
            out, entries = archive(directory, place, **order, letters=letters)
            answer: dict[str, Any] = {"out": str(out), "entries": list(entries.items())}
        except JournalError as error:
            answer = {"code": error.code, "message": error.message, "fix": error.fix}
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
