"""A real Spark standalone cluster on this machine: a master and two workers, each a process, from the installed pyspark.

``python -m examples.spark_cluster`` starts it, says its address and waits for Ctrl-C.
``python -m examples.spark_cluster homing analyze DUMP --out REPORT --master {master}`` runs a command on it and stops it.
Everything listens on loopback, on free ports; the workers' files lie in a temporary directory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from homing.analytics.spark.java import find_java

WORKERS = 2
PATIENCE_S = 90


@contextmanager
def cluster(workers: int = WORKERS, memory: str = "1g") -> Iterator[str]:
    """The master's address, ``spark://127.0.0.1:…``, with ``workers`` of one core each registered. Ends what it started."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="homing-spark-")))
        master_log = place / "master.log"
        master_class = "org.apache.spark.deploy.master.Master"
        stack.enter_context(_process([master_class, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], master_log, place))
        master = _await(master_log, r"Starting Spark master at (spark://\S+)", 1)[0]
        for number in range(workers):
            size = ["--cores", "1", "--memory", memory, "--work-dir", str(place / f"work-{number}")]
            command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", *size, master]
            stack.enter_context(_process(command, place / f"worker-{number}.log", place))
        _await(master_log, r"Registering worker (\S+)", workers)
        yield master


@contextmanager
def _process(command: Sequence[str], log: Path, place: Path) -> Iterator[None]:
    import pyspark

    home = Path(pyspark.__file__).parent
    variables = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java().quiet_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place),
    }
    with log.open("wb") as file:
        started = subprocess.Popen(
            [home / "bin" / "spark-class", *command], stdout=file, stderr=file, env=os.environ | variables, start_new_session=True
        )
    try:
        yield
    finally:
        # A worker has executors of its own: the whole group that this process leads.
        os.killpg(started.pid, signal.SIGTERM)
        try:
            started.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait(timeout=20)


def _await(log: Path, pattern: str, count: int) -> list[str]:
    """What the first ``count`` lines that match say. Raises TimeoutError with the end of the log."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = re.findall(pattern, log.read_text(errors="replace"))
        if len(found) >= count:
            return [str(each) for each in found]
        time.sleep(0.1)
    raise TimeoutError(f"{log.name} never said {pattern!r} {count} times; it ends with: {log.read_text(errors='replace')[-1500:]}")


def main(command: Sequence[str]) -> int:
    with cluster() as master:
        print(f"spark cluster ready {master}", file=sys.stderr, flush=True)
        if command:
            variables = {"SPARK_LOCAL_IP": "127.0.0.1"}
            return subprocess.run([word.replace("{master}", master) for word in command], env=os.environ | variables).returncode
        try:
            signal.pause()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
