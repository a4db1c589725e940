"""The failure desk in a real browser: the story of a failure clicked through, and every page at two sizes, light and dark."""

from __future__ import annotations

import linecache
import os
import shutil
import threading
from pathlib import Path
from typing import Any, Final

import pika

from examples.failure_reports import with_pika
from homing.client import blocking
from tests.amqp_support import amqp_port
from tests.console_support import Visitor, console
from tests.process import ROOT, Server
from tests.system.check import HERE, Place, Unavailable, check, expect, python_with, run, said

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
_SENT: Final = 6
_FUZZED_S: Final = 60
_LATER_MS: Final = 3_600_000
_PICTURES: Final = ROOT / "build" / "console"
_SHOWN: Final = ("overview", "fault", "message", "dry-run", "redrive", "arrived")
#: Where the failing program stands, as its traceback tells.
_DEPLOYED: Final = Path("/srv/orders")
_WORKER: Final = """
RATES = {"EUR": 1.0}


def book(body):
    print(RATES[body.decode()])
"""


@check
def failure_desk(place: Place) -> str:
    """Its pictures are in build/console; with HOMING_APPROVE=1 they are those of docs/console.md, too."""
    chromium = browser()
    python = python_with(place.directory, "browser", "playwright", "axe-playwright-python")
    place.server.config["address-settings"] = {"orders": {"redelivery-delay": "50ms", "max-delivery-attempts": 3}}
    place.server.restart()
    _fail(place.server)
    _PICTURES.mkdir(parents=True, exist_ok=True)
    mended = threading.Event()
    consumer = threading.Thread(target=_mended, args=(place.server, mended))
    with console(place.server.url) as address:
        consumer.start()
        try:
            program = [str(python), str(HERE / "console_browser.py"), address, chromium, str(_PICTURES)]
            seen = said(run([*program, *_pages(address)], place.directory, "the browser"))
        finally:
            mended.set()
            consumer.join()
    expect(seen.pop("wrong"), [])
    expect(
        seen,
        {
            "fault": "KeyError: 'GBP' new",
            "died": 1,
            "one": "Dry run: 1 message of DLQ.orders would be sent. Nothing has been sent yet.",
            "plan": f"Dry run: {_SENT} messages of DLQ.orders would be sent. Nothing has been sent yet.",
            "sent": str(_SENT),
            "arrived": 1,
        },
    )
    _fuzz(place)
    if "HOMING_APPROVE" in os.environ:
        for name in _SHOWN:
            shutil.copy(_PICTURES / f"console-{name}.png", ROOT / "docs")
    pages = len(_pages_of()) + 6
    seen = f"from what is wrong to what has arrived; {pages} pages at 2 sizes, light and dark, without a finding of axe-core"
    return f"{seen}; the API as its document says"


def browser() -> str:
    """Raises Unavailable."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        raise Unavailable("no Chromium; enable: install it (Debian: chromium)")
    return found


def _fuzz(place: Place) -> None:
    """The API against its own document, for a while: no failure of ours, and no answer that is not as it says.

    Left out is what would end the guest's rights, and what has no end; that it takes all that its document allows, which says less than a
    broker knows; and that ``/messages/delete`` has no GET, as it is a message's number then, and none.
    """
    fuzzed = python_with(place.directory, "fuzzed", "schemathesis").with_name("schemathesis")
    with console(place.server.url) as address:
        program = [str(fuzzed), "run", f"{address}/api/v1/openapi.json", "--auth", "guest:guest", "--max-time", str(_FUZZED_S)]
        program += ["--phases", "coverage,fuzzing", "--max-examples", "5", "--generation-deterministic", "--warnings", "off"]
        program += ["--exclude-path", "/api/v1/users", "--exclude-path", "/api/v1/events/stream"]
        program += ["--exclude-checks", "positive_data_acceptance,unsupported_method"]
        run(program, place.directory, "schemathesis")


def _pages_of() -> tuple[str, ...]:
    return (
        *("/", "/faults", "/dead-letters", "/dead-letters?queue=DLQ.orders", "/redrives", "/queues", "/queue?queue=orders"),
        *("/waiting", "/events", "/redrives/new?queue=DLQ.orders", "/dead-letters/delete?queue=DLQ.orders", "/login"),
        *("/connections", "/settings?address=orders", "/settings/change?pattern=orders&settings=redelivery-delay%3D1s"),
        *("/users", "/journal", "/journal/backup", "/journal/export", "/queue/purge?queue=DLQ.orders"),
    )


def _pages(address: str) -> list[str]:
    """And those of the fault and of a message, whose numbers only the broker knows."""
    visitor = Visitor(address)
    visitor.log_in()
    fault = visitor.see("/faults").links["KeyError: 'GBP'"]
    message = next(link for text, link in visitor.see(fault).links.items() if text.isdigit())
    connection = next(link for text, link in visitor.see("/connections").links.items() if text.startswith("c"))
    return [*_pages_of(), fault, connection, f"{connection}/close", message, f"{message}/edit?queue=DLQ.orders", "/search?q=GBP"]


def _deployed(name: str, source: str) -> dict[str, Any]:
    """What a module has that stands in that folder: it runs here, and only its name is another."""
    file = str(_DEPLOYED / name)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    found: dict[str, Any] = {}
    exec(compile(source, file, "exec"), found)
    return found


def _connected(server: Server) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", amqp_port(server)))


def _fail(server: Server) -> None:
    """All of them, until they are dead; and one waits for its time."""
    connection = _connected(server)
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    for _ in range(_SENT):
        channel.basic_publish("", "orders", b"GBP", pika.BasicProperties(delivery_mode=2))
    reporting = _deployed("reporting.py", Path(with_pika.__file__).read_text())["reporting"]
    handle = reporting(_deployed("worker.py", _WORKER)["book"])
    for message in channel.consume("orders", inactivity_timeout=1):
        if message[0] is None:
            break
        handle(channel, *message)
    connection.close()
    with blocking.connect(server.url) as native, native.session() as session:
        session.producer("parcels").send(b"later", delay_ms=_LATER_MS)


def _mended(server: Server, end: threading.Event) -> None:
    """The next release: it knows them all."""
    connection = _connected(server)
    channel = connection.channel()
    channel.basic_consume("orders", lambda channel, method, properties, body: channel.basic_ack(method.delivery_tag))
    while not end.is_set():
        connection.process_data_events(0.1)
    connection.close()
