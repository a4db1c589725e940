"""Archives of dead letters, made by a process of its own: where rows become columns the broker's loop would wait, and its memory grow."""

from __future__ import annotations

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
from ..errors import JournalError

#: The process ends when nothing was archived for so long.
_IDLE_S: Final = 60.0


class Archiver:
    """Of the journal in ``directory``, into ``place``. The process runs from the first archive on."""

    def __init__(self, directory: Path, place: Path) -> None:
        self._directory = directory
        self._place = place
        self._child: Process | None = None
        self._used_at = 0.0

    async def archive(self, name: str, sequences: Sequence[int], why: str, at_ms: int) -> tuple[Path, dict[int, int]]:
        """As archive.archive; JournalError also ``export-io``, where the process ended early."""
        if self._child is None or self._child.returncode is not None:
            self._child = await apart.start("homing.journal.export.archiver", str(self._directory), str(self._place))
        try:
            answer = await _ask(self._child, {"name": name, "sequences": sequences, "why": why, "at_ms": at_ms})
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


async def _ask(child: Process, order: dict[str, Any]) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(order).encode() + b"\n")
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
            out, entries = archive(directory, place, order["name"], order["sequences"], order["why"], order["at_ms"])
            answer: dict[str, Any] = {"out": str(out), "entries": list(entries.items())}
        except JournalError as error:
            answer = {"code": error.code, "message": error.message, "fix": error.fix}
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
