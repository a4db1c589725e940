"""What tests of a failing disk share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that makes chosen calls to the disk fail: for LD_PRELOAD."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the I/O shim. enable: install gcc")
    library = tmp_path_factory.mktemp("shim") / "io_shim.so"
    source = Path(__file__).with_name("io_shim.c")
    subprocess.run([compiler, "-std=gnu11", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=50)
    return str(library)
