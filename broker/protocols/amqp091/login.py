"""What both sides say of themselves before a connection opens: our properties, and the credentials in PLAIN, AMQPLAIN and EXTERNAL."""

from __future__ import annotations

from typing import Final

from ...core.consumer import Client, Library
from .codec import AmqpError
from .codec_methods import NUMBER
from .codec_tables import Fields, TableError, read_table
from .options import AmqpOptions

#: Of what a client says of itself so much is kept.
_MAX_CHARS: Final = 256
_CAPABILITIES: Final = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "consumer_priorities": True,
    "direct_reply_to": True,
    "exchange_exchange_bindings": True,
    "per_consumer_qos": True,
    "publisher_confirms": True,
}


def server_properties(options: AmqpOptions) -> Fields:
    """``product`` and ``version`` are those of RabbitMQ unless configured otherwise: clients choose by them what they mean by a method
    (kombu the ``global`` bit of basic.qos). What the broker really is stands beside them.
    """
    return {
        "product": options.product,
        "version": options.version,
        "broker": options.broker_name,
        "broker_version": options.broker_version,
        "platform": "Python",
        "cluster_name": options.cluster_name,
        "capabilities": _CAPABILITIES,
    }


def client(properties: Fields) -> Client:
    """What client properties tell of the program: ``connection_name``, as RabbitMQ knows it, ``host`` and ``program_version``.

    Without a name its library stands for it.
    """
    name = properties.get("connection_name") or properties.get("product")
    said = (name, properties.get("host"), properties.get("program_version"))
    return Client(*(value[:_MAX_CHARS] if isinstance(value, str) else "" for value in said))


def library(properties: Fields) -> Library:
    said = (properties.get(name) for name in ("product", "version"))
    return Library(*(value[:_MAX_CHARS] if isinstance(value, str) else "" for value in said))


def introduced(known: Client, library: Library, said: dict[str, str]) -> tuple[Client, Library]:
    """With what an instrumented program says of itself (``homing.integrations``), where its connection said nothing."""
    short = {name: value[:_MAX_CHARS] for name, value in said.items()}
    named = known.client_id if known.client_id != library.product else short.get("program", known.client_id)
    client = Client(named, known.host or short.get("host", ""), known.version or short.get("program_version", ""))
    return client, library._replace(instrumented=short.get("instrumented", ""))


def credentials(mechanism: str, response: bytes, has_certificate: bool) -> tuple[str, str]:
    """User and password of a start-ok; both empty: the certificate says who it is. Raises AmqpError."""
    if mechanism == "EXTERNAL" and has_certificate:
        return "", ""
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\x00")
            return user.decode(), password.decode()
        if mechanism == "AMQPLAIN":
            table, _ = read_table(len(response).to_bytes(4, "big") + response, 0, len(response) + 4)
            return str(table["LOGIN"]), str(table["PASSWORD"])
    except (ValueError, KeyError, TableError):
        raise AmqpError(501, f"FRAME_ERROR - the {mechanism} response cannot be read", NUMBER["connection.start-ok"]) from None
    said = f"CHANNEL_ERROR - unknown authentication mechanism '{mechanism[:32]}': use PLAIN, AMQPLAIN or, with a certificate, EXTERNAL"
    raise AmqpError(504, said, NUMBER["connection.start-ok"])
