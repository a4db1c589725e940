"""An export that a broker makes, fetched over its connection."""

from __future__ import annotations

import asyncio
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

import homing
from homing.journal.export.export import MANIFEST_NAME, ExportSummary

from ..answers.administration import Export, Part
from .client import talk
from .output import CommandError, ExitCode

_LOOKED_EVERY_S: Final = 0.2


def fetched(url: str, out: Path, with_tracebacks: bool, show: Callable[[str, int], None]) -> ExportSummary:
    """Has the broker make one, and puts it to ``out``, which appears when it is whole. ``show``: told of the table that it is at, its rows.

    Raises CommandError: out-exists, export-failed.
    """
    if out.exists():
        raise CommandError(ExitCode.FAILED, f"{out} is there already", "name a new directory", code="out-exists")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as half_made:
        file, whole = Path(half_made, "tar"), Path(half_made, "whole")
        with file.open("wb") as tar:
            talk(url, lambda connection: _fetch(connection, tar, with_tracebacks, show))
        with tarfile.open(file) as archive:
            archive.extractall(whole, filter="data")
        (directory,) = whole.iterdir()
        manifest = json.loads((directory / MANIFEST_NAME).read_text(encoding="utf-8"))
        directory.rename(out)
        return ExportSummary(out, manifest["broker_id"], manifest["exported_at_us"], manifest["rows"], file.stat().st_size)


async def _fetch(connection: homing.Connection, tar: BinaryIO, with_tracebacks: bool, show: Callable[[str, int], None]) -> None:
    made: Export = await connection.call("start-export", with_tracebacks=with_tracebacks)
    while made["state"] == "running":
        show(made["table"] or "", made["rows"])
        await asyncio.sleep(_LOOKED_EVERY_S)
        made = await connection.call("export")
    if made["state"] != "done":
        raise CommandError(ExitCode.FAILED, made["why"] or "it was discarded", made["fix"] or "begin it again", code="export-failed")
    offset: int | None = 0
    while offset is not None:
        part: Part = await connection.call("export-part", name=made["name"], offset=offset)
        tar.write(part["data"])
        offset = part["next"]
    await connection.call("discard-export")
