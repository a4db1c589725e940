"""The process that makes an export beside the broker (journal/export/exports.py)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

from homing.journal.errors import JournalError
from homing.journal.export.export import export
from homing.journal.store.directory import make_directory

from ..core.amqp.origin import ids_in


def main() -> int:
    """``DIRECTORY FILE [with-tracebacks]``: exports the journal into one file, and tells in lines how far it is and what came of it."""
    directory, file = Path(sys.argv[1]), Path(sys.argv[2])
    os.umask(0o077)
    os.nice(10)
    threading.Thread(target=_end_with_broker, daemon=True).start()
    try:
        _say({"rows": _made(directory, file, sys.argv[3:] == ["with-tracebacks"]), "bytes": file.stat().st_size})
    except JournalError as error:
        _say({"why": error.message, "fix": error.fix})
    except OSError as error:
        _say({"why": f"Writing the export failed: {error}.", "fix": f"See to {file.parent}, then try again."})
    return 0


def _end_with_broker() -> None:
    # Not by sys.stdin, whose lock the end of the interpreter would want.
    while os.read(0, 4096):
        pass
    os._exit(1)


def _made(directory: Path, file: Path, with_tracebacks: bool) -> int:
    """Returns how many rows there are in it. Each of its files goes as soon as it was taken in."""
    make_directory(file.parent)
    out = file.with_suffix("")
    made = export(
        directory, out, with_tracebacks=with_tracebacks, progress=lambda table, rows: _say({"table": table, "rows": rows}), ids=ids_in
    )
    half_made = file.with_suffix(".partial")
    with tarfile.open(half_made, "w") as archive:
        for each in sorted(out.rglob("*")):
            if each.is_file():
                archive.add(each, each.relative_to(out.parent))
                each.unlink()
    shutil.rmtree(out)
    half_made.rename(file)
    return sum(made.rows.values())


def _say(told: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    sys.exit(main())
