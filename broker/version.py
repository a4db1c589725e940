"""Which Homing this is: its release, and what the build wrote beside this file (setup.py)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

#: Raised with each release's entry in CHANGELOG.md, and nowhere else.
RELEASE: Final = "0.2.0"
_HERE: Final = Path(__file__).resolve().parent


class Build(NamedTuple):
    #: The release, with ``.postN`` where it was built N commits after that.
    version: str
    #: The commit of its sources; None: it was not built, but runs in a work tree.
    commit: str | None


def _build() -> Build:
    try:
        written = json.loads((_HERE / "build.json").read_bytes())
    except OSError:
        return Build(RELEASE, None)
    return Build(written["version"], written["commit"])


BUILD: Final = _build()


def commit() -> str:
    """The commit of this program's sources, as git writes it; ``unknown`` where nobody knows."""
    if BUILD.commit is not None:
        return BUILD.commit
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_HERE, capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return asked.stdout.strip()
