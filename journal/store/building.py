"""Directories that are built under another name beside their own, and get their own when they are whole: exports and backups."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

log = logging.getLogger("homing.journal")

_HEX: Final = "[0-9a-f]"


@contextmanager
def building(target: Path, left_over: str) -> Iterator[Path]:
    """Yields a new directory that is nobody else's, mode 0700; what does not get ``target``'s name within the block goes.

    First goes what was left by those that were killed and that ``left_over`` says: a name's pattern, such as ``*``.
    """
    _remove_left_over(target.parent, left_over)
    partial = partial_name(target)
    partial.mkdir(mode=0o700)
    in_use = _lock(partial)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(in_use)


def partial_name(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")


def _lock(partial: Path) -> int:
    """Held as long as it is built, and gone with its process. Raises BlockingIOError where another holds it."""
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove_left_over(place: Path, names: str) -> None:
    """What was left under ``place`` by those that were killed; not what one that runs is building."""
    for partial in place.glob(f".{names}.{_HEX * 8}.partial"):
        try:
            os.close(_lock(partial))
        except OSError:
            continue
        log.warning("half-made-removed: removed %s, which was left half made", partial)
        shutil.rmtree(partial, ignore_errors=True)
