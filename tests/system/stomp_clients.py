"""STOMP clients of Ruby, PHP and Node; and what a transaction spares."""

from __future__ import annotations

import shutil
import time
from statistics import median

from homing.client import blocking
from tests.process import Server, wait_until
from tests.stomp_support import STOMP, Link, stomp_place
from tests.system.check import HERE, Failed, Place, Unavailable, check, expect, run, said, tool

#: b fails twice, and then is dead.
_CAME, _LEFT = ["a", "b", "b", "c", "d"], {"orders": 0, "DLQ.orders": 1}
_SETTINGS = {"address-settings": {"#": {"redelivery-delay": 0, "max-delivery-attempts": 2}}}
#: So many in a row, so often.
_SENDS, _ROUNDS = 1000, 5
_BODY = b"x" * 1024


def _played(place: Place, command: list[str]) -> str:
    server = Server(place.directory / "broker", {**STOMP, **_SETTINGS}).start()
    try:
        _, port = stomp_place(server)
        expect(said(run([*command, str(port), "/queue/orders"], place.directory, command[0])), _CAME)
        with blocking.connect(server.url) as native:
            wait_until("its connection is gone", lambda: len(native.call("connections")) == 1)
            expect({each["name"]: each["messages"] for each in native.call("queues")}, _LEFT)
        expect("connection-exception" in server.log_path.read_text(), False)
    finally:
        server.close()
    return "receipts, a transaction kept and one given up, what failed twice is dead, the rest acknowledged, an end in order"


@check
def stomp_ruby(place: Place) -> str:
    ruby = tool("ruby")
    try:
        run([ruby, "-e", 'require "stomp"'], place.directory, "ruby")
    except Failed:
        raise Unavailable("no stomp for Ruby; enable: apt-get install ruby-stomp") from None
    return _played(place, [ruby, str(HERE / "stomp" / "client.rb")])


@check
def stomp_php(place: Place) -> str:
    php = tool("php")
    if "Stomp" not in run([php, "-m"], place.directory, "php").split():
        raise Unavailable("no extension stomp for PHP; enable: apt-get install php-stomp")
    return _played(place, [php, str(HERE / "stomp" / "client.php")])


@check
def stomp_node(place: Place) -> str:
    node = tool("node")
    shutil.copy(HERE / "stomp" / "client.mjs", place.directory)
    try:
        run([tool("npm"), "install", "--silent", "stompit@1.0.0"], place.directory, "npm")
    except Failed as error:
        raise Unavailable(f"its client cannot be had ({error}); enable: reach a registry of Node's packages") from None
    return _played(place, [node, "client.mjs"])


@check
def stomp_transaction(place: Place) -> str:
    server, alone, together = Server(place.directory / "broker", STOMP), list[float](), list[float]()
    server.measured = True
    link = Link(server.start())
    try:
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            for _ in range(_SENDS):
                link.sure("SEND", _BODY, destination="/queue/orders", persistent="true")
            between = time.perf_counter()
            link.send("BEGIN", transaction="all")
            for _ in range(_SENDS):
                link.send("SEND", _BODY, destination="/queue/orders", persistent="true", transaction="all")
            link.sure("COMMIT", transaction="all")
            alone.append(_SENDS / (between - began))
            together.append(_SENDS / (time.perf_counter() - between))
    finally:
        link.close()
        server.close()
    one, all_of_them = median(alone), median(together)
    expect(all_of_them > one, True)
    return f"messages of {len(_BODY)} bytes a second, each with a receipt: {one:,.0f}; {_SENDS:,} in a transaction: {all_of_them:,.0f}"
