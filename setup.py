"""What pyproject.toml cannot say: mypyc compiles the modules that it names in ``tool.homing``, from the same sources.

``HOMING_COMPILE=1`` leaves the client plain, as the wheels of a release have it; ``all`` compiles that, too. Without it nothing here does
anything, and the wheel is plain Python. docs/compiled.md says what it brings and how it is made.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from setuptools import setup

wanted = os.environ.get("HOMING_COMPILE", "")
if wanted in ("1", "all"):
    from mypyc.build import mypycify

    modules = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["homing"]["compiled"]
    if wanted != "all":
        modules = [each for each in modules if not each.startswith("homing/client/")]
    # One unit, so that calls between modules are plain calls of C.
    setup(ext_modules=mypycify(modules, opt_level="2"))
elif wanted:
    raise SystemExit(f"HOMING_COMPILE={wanted} means nothing: 1 or all")
else:
    setup()
