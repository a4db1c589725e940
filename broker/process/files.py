"""Files of the broker's machine that its clients may read: a part at a time, of one directory, nothing that leads elsewhere."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from ..answers.administration import Part, Report
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


def reports(place: Path) -> list[Report]:
    """``{name, at_ms, bytes}`` of the directories in ``place`` that have a report's page, the latest first."""
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


def report_part(place: Path, name: str, offset: int, most: int) -> Part:
    """See _part_of. Raises Refused."""
    try:
        if not _NAME.fullmatch(name) or (place / name).is_symlink():
            raise FileNotFoundError(name)
        return _part_of(place / name / _PAGE, offset, most)
    except OSError:
        raise Refused("no-such-report", "there is no report of that name", "the reports list has them") from None


def export_part(file: Path | None, offset: int, most: int) -> Part:
    """See _part_of. Raises Refused."""
    try:
        if file is None:
            raise FileNotFoundError
        return _part_of(file, offset, most)
    except OSError:
        raise Refused("no-such-export", "there is no export of that name, or not any more", "make another one") from None
