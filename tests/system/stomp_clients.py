"""STOMP clients of Ruby, PHP and Node; and what a transaction spares."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import time
from statistics import median
from xml.etree import ElementTree

from homing.broker.auth.passwords import hash_password
from homing.client import blocking
from tests.certificates import Authority
from tests.process import Server, wait_until
from tests.stomp_support import STOMP, Link, stomp_place
from tests.system.check import HERE, MOST_S, Failed, Place, Unavailable, check, expect, python_with, run, said, tool

#: b fails twice, and then is dead.
_CAME, _LEFT = ["a", "b", "b", "c", "d"], {"orders": 0, "DLQ.orders": 1}
_SETTINGS = {"address-settings": {"#": {"redelivery-delay": 0, "max-delivery-attempts": 2}}}
#: Of stomp.py's tests those that fail with any broker, each with what it says then: where nothing leads to the host that is silent, one is
#: told so at once; its listener minds being called before it connects again; Python 2; and threads have no isAlive since Python 3.9.
_EXCUSED = {
    "test_timeout": "connection timeout should have been at least 5 seconds",
    "test_basic": "'NoneType' object is not subscriptable",
    "test_encode": "name 'unicode' is not defined",
    "test_pack": "expected str instance, bytes found",
    "test_threads_dont_wedge": "has no attribute 'isAlive'",
}
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
def stomp_py(place: Place) -> str:
    """The tests that its last distribution with tests has, as they are; what they are told is where the broker is, and who they are."""
    python = python_with(place.directory, "python", "pytest", "docopt", "setuptools")
    source = "stomp.py-4.1.24"
    try:
        run(
            [str(python), "-m", "pip", "-q", "download", "--no-binary", ":all:", "--no-deps", source.replace("-", "==")],
            place.directory,
            "pip",
        )
    except Failed as error:
        raise Unavailable(f"{source} cannot be had ({error}); enable: reach a package index") from None
    with tarfile.open(place.directory / f"{source}.tar.gz") as archive:
        archive.extractall(place.directory, filter="data")
    made = place.directory / "broker"
    made.mkdir()
    Authority(made).issue("server")
    users = {name: hash_password("password") for name in ("admin", "testuser")} | {"guest": hash_password("guest")}
    secured = {"native": {"port": 0, "tls-port": 0}, "tls": {"certificate": "server.pem", "key": "server.pem"}, "users": users}
    server = Server(made, {**secured, "stomp": {"port": 0, "tls-port": 0}})
    open_to_all = Server(place.directory / "open", {"stomp": {"host": "::1", "port": 0}})
    report = place.directory / "report.xml"
    try:
        places = (server.start().ready["stomp"], server.ready["stomp-tls"], open_to_all.start().ready["stomp"])
        ports = [int(each.rpartition(":")[2]) for each in places]
        (place.directory / source / "stomp" / "test" / "setup.ini").write_text(_setup(*ports))
        command = [str(python), "-m", "pytest", "-q", "-o", "python_files=*_test.py", f"--junitxml={report}", "stomp/test"]
        subprocess.run(command, cwd=place.directory / source, stdin=subprocess.DEVNULL, capture_output=True, timeout=MOST_S, check=False)
    finally:
        server.close()
        open_to_all.close()
    cases = [*ElementTree.parse(report).getroot().iter("testcase")]
    failed = {
        each.get("name", ""): "".join(problem.itertext()) for each in cases for problem in (*each.iter("failure"), *each.iter("error"))
    }
    if others := [f"{name}: {text[-300:]}" for name, text in failed.items() if _EXCUSED.get(name, text + "?") not in text]:
        raise Failed("\n".join(others))
    return f"{len(cases)} of its own tests, of which {len(failed)} cannot pass anywhere here: {', '.join(sorted(failed))}"


def _setup(port: int, tls_port: int, open_port: int) -> str:
    """Its configuration: every broker that it knows is ours. At that of IPv6, and of nobody's name, everybody may log in."""
    ours = dict.fromkeys(("default", "rabbitmq", "artemis", "apollo", "sni"), ("127.0.0.1", port))
    places = ours | dict.fromkeys(("ipv6", "stompserver"), ("::1", open_port))
    users = dict.fromkeys(places, ("admin", "password")) | {"rabbitmq": ("guest", "guest"), "artemis": ("testuser", "password")}
    return "".join(
        f"[{name}]\nhost = {host}\nport = {at}\nssl_port = {tls_port}\nuser = {users[name][0]}\npassword = {users[name][1]}\n"
        for name, (host, at) in places.items()
    )


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
