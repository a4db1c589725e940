"""From the broker's refusals to the codes and sentences that AMQP 0-9-1 clients know from RabbitMQ."""

from __future__ import annotations

from typing import Final

from ...errors import Refused
from .codec import AmqpError

ACCESS_REFUSED: Final = 403
#: code of ours -> (reply code, its name)
_REPLIES: Final = {
    "access-refused": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    "not-found": (404, "NOT_FOUND"),
    "resource-locked": (405, "RESOURCE_LOCKED"),
    "precondition-failed": (406, "PRECONDITION_FAILED"),
    "in-use": (406, "PRECONDITION_FAILED"),
    "invalid-argument": (406, "PRECONDITION_FAILED"),
    "invalid-name": (406, "PRECONDITION_FAILED"),
    "invalid-property": (406, "PRECONDITION_FAILED"),
    "properties-too-large": (406, "PRECONDITION_FAILED"),
    "queue-exclusive": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    "too-many-consumers": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    # Clients are to come again.
    "no-leader": (320, "CONNECTION_FORCED"),
    "command-invalid": (503, "COMMAND_INVALID"),
    "not-implemented": (540, "NOT_IMPLEMENTED"),
    "login-refused": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    "login-required": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    "login-held-back": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    "login-failed": (ACCESS_REFUSED, "ACCESS_REFUSED"),
    "too-many-connections": (530, "NOT_ALLOWED"),
    "too-many-channels": (530, "NOT_ALLOWED"),
    "client-id-in-use": (530, "NOT_ALLOWED"),
    "no-such-virtual-host": (530, "NOT_ALLOWED"),
    "virtual-host-refused": (530, "NOT_ALLOWED"),
}


def error_of(refusal: Refused, method: int = 0) -> AmqpError:
    """A refusal as the exception a client is shown; what has no word of its own is a failed precondition."""
    code, name = _REPLIES.get(refusal.code, (406, "PRECONDITION_FAILED"))
    return AmqpError(code, f"{name} - {refusal.message}", method)


def not_implemented(what: str, method: int = 0) -> AmqpError:
    return AmqpError(540, f"NOT_IMPLEMENTED - {what}", method)


def precondition_failed(what: str, method: int = 0) -> AmqpError:
    return AmqpError(406, f"PRECONDITION_FAILED - {what}", method)


def unknown_tag(tag: int, method: int = 0) -> AmqpError:
    return precondition_failed(f"unknown delivery tag {tag}", method)
