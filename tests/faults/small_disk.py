"""A small file system of a test's own, to be filled up."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Final

import pytest

_ZEROS: Final = b"\0" * (1 << 20)


@contextmanager
def small_file_system(place: Path, mebibytes: int) -> Iterator[Path]:
    """Mounts it at ``place``, which is made; skips the test where that is not allowed."""
    if why := mount(place, mebibytes):
        pytest.skip(why)
    try:
        yield place
    finally:
        unmount(place)


def mount(place: Path, mebibytes: int) -> str:
    """At ``place``, which is made. Returns why that cannot be; "": it is mounted."""
    place.mkdir(parents=True, exist_ok=True)
    program = shutil.which("mount")
    if program is None or os.geteuid() != 0:
        return "a small file system needs root. enable: run the tests as root"
    command = [program, "-t", "tmpfs", "-o", f"size={mebibytes}m", "homing-test", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        return f"no tmpfs can be mounted here ({mounted.stderr.strip()}). enable: run with CAP_SYS_ADMIN"
    return ""


def unmount(place: Path) -> None:
    # Lazily: after a failure the journal keeps its files open until the process ends.
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(place: Path) -> Path:
    """Somebody else's file, which takes all room that is left."""
    theirs = place / "theirs"
    with theirs.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        _write_for_ever(file)
    return theirs


def _write_for_ever(file: FileIO) -> None:
    while True:
        file.write(_ZEROS)
