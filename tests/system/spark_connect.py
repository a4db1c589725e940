"""The report, its store and the what-if by Spark Connect, on a server of its own; beside the same without it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from benchmarks.analytics.sample import write_sample
from tests.system.check import MOST_S, Failed, Place, check, expect, python_with, run

_CLIENT: Final = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@check
def spark_connect(place: Place) -> str:
    directory = place.directory
    client = next(python_with(directory, "client", *_CLIENT).parent.parent.glob("lib/*/site-packages"))
    write_sample(directory / "export", seed=6, messages=300)
    (directory / "new.yaml").write_text('address-settings: {"#": {max-delivery-attempts: 5}}')
    with _server(directory) as address:
        for name, more in (("here", []), ("there", ["--master", address])):
            _homing(client, directory, "analyze", "export", "--out", f"report-{name}", *more)
            _homing(client, directory, "analyze", "export", "--out", f"stored-{name}", "--store", f"store-{name}", *more)
            _homing(client, directory, "simulate", "export", "--policy", "new.yaml", "--out", f"what-if-{name}", *more)
    tables = {path.relative_to(directory) for path in directory.glob("*-here/parquet/*")}
    expect(len(tables), 49)
    for table in sorted(tables):
        if _rows(directory / table) != _rows(directory / str(table).replace("-here", "-there", 1)):
            raise Failed(f"{table} differs by Spark Connect")
    return f"{len(tables)} tables of reports, of a store and of a what-if are by Spark Connect what they are without"


def _rows(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(table).to_pylist()
    return rows


def _homing(client: Path, directory: Path, *words: str) -> None:
    code = f"import sys; sys.path.append({str(client)!r}); from homing.broker.cli.main import main; main()"
    run([sys.executable, "-c", code, *words], directory, " ".join(words))


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", "--class", _SERVER]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen([*command, "spark-internal"], stdout=log, stderr=log, env=environment, cwd=directory)
    try:
        end = time.monotonic() + MOST_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > end or process.poll() is not None:
                    raise Failed("Spark Connect did not start: " + (directory / "server.log").read_text()[-500:]) from None
                time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
