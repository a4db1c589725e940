"""What tests of the console share: its process beside a broker, and a visitor who asks it as a browser would."""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from tests.process import ROOT, START_TIMEOUT_S

#: Texts that would act in a page that does not escape them, or in a terminal.
PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-'",
    "{{ 7 * 7 }}",
    "javascript:alert(1)",
    "\u202e</pre><svg onload=alert(1)>",
    "<div hx-get=/ hx-trigger=load>",
)


_RATES = {"EUR": 1.0}
#: The fixture ``fail``.
Fail = Callable[..., None]


def book(body: bytes) -> None:
    assert _RATES[body.decode()]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def leads_to(self) -> str:
        return self.headers.get("location", "")


class Page(HTMLParser):
    """What a browser would make of it: its elements, its links and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.links: dict[str, str] = {}
        self.said: list[str] = []
        self._link: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "a":
            self._link = found.get("href")

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._link = None

    def handle_data(self, data: str) -> None:
        self.said.append(data)
        if self._link is not None:
            self.links.setdefault(data.strip(), self._link)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())

    def fields(self, action: str) -> list[tuple[str, str]]:
        """What the form with this action sends without anybody's doing; its own address is the empty one."""
        found: list[tuple[str, str]] = []
        within = False
        for tag, attributes in self.elements:
            if tag == "form":
                within = attributes.get("action", "") == action
            elif tag == "input" and within and attributes.get("type") == "hidden":
                found.append((attributes["name"], attributes["value"]))
        return found


class Visitor:
    """Keeps the cookie, follows nothing by itself. ``host``: what it calls the console; ``context``: of an address of https."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.host = urlsplit(address).netloc
        self.address = address
        self.cookie = ""

    def ask(self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        if self.context is not None:
            connection = http.client.HTTPSConnection(self.host, timeout=20, context=self.context)
        sent = {"Host": self.host, **({"Cookie": self.cookie} if self.cookie else {}), **(headers or {})}
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            content = answer.read()
            told = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()
        if "set-cookie" in told:
            self.cookie = told["set-cookie"].partition(";")[0]
        return Answer(answer.status, told, content)

    def see(self, path: str, status: int = 200) -> Page:
        answer = self.ask("GET", path)
        assert answer.status == status, f"{path}: {answer.status}\n{Page(answer.text).text}"
        return Page(answer.text)

    def send(self, path: str, fields: Any, headers: Mapping[str, str] | None = None) -> Answer:
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.address}
        return self.ask("POST", path, urlencode(fields), {**form, **(headers or {})})

    def log_in(self, user: str = "guest", password: str = "guest") -> Answer:
        return self.send("/login", {"user": user, "password": password})


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


GUEST = basic("guest", "guest")


class Api:
    """A program that asks by itself: no cookie, no origin."""

    def __init__(self, address: str) -> None:
        self._visitor = Visitor(address)

    def ask(self, method: str, path: str, said: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        body = None if said is None else said if isinstance(said, str) else json.dumps(said)
        kind = {} if body is None else {"Content-Type": "application/json"}
        answer = self._visitor.ask(method, f"/api/v1{path}", body, {**GUEST, **kind, **(headers or {})})
        if answer.status not in (200, 304):
            assert answer.headers["content-type"] == "application/problem+json", f"{path}: {answer.status} {answer.text}"
            assert json.loads(answer.text).keys() == {"type", "title", "status", "detail", "code", "fix"}
        return answer.status, json.loads(answer.text) if answer.text else answer.headers

    def get(self, path: str, **said: Any) -> Any:
        status, found = self.ask("GET", f"{path}?{urlencode(said, doseq=True)}")
        assert status == 200, found
        return found

    def post(self, path: str, **said: Any) -> Any:
        status, found = self.ask("POST", path, said)
        assert status == 200, found
        return found


@contextmanager
def streamed(address: str, asked: str = "", headers: Mapping[str, str] | None = None) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """The numbers and the data of server-sent events, as they come."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
    try:
        connection.request("GET", f"/api/v1/events/stream{asked}", headers={**GUEST, **(headers or {})})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        yield _events_of(answer)
        answer.close()
    finally:
        connection.close()


def _events_of(lines: Iterator[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    said: dict[str, str] = {}
    for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        said[name] = value
        if not name and "data" in said:
            data = json.loads(said["data"])
            assert said["event"] == data["event"]
            yield int(said["id"]), data
        if not name:
            said = {}


def can_stream(address: str) -> bool:
    try:
        with streamed(address):
            return True
    except AssertionError:
        return False


@contextmanager
def console(url: str, *arguments: str) -> Iterator[str]:
    """``homing console`` of this broker, on a free port; its address."""
    command = [sys.executable, "-m", "homing", "console", "--url", url, "--port", "0", "--json", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "error"}, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], START_TIMEOUT_S)[0], "the console did not become ready"
        yield json.loads(process.stdout.readline())["console"]
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(20) == 0
