"""Connectors and acceptors. STOMP is spoken here, on one port, and on one with TLS."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from .translation import Translation, size_of, size_text

_NOT_SPOKEN: Final = (
    "it is not spoken here: programs change to STOMP (stomp: {}), AMQP 0-9-1 (amqp: {}) or Homing's client (docs/from-activemq.md)"
)
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
#: What one message may have at least and at most, in bytes.
_LEAST_MESSAGE, _MOST_MESSAGE = 1024, 128 << 20
#: Of sockets, threads and other protocols.
_TUNING: Final = re.compile(
    r"(tcp|amqp|mqtt|socket|use(Epoll|KQueue|Nio)|batch|netty|nio|direct|transport\.|wireFormat\.|jms\.|soTimeout|trace|heartBeat|connectionTtl|"
    r"minLargeMessageSize|largeMessage|supportAdvisory|suppressInternal|virtualTopic|write|backlog|remotingThreads|daemon)\w*"
)
_TLS: Final = re.compile(r"(keyStore|trustStore|enabled|wantClientAuth|verifyHost|sslProvider|sslContext)\w*")


class Connector(NamedTuple):
    """``kind``: the element; ``spoken``: the protocols, in capitals; ``options``: those of its URI."""

    origin: str
    kind: str
    name: str
    spoken: list[str]
    tls: bool
    uri: str
    options: dict[str, str]

    @property
    def what(self) -> str:
        return f"<{self.kind}> {self.name}"


def options_of(uri: str) -> dict[str, str]:
    """Name -> value, after the ``?``, separated by ``&``, or by ``;`` as Artemis does."""
    pairs = (each.strip().partition("=") for each in re.split("[&;]", uri.partition("?")[2]) if each)
    return {name: unquote(value) for name, _, value in pairs}


def listen(connectors: list[Connector], found: Translation) -> None:
    # Where one is for STOMP alone, that is where its clients are.
    for each in sorted(connectors, key=lambda connector: len(connector.spoken)):
        if "STOMP" not in each.spoken:
            found.miss(each.origin, each.what, _NOT_SPOKEN)
            continue
        _listen(each, found)
    stomp = found.sections.get("stomp", {})
    if "tls-port" in stomp and "port" not in stomp:
        found.set("stomp", "port", None, stomp["tls-port"].origin)


def _listen(connector: Connector, found: Translation) -> None:
    origin, what = connector.origin, connector.what
    key = "tls-port" if connector.tls else "port"
    if key in found.sections.get("stomp", {}):
        found.miss(origin, what, f"STOMP has one port here ({key}); clients of this one use that")
        return
    uri = urlsplit(connector.uri)
    try:
        port = uri.port
    except ValueError:
        found.miss(origin, what, f"its port is no number ({uri.netloc}): give stomp.{key} one")
        return
    found.set("stomp", key, port, origin)
    if len(connector.spoken) > 1:
        found.miss(origin, f"protocols of {what}", "STOMP alone of them is spoken here")
    if connector.tls:
        said = "tls.certificate and tls.key are PEM files here, without which nobody listens there; a key store is to be exported"
        found.miss(origin, f"TLS of {what}", said)
    elif (uri.hostname or "") not in _LOOPBACK:
        said = "it listens on 127.0.0.1 only: beyond there have to be users, and TLS or insecure: true; then set stomp.host"
        found.miss(origin, f"host {uri.hostname or ''} of {what}", said)
    _options(connector, found)


def _options(connector: Connector, found: Translation) -> None:
    needless = ["name"]
    for name, value in connector.options.items():
        if name in ("protocols", "sslEnabled"):
            continue
        what = f"{name}={value} of {connector.what}"
        if name in ("maximumConnections", "connectionsAllowed"):
            if value.isdigit() and int(value) > 0:
                found.set("limits", "max-connections", int(value), connector.origin)
            elif value not in ("0", "-1"):
                found.miss(connector.origin, what, "give limits.max-connections a number")
        elif name in ("wireFormat.maxFrameSize", "wireFormat.maxDataLength"):
            _longest_message(value, what, connector.origin, found)
        elif name in ("anycastPrefix", "multicastPrefix"):
            said = f"a destination that begins with {value} is an address of that whole name here: programs leave the prefix away"
            found.miss(connector.origin, what, said)
        elif name == "needClientAuth" and value == "true":
            found.miss(connector.origin, what, "set tls.client-ca, and tls.require-client-certificate: true")
        elif _TUNING.fullmatch(name) or (connector.tls and _TLS.fullmatch(name)):
            needless.append(name)
        elif value != "false":
            found.miss(connector.origin, what, "it is not known here, or has no counterpart")
    found.differ(connector.origin, f"{', '.join(needless)} of {connector.what}", "nothing of it is to be set here")


def _longest_message(value: str, what: str, origin: str, found: Translation) -> None:
    size = size_of(value)
    if size is None:
        found.miss(origin, what, "give limits.max-message-bytes a size")
        return
    found.set("limits", "max-message-bytes", size_text(min(max(size, _LEAST_MESSAGE), _MOST_MESSAGE)), origin)
    if size > _MOST_MESSAGE:
        found.differ(origin, what, "128 MiB is the most that a message may have here")
