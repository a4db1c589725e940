"""The compiled build, as far as it can be looked at without a C compiler; ``scripts/test-compiled`` does this first,
makes it and runs the tests on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import ROOT

TRANSLATE = """
import gc, os, sys, tomllib
gc.disable()  # a fifth of its time, for what it keeps to its end
from mypyc.build import mypycify
modules = tomllib.load(open("pyproject.toml", "rb"))["tool"]["homing"]["compiled"]
mypycify(["--cache-dir", sys.argv[1] + "/cache", *modules], target_dir=sys.argv[1])
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_mypyc_takes_what_is_to_be_compiled(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATE, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CPyDef_queue___Queue___dispatch" in "".join(path.read_text() for path in tmp_path.glob("*.c"))
