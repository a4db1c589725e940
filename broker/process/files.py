"""Files of the broker's machine that its clients may read: a part at a time, of one directory, nothing that leads elsewhere."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from homing.journal.errors import JournalError
from homing.journal.export.exports import Exports

from ..answers.administration import Export, Part, Report, Reports
from ..errors import Refused

#: Of a report, or of an export: so no name leads out of the directory.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What homing analyze calls its page.
_PAGE: Final = "report.html"
_MOST_REPORTS: Final = 100


def _part_of(path: Path, offset: int, most: int) -> Part:
    """``{data, bytes, next}``: so many bytes from ``offset`` on, how many there are in all, and where to go on, None at the end.

    Raises OSError, also where it is a link.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, most, offset)
    finally:
        os.close(descriptor)
    end = offset + len(data)
    return {"data": data, "bytes": size, "next": end if data and end < size else None}


class Files:
    """An export of the journal that clients asked for, and reports that were made beside the broker, in a directory of theirs."""

    def __init__(self, exports: Exports, reports: Path, now_ms: Callable[[], int]) -> None:
        self._exports = exports
        self._reports = reports
        self._now_ms = now_ms

    def start_export(self, with_tracebacks: bool) -> Export:
        """Raises Refused."""
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        try:
            self._exports.start(f"{at:%Y-%m-%dT%H%M%SZ}", with_tracebacks)
        except JournalError as error:
            raise Refused(error.code, error.message, error.fix) from error
        return self.export()

    def export(self) -> Export:
        """How far it is."""
        return cast(Export, self._exports.status)

    async def discard_export(self) -> Export:
        await self._exports.discard()
        return self.export()

    def export_part(self, name: str, offset: int, most: int) -> Part:
        """In a thread: see _part_of. Raises Refused."""
        try:
            file = self._exports.file(name)
            if file is None:
                raise FileNotFoundError
            return _part_of(file, offset, most)
        except OSError:
            raise Refused("no-such-export", "there is no export of that name, or not any more", "make another one") from None

    def reports(self) -> Reports:
        """In a thread: those there are, the latest first, and where."""
        return {"directory": str(self._reports), "items": _reports_in(self._reports)}

    def report_part(self, name: str, offset: int, most: int) -> Part:
        """In a thread: a part of its page, see _part_of. Raises Refused."""
        try:
            if not _NAME.fullmatch(name) or (self._reports / name).is_symlink():
                raise FileNotFoundError(name)
            return _part_of(self._reports / name / _PAGE, offset, most)
        except OSError:
            raise Refused("no-such-report", "there is no report of that name", "the reports list has them") from None


def _reports_in(place: Path) -> list[Report]:
    """``{name, at_ms, bytes}`` of its directories that have a report's page, the latest first."""
    try:
        there = [each.name for each in os.scandir(place) if _NAME.fullmatch(each.name) and each.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    found: list[Report] = []
    for name in there:
        try:
            page = os.stat(place / name / _PAGE, follow_symlinks=False)
        except OSError:
            continue  # no report, or not yet
        if stat.S_ISREG(page.st_mode):
            found.append({"name": name, "at_ms": page.st_mtime_ns // 1_000_000, "bytes": page.st_size})
    return sorted(found, key=lambda each: (-each["at_ms"], each["name"]))[:_MOST_REPORTS]
