"""RabbitMQ's own Go client (amqp091-go), an older version of it and a newer one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from tests.system.check import HERE, IN_ORDER, ORDER, PREFETCH, SHARED, Failed, Place, Unavailable, check, expect, run, said, tool

VERSIONS: Final = ("v1.10.0", "v1.16.0")
CLOSES: Final = 100
WATERMILL: Final = "v3.0.2"


def built(place: Place, package: str, requires: list[str]) -> Path:
    """The program of tests/system/``package``, built against these versions of modules."""
    go, source, program = tool("go"), place.directory / package, place.directory / f"{package}.program"
    shutil.copytree(HERE / package, source)
    try:
        run([go, "mod", "edit", *(f"-require={each}" for each in requires)], source, "go mod edit")
        run([go, "mod", "tidy"], source, "go mod tidy")
    except Failed as error:
        raise Unavailable(f"its modules cannot be had ({error}); enable: reach a Go module proxy") from None
    run([go, "build", "-o", str(program), "."], source, "go build")
    shutil.rmtree(source)
    return program


def _with_each_version(place: Place, name: str, *arguments: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for version in VERSIONS:
        program = built(place, "go", [f"github.com/rabbitmq/amqp091-go@{version}"])
        seen[version] = said(run([str(program), place.url, name, *arguments], place.directory, f"the program with {version}"))
    return seen


@check
def go_redelivered_headers(place: Place) -> str:
    sent = {"id": "7"}
    seen = _with_each_version(place, "headers")
    for outcome in seen.values():
        expect(outcome, {"classic": [sent, True, sent], "quorum": [sent, True, {**sent, "x-delivery-count": 1}]})
    return "what came back to a classic queue had exactly the headers it was sent with"


@check
def go_clean_closes(place: Place) -> str:
    seen = _with_each_version(place, "closes", str(CLOSES))
    for outcome in seen.values():
        expect(outcome, {"clean": CLOSES, "hung": 0, "errors": {}})
    return f"{CLOSES} of {CLOSES} connections closed without a word, with amqp091-go {' and '.join(VERSIONS)}"


@check
def go_order(place: Place) -> str:
    for outcome in _with_each_version(place, "order").values():
        expect(outcome, ORDER)
    return IN_ORDER


@check
def go_prefetch(place: Place) -> str:
    for outcome in _with_each_version(place, "prefetch").values():
        expect(outcome, PREFETCH)
    return SHARED


@check
def go_watermill(place: Place) -> str:
    """A framework that refuses headers which are no text."""
    program = built(place, "watermill", [f"github.com/ThreeDotsLabs/watermill-amqp/v3@{WATERMILL}"])
    first = {"kind": "test"}
    again = {**first, "_watermill_amqp_redelivered": "true"}  # its own word for it
    expect(said(run([str(program), place.url], place.directory, "watermill")), {"metadata": [first, again, again], "received": 3})
    return "a message that failed twice came a third time as it was sent"
