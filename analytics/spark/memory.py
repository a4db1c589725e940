"""How much memory Spark's Java may take on this machine, and what to say when that was too little."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from ..errors import AnalyticsError
from .connect import context

#: More than the greatest helps little: what does not fit is put on disk.
LEAST_MB, GREATEST_MB = 1_024, 6_144
#: A laptop has other things to do: Java gets this part of its memory.
PART = 4
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_EXHAUSTED = ("OutOfMemoryError", "Java heap space", "GC overhead limit", "UNABLE_TO_ACQUIRE_MEMORY", "System memory", "object heap")
_KILLED, _OUT_OF_MEMORY = (-9, 137), 52
_SIZE = re.compile(r"(\d+)([kmgt])", re.IGNORECASE)
#: Spark refuses to start with less.
_SPARK_MB = 450


def machine_mb() -> int:
    """Of the machine, or of the container where that has less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTAINER_LIMITS:
        try:
            limits.append(int(path.read_text()))
        except (OSError, ValueError):  # no such limit: "max", or another kind of system
            continue
    return min(limits) >> 20


def java_mb(machine: int | None = None) -> int:
    """The heap where nothing else is asked for."""
    return min(max((machine_mb() if machine is None else machine) // PART, LEAST_MB), GREATEST_MB)


def check_memory(memory: str | None) -> None:
    """Raises AnalyticsError: bad-memory for what is no size of Java's, no-memory where that is too little for Spark."""
    if memory is None:
        return
    size = _SIZE.fullmatch(memory)
    if size is None:
        raise AnalyticsError("bad-memory", f"--memory {memory} is no size.", "Write it as 4g or 900m.")
    if int(size[1]) << 10 * ("kmgt".index(size[2].lower()) + 1) < _SPARK_MB << 20:
        raise no_memory(f"Spark does not start with less than {_SPARK_MB}m.")


def fault(spark: SparkSession, name: str, error: Exception) -> AnalyticsError:
    """What an error of Spark's means for who runs it: no-memory, no-disk, spark-lost, and otherwise export-damaged."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    from ..input.inputs import damaged

    text = str(error)
    lost = isinstance(error, ConnectionError | Py4JNetworkError)
    process = getattr(getattr(context(spark), "_gateway", None), "proc", None)
    code = None
    with suppress(subprocess.TimeoutExpired):  # what has just been killed takes a moment to end
        code = process and process.wait(5 if lost else 0.01)
    if code in _KILLED:
        return no_memory("Spark's Java was killed, most likely by a system or container that ran out of memory.")
    if code == _OUT_OF_MEMORY or out_of_memory(text):
        return no_memory("Spark ran out of memory.")
    if code is not None or lost:
        return AnalyticsError(
            "spark-lost", f"Spark's Java ended{'' if code is None else f' with {code}'}.", "See the lines above, and run it again."
        )
    if "No space left on device" in text:
        return AnalyticsError(
            "no-disk", "A disk is full.", "Free some, or set SPARK_LOCAL_DIRS to a larger disk for what Spark puts aside."
        )
    return damaged(name, error)


def out_of_memory(text: str) -> bool:
    return any(word in text for word in _EXHAUSTED)


def no_memory(what: str) -> AnalyticsError:
    fix = f"Allow it more with --memory (such as {2 * java_mb() // 1024}g; here {java_mb()}m unless said), or give the container more."
    return AnalyticsError("no-memory", what, fix)
