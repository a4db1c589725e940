"""Queues as AMQP 0-9-1 declares them: the ``x-`` arguments, read and checked, and what they come to in our own settings.

What only AMQP knows is kept in the queue's options under ``amqp``: {arguments, durable, auto_delete, exclusive}.
"""

from __future__ import annotations

from typing import Any, Final

from broker.core.queue import Queue
from broker.core.units import MAX_DURATION_MS
from broker.core.virtual_host import DEFAULT, local_name, virtual_host_of
from broker.errors import Refused

#: The key in a queue's options.
AMQP: Final = "amqp"
_MOST: Final = (1 << 62) - 1
#: argument -> the setting it becomes.
_NUMBERS: Final = {
    "x-message-ttl": "message_ttl_ms",
    "x-expires": "expires_ms",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
}
_TIMES: Final = ("x-message-ttl", "x-expires")
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_TEXTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type", "x-queue-mode")
#: What RabbitMQ compares when a queue is declared again.
COMPARED: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-delivery-limit",
    "x-single-active-consumer",
    "x-queue-type",
)


def arguments_of(queue: Queue) -> dict[str, Any]:
    """What the queue was declared with over AMQP; empty for every other queue."""
    declared: dict[str, Any] = queue.options.get(AMQP, {}).get("arguments", {})
    return declared


def max_priority(queue: Queue) -> int | None:
    """How many priorities the queue tells apart: an AMQP queue those of ``x-max-priority``, every other nine."""
    if AMQP not in queue.options:
        return 9
    most = arguments_of(queue).get("x-max-priority")
    return None if most is None else min(most, 9)


def options_for(
    name: str, arguments: dict[str, Any], durable: bool, auto_delete: bool, exclusive: bool, virtual_host: str = DEFAULT
) -> dict[str, Any]:
    """The options of our own that an AMQP declaration comes to. Raises Refused with RabbitMQ's sentence."""
    name = f"queue '{name}' in vhost '{virtual_host}'"
    options: dict[str, Any] = {}
    for argument, value in arguments.items():
        if argument in _NUMBERS:
            options[_NUMBERS[argument]] = _number(name, argument, value, 1 if argument == "x-expires" else 0)
        elif argument in _TEXTS and not isinstance(value, str):
            raise _invalid(name, argument, f"{value!r} is not a string")
    if arguments.get("x-dead-letter-routing-key") is not None and "x-dead-letter-exchange" not in arguments:
        raise _invalid(name, "x-dead-letter-routing-key", "routing_key_but_no_dlx_defined")
    overflow = arguments.get("x-overflow", "drop-head")
    if overflow not in _OVERFLOWS:
        raise _invalid(name, "x-overflow", f"{overflow!r} is none of {', '.join(_OVERFLOWS)}")
    if "max_length" in options or "max_length_bytes" in options or "x-overflow" in arguments:
        options["overflow"] = overflow
    if "x-delivery-limit" in arguments:
        limit = _number(name, "x-delivery-limit", arguments["x-delivery-limit"], -1)
        options["max_delivery_attempts"] = limit + 1 if limit >= 0 else -1
    if "x-max-priority" in arguments and not 0 <= _number(name, "x-max-priority", arguments["x-max-priority"], 0) <= 255:
        raise _invalid(name, "x-max-priority", "it must be 0 to 255")
    if not isinstance(arguments.get("x-single-active-consumer", False), bool):
        raise _invalid(name, "x-single-active-consumer", "it must be a boolean")
    if arguments.get("x-queue-mode", "default") not in ("default", "lazy"):
        raise _invalid(name, "x-queue-mode", "it must be default or lazy")
    kind = arguments.get("x-queue-type", "classic")
    if kind == "stream":
        raise Refused("not-implemented", f"queue type {kind!r}", "use classic or quorum; both are the same here")
    if kind not in ("classic", "quorum"):
        raise _invalid(name, "x-queue-type", f"there is no queue type {kind!r}")
    if exclusive:
        options["exclusive"] = True
    return {**options, AMQP: {"arguments": arguments, "durable": durable, "auto_delete": auto_delete, "exclusive": exclusive}}


def _number(name: str, argument: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(name, argument, f"{value!r} is not a number")
    if not least <= value <= (MAX_DURATION_MS if argument in _TIMES else _MOST):
        raise _invalid(name, argument, f"{value} is out of range")
    return int(value)


def _invalid(name: str, argument: str, why: str) -> Refused:
    return Refused("precondition-failed", f"invalid arg '{argument}' for {name}: {why}", "mend the argument")


def check_same(queue: Queue, durable: bool, auto_delete: bool, exclusive: bool, arguments: dict[str, Any]) -> None:
    """Refused, with RabbitMQ's sentence, unless the queue was declared so."""
    declared = queue.options.get(AMQP, {})
    # A queue made without AMQP has neither; whoever asks for none of AMQP's own may use it.
    pairs: list[tuple[str, Any, Any]] = [
        ("durable", durable, declared.get("durable", queue.durable)),
        ("auto_delete", auto_delete, declared.get("auto_delete", False)),
        ("exclusive", exclusive, declared.get("exclusive", False)),
    ]
    current = arguments_of(queue)
    pairs += [(name, arguments.get(name), current.get(name)) for name in COMPARED]
    for name, wanted, has in pairs:
        if name == "x-queue-type" and {wanted, has} <= {None, "classic"}:
            continue
        if wanted != has:
            raise Refused(
                "resource-locked" if name == "exclusive" else "precondition-failed",
                f"inequivalent arg '{name}' for queue '{local_name(queue.name)}' in vhost '{virtual_host_of(queue.name)}': "
                f"received {_shown(wanted)} but current is {_shown(has)}",
                "declare it as it is, or delete it first",
            )


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"
