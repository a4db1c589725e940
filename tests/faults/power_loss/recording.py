"""The record of a run: what was done to the disk, and what was claimed, in one order.

``recorder.c`` appends what a process does to files below a root; workloads append *claims* (JSON) to the same log when an
operation begins and when it is confirmed. A claim stands in the log after everything that happened before it was made.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]
_HEADER = struct.Struct("<c3sIQqI")
_CLAIM = b"m"
_MARK = b"\xa7\x01\xf3"


class Record(NamedTuple):
    """One line of the log. ``kind`` and the meaning of the rest: recorder.c; ``m`` is a claim, its data JSON."""

    kind: str
    thread: int
    inode: int
    offset: int
    data: bytes

    @property
    def claim(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


class Recording:
    """A directory with ``root`` (what is recorded; the journal goes to ``root/data``), the log, and how to record into it."""

    def __init__(self, directory: Path, recorder: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir(parents=True)
        self.data = self.root / "data"
        self.log = directory / "log"
        self._recorder = recorder

    def environment(self) -> dict[str, str]:
        """What a process needs to be recorded and to write claims."""
        recorded = {"LD_PRELOAD": str(self._recorder), "HOMING_RECORD_ROOT": str(self.root.resolve()), "HOMING_RECORD_LOG": str(self.log)}
        return {**os.environ, **recorded}

    @property
    def root_inode(self) -> int:
        return self.root.stat().st_ino

    def read(self) -> list[Record]:
        return list(_records(self.log.read_bytes()))


def _records(text: bytes) -> Iterator[Record]:
    """A record that is cut off is left out: who wrote it down was killed before it made that call (recorder.c)."""
    place = 0
    while len(text) - place >= _HEADER.size:
        kind, mark, thread, inode, offset, length = _HEADER.unpack_from(text, place)
        begin, end = place + _HEADER.size, place + _HEADER.size + length
        if mark == _MARK == text[end : end + len(_MARK)]:
            yield Record(kind.decode(), thread, inode, offset, text[begin:end])
            place = end + len(_MARK)
        else:
            found = text.find(_MARK, place + 2)
            place = found - 1 if found > 0 else len(text)


class Claims:
    """Writes claims. The log is opened for appending, so that each lands after what the kernel has seen before it."""

    def __init__(self, log: Path) -> None:
        self._descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._operations = 0

    def begin(self, **effects: Any) -> int:
        """An operation is about to be asked for. ``effects``: see claims.Operation. Returns its number."""
        self._operations += 1
        self._write({"begin": self._operations, **effects})
        return self._operations

    def done(self, operation: int) -> None:
        """It was confirmed: from here on no power cut may undo it."""
        self._write({"done": operation})

    def seen(self, **effects: Any) -> None:
        """Something was observed that is promised to be on disk by then: begun and confirmed at once."""
        self.done(self.begin(**effects))

    def _write(self, claim: dict[str, Any]) -> None:
        data = json.dumps(claim).encode()
        record = _HEADER.pack(_CLAIM, _MARK, 0, 0, 0, len(data)) + data + _MARK
        if os.write(self._descriptor, record) != len(record):
            raise OSError("a claim could not be written whole")

    def close(self) -> None:
        os.close(self._descriptor)


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def build_recorder(directory: Path) -> Path:
    """Compile recorder.c. To be asked for only where ``compiler()`` finds one."""
    found = compiler()
    assert found is not None
    library = directory / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    command = [found, "-std=gnu11", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=50)
    return library
