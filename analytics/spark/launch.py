"""Spark's Java started at once, by the command that Spark's own launcher makes of its options, remembered from the first time.

pyspark starts it through three scripts, a Python and another Java, which only find out what to start, and can do so only when it is
imported itself. Here Java starts while that is imported. Whoever has settings for Spark's scripts in the environment gets these scripts.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .java import make_room

#: Variables that begin so are for the scripts, but for those that Java reads itself.
_FOR_SCRIPTS, _FOR_JAVA = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_"), ("SPARK_LOCAL_DIRS",)
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_PAUSE_S = 0.01
#: Commands that are remembered: one for each Java, Spark and size of memory.
_MOST_COMMANDS = 16
_LAUNCHER_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Launched:
    """A Java that has been started, and the file in which it will tell where it listens."""

    process: subprocess.Popen[bytes]
    told: Path

    def gateway(self) -> dict[str, str] | None:
        """The variables by which pyspark finds it, once it listens; None where it ended before."""
        while self.process.poll() is None and not self.told.is_file():
            time.sleep(_PAUSE_S)
        try:
            port, length, secret = _words(self.told.read_bytes())
        except FileNotFoundError:
            return None
        finally:
            with suppress(OSError):
                self.told.unlink(missing_ok=True)
                self.told.parent.rmdir()
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret[:length].decode()}


def launch(spark: Path, java_home: Path, options: str, settings: Mapping[str, str], cache: Path) -> Launched | None:
    """Starts Java for the ``spark`` that is installed, with ``settings`` for Spark and ``options`` for itself.

    ``cache``: where the command is remembered. None where it is for the scripts to start it.
    """
    if any(name.startswith(_FOR_SCRIPTS) and name not in _FOR_JAVA for name in os.environ) or (spark / "conf").exists():
        return None
    environment = {"JAVA_HOME": str(java_home), "SPARK_HOME": str(spark), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONNECT_MODE": "0"}
    for_java = {"spark.driver.memory": settings["spark.driver.memory"], "spark.driver.extraJavaOptions": options}
    try:
        command = _command(spark, java_home, for_java, {**os.environ, **environment}, cache)
        told = Path(tempfile.mkdtemp(prefix="homing-gateway-"), "told")
        environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(told)
        process = subprocess.Popen(
            [*command, *_as_arguments({**settings, **for_java}), "pyspark-shell"],
            stdin=subprocess.PIPE,  # it ends when this does
            env={**os.environ, **environment},
            process_group=0,  # interrupts are for Python
        )
    except (OSError, subprocess.SubprocessError, StopIteration, ValueError):
        return None
    return Launched(process, told)


def _command(spark: Path, java_home: Path, for_java: Mapping[str, str], environment: Mapping[str, str], cache: Path) -> Sequence[str]:
    """Up to SparkSubmit's own arguments. Raises OSError, SubprocessError, StopIteration or ValueError."""
    of = repr((str(spark), spark.joinpath("jars").stat().st_mtime_ns, str(java_home), sorted(for_java.items())))
    remembered = cache / f"launch-{hashlib.sha256(of.encode()).hexdigest()[:16]}"
    with suppress(FileNotFoundError):
        return remembered.read_text(encoding="utf-8").split("\0")
    scala = next(spark.glob("jars/spark-core_*.jar")).name.removeprefix("spark-core_").partition("-")[0]
    launcher = [str(java_home / "bin" / "java"), "-cp", f"{spark}/jars/*", "org.apache.spark.launcher.Main"]
    asked = subprocess.run(
        [*launcher, _SUBMIT, *_as_arguments(for_java), "pyspark-shell"],
        env={**environment, "SPARK_SCALA_VERSION": scala},
        capture_output=True,
        encoding="utf-8",
        timeout=_LAUNCHER_TIMEOUT_S,
        check=True,
    )
    told = asked.stdout.lstrip("\0\n").split("\0")
    command = told[: told.index(_SUBMIT) + 1]
    make_room(cache, "launch-*", _MOST_COMMANDS)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=cache, delete=False) as file:
        file.write("\0".join(command))
    os.replace(file.name, remembered)
    return command


def _as_arguments(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def _words(told: bytes) -> tuple[int, int, bytes]:
    port, length = struct.unpack(">ii", told[:8])
    return port, length, told[8:]
