"""What docs/interoperability.md shows of failure reports in other languages, in programs of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from homing.client import blocking
from tests.amqp_support import connection
from tests.process import ROOT, wait_until
from tests.system.check import HERE, Failed, Place, Unavailable, check, expect, run, tool

HERE_IT_GOES: Final = "// (docs/interoperability.md)"
GO_CLIENT: Final = "github.com/rabbitmq/amqp091-go@v1.16.0"
NODE_CLIENT: Final = "amqplib@1"


def _written(directory: Path, name: str, language: str) -> Path:
    """The program of tests/system/reports, with the function that stands in the docs."""
    page = (ROOT / "docs" / "interoperability.md").read_text()
    (shown,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = directory / name
    program.write_text((HERE / "reports" / name).read_text().replace(HERE_IT_GOES, shown))
    return program


def _had(command: list[str], directory: Path, where: str) -> None:
    try:
        run(command, directory, command[0])
    except Failed as error:
        raise Unavailable(f"its client cannot be had ({error}); enable: reach {where}") from None


def _told(place: Place, command: list[str], error_class: str, line: str) -> str:
    """One message, which the program fails until it is dead."""
    with connection(place.server) as plain:
        plain.channel().queue_declare("orders", durable=True, arguments={"x-delivery-limit": 1})
        plain.channel().basic_publish("", "orders", b"{}")
    with subprocess.Popen([*command, place.url], cwd=place.directory) as program, blocking.connect(place.server.url) as native:
        try:
            wait_until("it is dead", lambda: any(each["dead"] for each in native.call("faults", queue="orders")["items"]), 60)
            (group,) = native.call("faults", queue="orders")["items"]
            fault = native.call("fault", fault=group["fault"])
        finally:
            program.kill()
    expect((group["error_class"], group["failures"]), (error_class, 2))
    expect("no rate for GBP" in fault["text"], True)
    expect(line in fault["traceback"], True)
    return f"two failures of {error_class}, with text and traceback"


@check
def report_node(place: Place) -> str:
    node, program = tool("node"), _written(place.directory, "report.mjs", "js")
    _had([tool("npm"), "install", "--silent", NODE_CLIENT], place.directory, "a registry of Node's packages")
    return _told(place, [node, str(program)], "RangeError", "report.mjs")


@check
def report_go(place: Place) -> str:
    go, source = tool("go"), place.directory / "source"
    source.mkdir()
    _written(source, "report.go", "go")
    run([go, "mod", "init", "report"], source, "go mod init")
    _had([go, "get", GO_CLIENT], source, "a Go module proxy")
    run([go, "build", "-o", "report", "."], source, "go build")
    return _told(place, [str(source / "report")], "*errors.errorString", "main.failed")


@check
def report_java(place: Place) -> str:
    java, program = tool("java"), _written(place.directory, "Report.java", "java")
    shutil.copy(HERE / "java" / "pom.xml", place.directory)
    _had([tool("mvn"), "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], place.directory, "a Maven repository")
    return _told(place, [java, "-cp", "lib/*", str(program)], "java.lang.IllegalStateException", "Report.java")
