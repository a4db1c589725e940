"""Exports in an object store, the report on them and its store there, by Hadoop's S3 connector against a local server that speaks S3."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable

import homing
from homing import AckMode
from tests.process import Server
from tests.system.check import HERE, MOST_S, Failed, Place, Unavailable, check, expect, python_with, run, tool

_BUCKET: Final = "homing"
_KEY: Final = "local"
_SENT: Final = 200
#: Attempts: every tenth message's three, and one of every fifth of the others.
_FAILED: Final = 3 * 20 + 40
_SETTINGS: Final = {"address-settings": {"#": {"redelivery-delay": 0, "max-delivery-attempts": 3}}}
_UPLOAD: Final = """
import boto3, pathlib, sys
store, (endpoint, bucket, directory) = boto3.client, sys.argv[1:]
store = store("s3", endpoint_url=endpoint, region_name="us-east-1")
store.create_bucket(Bucket=bucket)
for path in pathlib.Path(directory).rglob("*"):
    if path.is_file():
        store.upload_file(str(path), bucket, f"exports/{path.relative_to(directory)}")
"""


@check
def object_store_report(place: Place) -> str:
    directory = place.directory
    jars, python = _connector(directory), python_with(directory, "moto", "moto[server]", "boto3")
    export = directory / "export"
    server = Server(directory / "broker", _SETTINGS).start()
    try:
        asyncio.run(_fail_some(server.url))
    finally:
        server.close()
    run([sys.executable, "-m", "homing", "journal", "export", "--data", str(server.data), "--out", str(export)], directory, "the export")
    here = _report(directory, [str(export), "--out", "report"], {})
    with _store(python, directory) as endpoint:
        keys = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _KEY}
        subprocess.run([python, "-c", _UPLOAD, endpoint, _BUCKET, export], env={**os.environ, **keys}, timeout=MOST_S, check=True)
        spark = {"SPARK_CONF_DIR": str(_spark_conf(directory, jars, endpoint)), **keys}
        there = _report(directory, [f"s3a://{_BUCKET}/exports", "--out", f"s3a://{_BUCKET}/report"], spark)
        words = [f"s3a://{_BUCKET}/exports", "--store", f"s3a://{_BUCKET}/store", "--out", f"s3a://{_BUCKET}/report"]
        stored, again = (_report(directory, words, spark) for _ in range(2))
        attempts = _by_others(f"s3://{_BUCKET}/store/attempts", endpoint, keys)
    for each in (there, stored, again):
        expect(_reported(each), _reported(here))
    expect(attempts, _FAILED)
    if left := [path.name for path in directory.iterdir() if path.name.startswith("s3a")]:
        raise Failed(f"{left} stands among the files of this machine")
    return f"the report on {_SENT} messages was read from and written to s3a://, with a store, too: its figures are those from files"


def _by_others(table: str, endpoint: str, keys: dict[str, str]) -> int:
    """How many rows Delta Lake's own reader counts."""
    options = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", **keys}
    return DeltaTable(table, storage_options=options).count()


def _connector(directory: Path) -> str:
    """Hadoop's, of the version that Spark brings; the class path of its jars."""
    maven = tool("mvn")
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("no pyspark; enable: the extra analytics")
    (api,) = (Path(spec.origin).parent / "jars").glob("hadoop-client-api-*.jar")
    version = api.stem.removeprefix("hadoop-client-api-")
    shutil.copytree(HERE / "s3", directory / "s3")
    try:
        copy = ["dependency:copy-dependencies", "-DoutputDirectory=lib", f"-Dhadoop={version}"]
        run([maven, "-q", "-B", *copy], directory / "s3", "mvn")
    except Failed as error:
        raise Unavailable(f"Hadoop's connector cannot be had ({error}); enable: reach a Maven repository") from None
    return ",".join(map(str, (directory / "s3" / "lib").glob("*.jar")))


async def _fail_some(url: str) -> None:
    """Every tenth message dies, every fifth of the others fails once."""
    async with homing.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        producer, consumer = session.producer("orders"), session.consumer("orders")
        for number in range(_SENT):
            await producer.send(b"%d" % number)
        left = _SENT + 2 * (_SENT // 10) + sum(number % 5 == 1 for number in range(_SENT) if number % 10)
        for _ in range(left):
            message = await consumer.receive(timeout_ms=60_000)
            if message is None:
                raise Failed("a message did not come back")
            number = int(message.body)
            if number % 10 == 0 or (number % 5 == 1 and message.delivery_count == 1):
                await message.nack(error=ValueError("no stock" if number % 10 else "no such article"))
            else:
                await message.acknowledge()


def _reported(report: dict[str, Any]) -> dict[str, Any]:
    """Of its findings all but the commands, which name where the export is."""
    findings = [{name: value for name, value in each.items() if name != "command"} for each in report["findings"]]
    return {"rows": report["rows"], "findings": findings}


def _report(directory: Path, words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "homing", "analyze", *words, "--json"]
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True, timeout=MOST_S, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _spark_conf(directory: Path, jars: str, endpoint: str) -> Path:
    conf = directory / "conf"
    conf.mkdir()
    settings = {
        "spark.jars": jars,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return conf


@contextmanager
def _store(python: Path, directory: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    with (directory / "moto.log").open("w") as log:
        process = subprocess.Popen([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(endpoint, timeout=5).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise Failed("the local object store did not start: " + (directory / "moto.log").read_text()[-500:]) from None
                time.sleep(0.1)
        yield endpoint
    finally:
        process.terminate()
        process.wait(20)
