"""Who sees figures: everybody at a loopback address, from elsewhere users with the right to, over TLS."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from homing.broker.auth.access import Access
from homing.broker.auth.logins import Logins
from homing.broker.auth.passwords import hash_password
from homing.broker.auth.users import User, Users
from homing.broker.core.rights import Grant
from homing.broker.http.health import Health
from homing.broker.http.listener import HttpListener
from homing.broker.http.monitor import Monitors

HASHED = hash_password("right")
USERS = [
    User("ann", HASHED, (Grant(frozenset({"monitoring"})),)),
    User("bob", HASHED, (Grant(frozenset({"producer"})),)),
]
ELSEWHERE, HERE = "192.0.2.1", "127.0.0.1"


async def one_figure() -> list[Metric]:
    return [GaugeMetricFamily("homing_figure", "One.", 7)]


async def ask(
    users: list[User],
    path: str = "/metrics",
    *,
    server: str = ELSEWHERE,
    scheme: str = "https",
    login: str | None = None,
    insecure: bool = False,
) -> tuple[int, dict[str, str], Any]:
    known = Users(lambda name, content: None, lambda: 0)
    known.configure(users)
    logins = Logins(lambda: known.hashes, 1, 30_000)
    http = HttpListener(Health())
    http.show(one_figure, Monitors(logins, Access(known), insecure))
    try:
        return await asked(http, path, server, scheme, login)
    finally:
        logins.close()


async def asked(
    http: HttpListener, path: str, server: str, scheme: str = "http", login: str | None = None
) -> tuple[int, dict[str, str], Any]:
    headers = [] if login is None else [(b"authorization", b"Basic " + base64.b64encode(login.encode()))]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "root_path": "",
        "scheme": scheme,
        "headers": headers,
        "server": (server, 7172),
        "client": ("192.0.2.9", 1234),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await http.app(scope, receive, send)
    said = b"".join(message.get("body", b"") for message in sent).decode()
    reported = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], reported, json.loads(said) if reported["content-type"] == "application/json" else said


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_probes_ask_nobody_who_he_is(path: str) -> None:
    assert (await ask(USERS, path, scheme="http"))[0] == {"/livez": 200, "/readyz": 503}[path]


async def test_at_a_loopback_address_everybody_sees_figures() -> None:
    code, _, said = await ask(USERS, server=HERE, scheme="http")
    assert (code, "\nhoming_figure 7.0\n" in said) == (200, True)


async def test_from_elsewhere_they_are_for_users_with_the_right() -> None:
    code, _, said = await ask(USERS, login="ann:right")
    assert (code, "\nhoming_figure 7.0\n" in said) == (200, True)


@pytest.mark.parametrize(
    ("asked", "code", "why"),
    [
        ({"login": "ann:wrong"}, 401, "login-refused"),
        ({"login": "ann"}, 401, "login-required"),
        ({}, 401, "login-required"),
        ({"login": "bob:right"}, 403, "access-refused"),
        ({"login": "ann:right", "scheme": "http"}, 403, "tls-required"),
        ({"login": "bob:right", "scheme": "http", "insecure": True}, 403, "access-refused"),
        ({"users": [], "scheme": "http"}, 403, "tls-required"),
        ({"users": []}, 403, "users-required"),
    ],
)
async def test_whoever_may_not_see_them_is_told_why(asked: dict[str, Any], code: int, why: str) -> None:
    users = asked.pop("users", USERS)
    answered, headers, said = await ask(users, **asked)
    assert (answered, said["code"]) == (code, why)
    assert headers.get("www-authenticate") == ('Basic realm="homing"' if code == 401 else None)


async def test_who_says_so_is_shown_them_in_the_clear() -> None:
    assert (await ask(USERS, scheme="http", insecure=True, login="ann:right"))[0] == 200
