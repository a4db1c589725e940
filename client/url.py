"""Connection strings and destinations: ``homing://user:pw@host:port?prefetch=100``, ``homings://`` for TLS, and ``orders?prefetch=10``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from .errors import UsageError
from .options import CONNECTION, CONSUMER, PRODUCER, parse
from .validation import check_text

DEFAULT_PORT: Final = 7171
DEFAULT_TLS_PORT: Final = 7173
DEFAULT_URL: Final = f"homing://127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """Where the broker is and who asks. ``hosts``: (name, port), tried in turn. ``options`` is one layer for homing.client.options."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None
    password: str | None
    options: dict[str, Any]
    #: ``homings://``.
    tls: bool

    def __repr__(self) -> str:
        return f"homing{'s' if self.tls else ''}://{self.user + '@' if self.user else ''}{','.join(place(*each) for each in self.hosts)}"


def place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_url(url: str) -> BrokerUrl:
    """Raises UsageError ``invalid-url``, ``unknown-option`` or ``invalid-option``."""
    fix = "write homing://user:password@host:port?option=value, homings:// for TLS; several as host:port,host:port"
    if not isinstance(url, str):
        raise UsageError("invalid-url", f"the connection string is {url!r}", fix)
    try:
        scheme, _, rest = url.partition("://")
        authority = re.split("[/?#]", rest, maxsplit=1)[0]
        login, at, places = authority.rpartition("@")
        user, colon, password = login.partition(":")
        # Several hosts are not urlsplit's: brackets anywhere but at the beginning it refuses.
        parts = urlsplit(f"{scheme}://{rest.removeprefix(authority)}")
        port = DEFAULT_TLS_PORT if parts.scheme == "homings" else DEFAULT_PORT
        each = [urlsplit(f"//{text}") for text in places.split(",")]
        hosts = tuple((one.hostname or "", port if one.port is None else one.port) for one in each)
    except ValueError as error:
        raise UsageError("invalid-url", f"the connection string cannot be read ({error})", fix) from None
    if parts.scheme not in ("homing", "homings") or not all(host for host, _ in hosts) or parts.path not in ("", "/") or parts.fragment:
        raise UsageError("invalid-url", "the connection string is not of the form homing://host:port", fix)
    return BrokerUrl(
        hosts=hosts,
        user=unquote(user) if at else None,
        password=unquote(password) if colon else None,
        options=parse(parts.query, CONNECTION, CONSUMER, PRODUCER),
        tls=parts.scheme == "homings",
    )


def parse_destination(destination: str, place: str) -> tuple[str, dict[str, Any]]:
    """Name and option layer of ``orders?prefetch=10``; ``place`` says whose options are allowed (CONSUMER, PRODUCER)."""
    check_text("a destination", destination)
    name, _, query = destination.partition("?")
    return check_text("a destination's name", name), parse(query, place)
