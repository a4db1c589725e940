"""The console beside its broker: begun and ended with it, with the rights of its users, and when the broker is away."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from homing.client import blocking
from tests.certificates import Authority
from tests.console_support import Api, Visitor, console
from tests.house import HASH
from tests.process import ROOT, HomingCommand, Server, wait_until


def test_it_shows_what_its_user_may_see_and_says_when_the_broker_is_away(
    start_server: Callable[..., Server], homing: HomingCommand
) -> None:
    server = start_server({"users": {"alice": HASH}})
    with blocking.connect(server.url, user="alice", password="pw") as admin:
        admin.call("create-queue", queue="kept")
        page = admin.call("peek-dead-letters", queue="kept", filter={"since_ms": 1}, limit=1)
        assert page["messages"] == [], "of a journal without a message"
        admin.call("add-user", name="viewer", hash=HASH, grants=[{"rights": ["monitor"]}])
    with console(server.url) as address:
        visitor = Visitor(address)
        assert visitor.log_in().status == 401, "no guest where there are users"
        assert visitor.log_in("alice", "wrong").status == 401
        assert visitor.log_in("viewer", "pw").status == 303
        assert "How much there is" in visitor.see("/").text
        refused = visitor.see("/dead-letters?queue=kept", 403)
        assert ("No right to that" in refused.text, "access-refused" in refused.text) == (True, True)
        assert visitor.ask("GET", "/users").status == 403
        assert visitor.send("/journal/backup", [*visitor.see("/journal").fields("/logout"), ("name", "x")]).status == 403
        administrator = Visitor(address)
        administrator.log_in("alice", "pw")
        assert "viewer monitor # all virtual hosts – command" in administrator.see("/users").text
        assert administrator.send("/queue/purge", [*visitor.see("/").fields("/logout"), ("queue", "kept")]).status == 403
        url = f"homing://alice:pw@{server.url.removeprefix('homing://')}"
        made = homing.json("user", "token", "ci", "--role", "monitoring", "--ends", "30d", "--url", url)
        bearer = {"Authorization": f"Bearer {made['token']}"}
        assert visitor.ask("GET", "/api/v1/statistics", headers=bearer).status == 200
        assert visitor.ask("GET", "/api/v1/users", headers=bearer).status == 403
        assert visitor.ask("GET", "/api/v1/statistics", headers={"Authorization": f"Bearer {made['token'][:-6]}"}).status == 401
        with blocking.connect(server.url, user="ci", password=made["password"]) as program:
            assert "queues" in program.call("statistics")
        assert re.search(r"ci until \S+ .* monitoring # all virtual hosts – command", administrator.see("/users").text)
        server.stop()
        gone = visitor.ask("GET", "/")
        assert (gone.status, "The broker is away" in gone.text, 'hx-trigger="every 2s"' in gone.text) == (503, True, True)
        assert Visitor(address).log_in("viewer", "pw").status == 503
        server.start()
        assert "How much there is" in visitor.see("/").text, "the session goes on"


def process_of(server: Server) -> int:
    """Of the console that the broker began last."""
    return int(re.findall(r"the console of process (\d+) is at", server.logged("console-ready"))[-1])


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def files_of(pid: int) -> Iterator[str]:
    """What is open there; one may be closed meanwhile."""
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield each.readlink().name


def test_a_broker_has_its_console_beside_it_for_as_long_as_it_is_there(start_server: Callable[..., Server], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = str(authority.issue("broker"))
    server = start_server(
        {"console": {"port": 0, "tls-port": 0, "memory-limit": "96MiB"}, "tls": {"certificate": certificate, "key": certificate}}
    )
    first = process_of(server)
    secured = Visitor(server.ready["console-tls"], ssl.create_default_context(cafile=authority.file))
    assert secured.log_in().headers["set-cookie"].endswith("SameSite=strict; Secure")
    assert "Nothing is" in secured.see("/").text
    assert secured.ask("GET", "/", headers={"Host": "desk.example"}).status == 200, "the certificate has the name"
    assert secured.send("/logout", secured.see("/").fields("/logout"), {"Origin": secured.address.replace("https", "http")}).status == 403
    visitor = Visitor(server.ready["console"])
    visitor.log_in()
    assert "Nothing is" in visitor.see("/").text
    if sys.platform == "linux":
        assert re.search(r"Max data size +100663296 ", Path(f"/proc/{first}/limits").read_text())
        theirs = list(files_of(first))
        assert len([each for each in theirs if each.startswith("pipe:")]) == 3, "standard input, output and error"
        assert not [each for each in theirs if "homing" in each or each.endswith((".db", ".log"))], theirs
    os.kill(first, signal.SIGKILL)
    server.logged("console-ended: the console ended with exit code -9; it is begun again in 1 s")
    wait_until("it is there again", lambda: process_of(server) != first)
    visitor.log_in()
    assert "Nothing is" in visitor.see("/").text, "at the same address"
    second = process_of(server)
    other = start_server({"console": {"port": int(visitor.host.partition(":")[2])}}, name="other")
    assert other.ready["console"] == "off"
    other.logged("console-off: the console cannot listen on", "Address already in use", "set console.port to another")
    server.kill()
    wait_until("it has ended with the broker", lambda: not is_there(second))
    assert server.start().ready["console"].startswith("http://127.0.0.1:")
    third = process_of(server)
    assert server.stop() == 0
    assert not is_there(third)


def test_a_console_that_only_shows_does_nothing(start_server: Callable[..., Server]) -> None:
    server = start_server()
    with blocking.connect(server.url) as native, console(server.url, "--url", "homing://127.0.0.1:1", "--read-only") as address:
        native.call("create-queue", queue="kept")
        visitor, api = Visitor(address), Api(address)
        visitor.log_in()
        page = visitor.see("/queue?queue=kept")
        assert "This console only shows" in page.text
        refused = visitor.send("/queue", [*page.fields("/queue"), ("act", "pause")])
        assert (refused.status, "read-only" in refused.text) == (403, True)
        assert api.ask("POST", "/queue/pause", {"queue": "kept"})[1]["code"] == "read-only"
        assert api.post("/settings/preview", layers={"kept": {"max-delivery-attempts": 3}})["rows"] == []
        assert native.call("queue", queue="kept")["paused"] is False
        for broker, status in ((server.url, 200), ("homing://127.0.0.1:1", 503), ("homing://elsewhere.example:7171", 404)):
            assert api.ask("GET", "/overview", headers={"Homing-Broker": broker})[0] == status
            chosen = Visitor(address).send("/login", {"user": "guest", "password": "guest", "broker": broker})
            assert chosen.status == {200: 303}.get(status, status)
        assert {"homing://127.0.0.1:1", server.url} <= set(Visitor(address).see("/login").said)
        assert visitor.send("/logout", page.fields("/logout")).leads_to == "/login"


def test_without_the_extra_it_says_what_brings_it() -> None:
    program = "import sys; sys.modules['jinja2'] = None; sys.argv = ['homing', 'console']; from homing.broker.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "no-console" in done.stderr, "homing[console]" in done.stderr) == (1, True, True)
