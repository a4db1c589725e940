"""RabbitMQ's own Java client (amqp-client)."""

from __future__ import annotations

import shutil
from typing import Final

from tests.system.check import HERE, Failed, Place, Unavailable, check, expect, run, said, tool

CLOSES: Final = 100


@check
def java_closes_and_order(place: Place) -> str:
    java, maven, source = tool("java"), tool("mvn"), place.directory / "java"
    shutil.copytree(HERE / "java", source)
    try:
        run([maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], source, "mvn")
    except Failed as error:
        raise Unavailable(f"its libraries cannot be had ({error}); enable: reach a Maven repository") from None
    seen = said(run([java, "-cp", "lib/*", "Main.java", place.url, str(CLOSES)], source, "the Java program"))
    expect(seen, {"clean": CLOSES, "nack": "A A' A' A'", "transaction": "A A' A' A'"})
    return f"{CLOSES} of {CLOSES} connections closed in order; refused messages came back before the next, without a header of ours"
