"""What is shipped, made of what is tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2])"


def run(*command: str, cwd: Path, path: Path | None = None, timeout: float = 120) -> str:
    # Spark's classes are not archived in the user's cache: for one start that takes longer than it saves.
    environment = {**os.environ, "XDG_CACHE_HOME": os.devnull, **({"PYTHONPATH": str(path)} if path else {})}
    program = [sys.executable, *command]
    done = subprocess.run(program, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """The source is copied, since setuptools leaves its traces there."""
    run("-c", BUILD, kind, str(out), cwd=source)
    (made,) = out.iterdir()
    return made


def copy_of_source(copy: Path) -> Path:
    """What git knows of the checkout, in a place of its own."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\0")
    names = [name for name in tracked if name and os.path.lexists(ROOT / name)]
    if not names:
        pytest.skip("not a git checkout; enable: git clone")
    for name in names:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        else:
            target.write_bytes((ROOT / name).read_bytes())
    return copy
