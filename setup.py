"""What pyproject.toml cannot say: with HOMING_COMPILE=1 mypyc compiles the modules that it names in ``tool.homing``, from the same sources.

Without it nothing here does anything, and the wheel is plain Python. docs/compiled.md says what it brings and how it is made.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from setuptools import setup

if os.environ.get("HOMING_COMPILE") == "1":
    from mypyc.build import mypycify

    modules = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["homing"]["compiled"]
    # One unit, so that calls between modules are plain calls of C.
    setup(ext_modules=mypycify(modules, opt_level="2"))
else:
    setup()
