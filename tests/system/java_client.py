"""RabbitMQ's own Java client (amqp-client)."""

from __future__ import annotations

import shutil
from typing import Final

from tests.system.check import HERE, IN_ORDER, ORDER, PREFETCH, SHARED, Failed, Place, Unavailable, check, expect, run, said, tool

CLOSES: Final = 100


@check
def java_first_four(place: Place) -> str:
    java, maven, source = tool("java"), tool("mvn"), place.directory / "java"
    shutil.copytree(HERE / "java", source)
    try:
        run([maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], source, "mvn")
    except Failed as error:
        raise Unavailable(f"its libraries cannot be had ({error}); enable: reach a Maven repository") from None
    seen = said(run([java, "-cp", "lib/*", "Main.java", place.url, str(CLOSES)], source, "the Java program"))
    expect(seen, {"clean": CLOSES, "classic": "null", "quorum": "{x-delivery-count=1}", "order": ORDER, "prefetch": PREFETCH})
    return f"{CLOSES} of {CLOSES} connections closed in order; a classic queue added no header; {IN_ORDER}; {SHARED}"
