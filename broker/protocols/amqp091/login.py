"""What both sides say of themselves before a connection opens: our properties, and the credentials in PLAIN and AMQPLAIN."""

from __future__ import annotations

from typing import Any, Final

from .codec import AmqpError
from .codec_methods import NUMBER
from .codec_tables import TableError, read_table
from .options import AmqpOptions

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


def server_properties(options: AmqpOptions) -> dict[str, Any]:
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


def credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password of a start-ok. Raises AmqpError."""
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\x00")
            return user.decode(), password.decode()
        if mechanism == "AMQPLAIN":
            table, _ = read_table(len(response).to_bytes(4, "big") + response, 0, len(response) + 4)
            return str(table["LOGIN"]), str(table["PASSWORD"])
    except (ValueError, KeyError, TableError):
        raise AmqpError(501, f"FRAME_ERROR - the {mechanism} response cannot be read", NUMBER["connection.start-ok"]) from None
    raise AmqpError(
        504, f"CHANNEL_ERROR - unknown authentication mechanism '{mechanism[:32]}': use PLAIN or AMQPLAIN", NUMBER["connection.start-ok"]
    )
