"""What pyproject.toml cannot say: which version this is, and that mypyc compiles the modules which it names in ``tool.homing``.

``HOMING_COMPILE=1`` leaves the client plain, as the wheels of a release have it; ``all`` compiles that, too. Without it the wheel is plain
Python. docs/compiled.md says what it brings and how it is made.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
#: What a build writes beside broker/version.py, which reads it (``homing/broker`` is a link in a work tree, a folder in what is packed).
BUILD = "homing/broker/build.json"


def git(*words: str) -> str:
    """What git says of this work tree; nothing where this is none."""
    done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def version_and_commit() -> dict[str, str]:
    """The release itself where its tag stands or git says nothing; else ``.postN``, N commits after its tag, or after it was raised."""
    if (HERE / BUILD).exists():  # these are the sources that somebody packed
        written: dict[str, str] = json.loads((HERE / BUILD).read_text())
        return written
    (release,) = re.findall(r'^RELEASE: Final = "(.+)"$', (HERE / "homing/broker/version.py").read_text(), re.MULTILINE)
    commit = git("rev-parse", "HEAD") if git("ls-files", "setup.py") else ""
    if not commit:
        return {"version": release, "commit": "unknown"}
    tag = f"v{release}"
    if git("tag", "--list", tag):
        since = int(git("rev-list", "--count", f"{tag}..HEAD"))
    else:
        raised = git("log", "-1", "--format=%H", "-G^RELEASE: Final", "--", "broker/version.py")
        since = 1 + int(git("rev-list", "--count", f"{raised}..HEAD") or 0)
    return {"version": f"{release}.post{since}" if since else release, "commit": commit}


THIS = version_and_commit()


class Built(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, BUILD).write_text(json.dumps(THIS))


class Packed(sdist):
    def make_release_tree(self, base_dir: str, files: Any) -> None:
        super().make_release_tree(base_dir, files)
        Path(base_dir, BUILD).write_text(json.dumps(THIS))


extensions: list[Any] = []
wanted = os.environ.get("HOMING_COMPILE", "")
if wanted in ("1", "all"):
    from mypyc.build import mypycify

    modules = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["homing"]["compiled"]
    if wanted != "all":
        modules = [each for each in modules if not each.startswith("homing/client/")]
    # One unit, so that calls between modules are plain calls of C.
    extensions = mypycify(modules, opt_level="2")
elif wanted:
    raise SystemExit(f"HOMING_COMPILE={wanted} means nothing: 1 or all")
setup(version=THIS["version"], cmdclass={"build_py": Built, "sdist": Packed}, ext_modules=extensions)
