"""Queues as AMQP 0-9-1 declares them: the ``x-`` arguments, read and checked, and what they come to in our own settings.

What only AMQP knows is kept in the queue's options (core/amqp/declared.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from homing.journal.declarations import AmqpDeclaration, QueueOptions, Table

from ...core.amqp.declared import AMQP, HEEDED, MOST_PRIORITY, ConsumerArguments, arguments_of, declared_arguments
from ...core.amqp.policy import DELAYED_RETRY_KEYS, RETRIES
from ...core.amqp.vhost import DEFAULT, local_name, virtual_host_of
from ...core.message import DEFAULT_PRIORITY
from ...core.pending import PRIORITIES
from ...core.queue import Queue
from ...core.settings.units import MAX_DURATION_MS
from ...errors import Refused

#: RabbitMQ's limit of quorum queues is 20 redeliveries; classic queues have none.
_QUORUM_ATTEMPTS: Final = 21
#: What the names begin with that the server gives.
GENERATED: Final = "amq.gen-"
_MOST: Final = (1 << 62) - 1
_INT32: Final = 1 << 31
_TYPES: Final[dict[type, str]] = {bool: "bool", str: "longstr", float: "double", bytes: "binary", list: "array", dict: "table"}
#: Texts of which RabbitMQ says in other words that they are none.
#: As any routing key it may be bytes that are not UTF-8.
_KEY: Final = "x-dead-letter-routing-key"
_NAMES: Final = ("x-dead-letter-exchange", _KEY)
_Number = Literal["message_ttl_ms", "expires_ms", "max_length", "max_length_bytes", "consumer_timeout_ms"]
#: argument -> the setting it becomes.
_NUMBERS: Final[Mapping[str, _Number]] = {
    "x-message-ttl": "message_ttl_ms",
    "x-expires": "expires_ms",
    "x-max-length": "max_length",
    "x-max-length-bytes": "max_length_bytes",
    "x-consumer-timeout": "consumer_timeout_ms",
}
#: Those of them that cannot be 0.
_AT_LEAST_1: Final = ("x-expires", "x-consumer-timeout")
_TIMES: Final = ("x-message-ttl", "x-expires", "x-consumer-timeout", "x-delayed-retry-min", "x-delayed-retry-max")
_OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
_TEXTS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-overflow", "x-queue-type", "x-queue-mode")
#: What programs would see the lack of: streams, and the plugin that takes out duplicates.
_REFUSED: Final = (
    "x-max-age",
    "x-stream-filter-size-bytes",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
    "x-deduplication-header",
)
#: The same of consumers: where in a stream, and what of it.
_REFUSED_OF_CONSUMERS: Final = ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered")
_PRIORITY, _TIMEOUT = "x-priority", "x-consumer-timeout"


def priorities(options: QueueOptions) -> tuple[int, int]:
    """The lowest and the highest priority that a queue with these options tells apart: an AMQP queue those up to its ``x-max-priority``,
    or none at all, every other 0 to 9.
    """
    if AMQP not in options:
        return 0, PRIORITIES - 1
    most = declared_arguments(options).get("x-max-priority")
    return (DEFAULT_PRIORITY, DEFAULT_PRIORITY) if most is None else (0, most)


def default_attempts(options: QueueOptions) -> int:
    """How many attempts a queue that AMQP declared gives a message where nobody says how many; -1: without end."""
    return _QUORUM_ATTEMPTS if keeps_all(options) else -1


def keeps_all(options: QueueOptions) -> bool:
    """Whether a durable queue with these options keeps every message, whatever its delivery mode, as RabbitMQ's quorum queues do."""
    return declared_arguments(options).get("x-queue-type") == "quorum"


def is_temporary(queue: Queue) -> bool:
    """Whether it comes and goes with those who use it: exclusive, auto-deleted or named by the server."""
    declared = queue.options.get(AMQP)
    if declared is None:
        return False
    return bool(declared.get("exclusive") or declared.get("auto_delete") or local_name(queue.name).startswith(GENERATED))


def options_for(
    name: str, arguments: Table, durable: bool, auto_delete: bool, exclusive: bool, virtual_host: str = DEFAULT
) -> QueueOptions:
    """The options of our own that an AMQP declaration comes to. Raises Refused with RabbitMQ's sentence."""
    name = f"queue '{name}' in vhost '{virtual_host}'"
    options = QueueOptions()
    for argument, value in arguments.items():
        if argument in _NUMBERS:
            options[_NUMBERS[argument]] = _number(name, argument, value, 1 if argument in _AT_LEAST_1 else 0)
        elif argument in _REFUSED:
            raise _invalid(name, argument, "unsupported", "declare the queue without it")
        elif argument in _TEXTS and not isinstance(value, str | bytes if argument == _KEY else str):
            raise _wrong_type(name, argument, value)
    if arguments.get("x-dead-letter-routing-key") is not None and "x-dead-letter-exchange" not in arguments:
        raise _invalid(name, "x-dead-letter-routing-key", "routing_key_but_no_dlx_defined", "name an x-dead-letter-exchange too")
    overflow = arguments.get("x-overflow", "drop-head")
    if overflow not in _OVERFLOWS:
        raise _invalid(name, "x-overflow", "invalid_overflow", f"use {', '.join(_OVERFLOWS)}")
    if "max_length" in options or "max_length_bytes" in options or "x-overflow" in arguments:
        options["overflow"] = overflow
    if "x-delivery-limit" in arguments:
        limit = _number(name, "x-delivery-limit", arguments["x-delivery-limit"], -1)
        options["max_delivery_attempts"] = limit + 1 if limit >= 0 else -1
    _check_delayed_retries(name, arguments)
    if "x-max-priority" in arguments and (most := _number(name, "x-max-priority", arguments["x-max-priority"], 0)) > MOST_PRIORITY:
        raise _invalid(name, "x-max-priority", f"{{max_value_exceeded,{most}}}", f"use 0 to {MOST_PRIORITY}")
    if not isinstance(single := arguments.get("x-single-active-consumer", False), bool):
        raise _invalid(name, "x-single-active-consumer", f"{{unacceptable_type,{_type_of(single)}}}", "use true or false")
    if (mode := arguments.get("x-queue-mode", "default")) not in ("default", "lazy"):
        raise _invalid(name, "x-queue-mode", f"\"unsupported queue mode '{mode}'\"", "use default or lazy")
    kind = arguments.get("x-queue-type", "classic")
    if kind == "stream":
        raise Refused("not-implemented", f"queue type {kind!r}", "use classic or quorum; both are the same here")
    if kind not in ("classic", "quorum"):
        raise _invalid(name, "x-queue-type", f"\"unsupported queue type '{kind}'\"", "use classic or quorum")
    if exclusive:
        options["exclusive"] = True
    options["amqp"] = AmqpDeclaration(arguments=arguments, durable=durable and not exclusive, auto_delete=auto_delete, exclusive=exclusive)
    return options


def consumer_arguments(queue: str, arguments: Mapping[str, object], virtual_host: str) -> ConsumerArguments:
    """Those of ``basic.consume``. Raises Refused with RabbitMQ's sentence."""
    name = f"queue '{queue}' in vhost '{virtual_host}'"
    for argument in _REFUSED_OF_CONSUMERS:
        if argument in arguments:
            raise _invalid(name, argument, "unsupported", "consume the queue without it")
    priority = _number(name, _PRIORITY, arguments[_PRIORITY], -_MOST) if _PRIORITY in arguments else 0
    timeout_ms = _number(name, _TIMEOUT, arguments[_TIMEOUT], 1) if _TIMEOUT in arguments else None
    return ConsumerArguments(priority, timeout_ms, tuple(each for each in arguments if each not in (_PRIORITY, _TIMEOUT)))


def _check_delayed_retries(name: str, arguments: Table) -> None:
    for argument in ("x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-multiplier"):
        if argument in arguments:
            _number(name, argument, arguments[argument], 1)
    kind = arguments.get("x-delayed-retry-type", RETRIES[0])
    if kind not in RETRIES:
        raise _invalid(name, "x-delayed-retry-type", f"{{unacceptable_type,{kind!r:.40}}}", f"use {', '.join(RETRIES)}")
    if (kind != RETRIES[0] or "x-delayed-retry-multiplier" in arguments) and "x-delayed-retry-min" not in arguments:
        raise _invalid(name, "x-delayed-retry-type", "no_delayed_retry_min_defined", "name an x-delayed-retry-min too")


def delayed_retries(arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> Table:
    """The settings (field name -> value) that delayed retries come to, as arguments of a queue or keys of its policy; empty for none.

    RabbitMQ's need a type, and wait the least time × failures, at most the most (unless given, the least). LavinMQ's multiplier stands for
    a type, and for its power instead of the product.
    """
    declared = {key: arguments.get(f"x-{key}", definition.get(key)) for key in DELAYED_RETRY_KEYS}
    kind, least_ms, most_ms, multiplier = declared.values()
    kind = kind or (RETRIES[0] if multiplier is None else "all")
    # Earlier versions kept whatever was declared.
    if kind not in RETRIES[1:] or type(least_ms) is not int or not {type(most_ms), type(multiplier)} <= {int, type(None)}:
        return {}
    if most_ms is None:
        most_ms = least_ms if multiplier is None else MAX_DURATION_MS
    return {
        "redelivery_delay_ms": least_ms,
        "redelivery_delay_multiplier": float(multiplier or 1),
        "redelivery_collision_avoidance_factor": 0.0,
        "max_redelivery_delay_ms": most_ms,
        "redelivery_back_off": "linear" if multiplier is None else "exponential",
        "redelivery_delays_ms": (),
        "delayed_retry_type": kind,
    }


def _number(name: str, argument: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(name, argument, f'"expected integer, got {_type_of(value)}"', "give a whole number")
    if value < least:
        why = f"{{value_zero,{value}}}" if value == 0 else f"{{value_negative,{value}}}"
        raise _invalid(name, argument, why, f"give {least} or more")
    if value > (most := MAX_DURATION_MS if argument in _TIMES else _MOST):
        raise _invalid(name, argument, f"{{value_too_big,{value}}}", f"give {most} or less")
    return int(value)


def _invalid(name: str, argument: str, why: str, fix: str) -> Refused:
    return Refused("precondition-failed", f"invalid arg '{argument}' for {name}: {why}", fix)


def _wrong_type(name: str, argument: str, value: object) -> Refused:
    kind = _type_of(value)
    if argument in _NAMES:
        return Refused("precondition-failed", f"invalid type '{kind}' for arg '{argument}' in {name}", "give a text")
    return _invalid(name, argument, f"{{unacceptable_type,{kind}}}", "give a text")


def check_same(queue: Queue, durable: bool, auto_delete: bool, arguments: Table) -> None:
    """Refused, with RabbitMQ's sentence, unless the queue was declared so."""
    declared = queue.options.get(AMQP, {})
    what = f"queue '{local_name(queue.name)}' in vhost '{virtual_host_of(queue.name)}'"
    # A queue made without AMQP has neither; whoever asks for none of AMQP's own may use it.
    check_equal(what, "durable", durable, declared.get("durable", queue.durable))
    check_equal(what, "auto_delete", auto_delete, declared.get("auto_delete", False))
    current = arguments_of(queue)
    for name in HEEDED:
        wanted, has = arguments.get(name), current.get(name)
        if name != "x-queue-type" or not {wanted, has} <= {None, "classic"}:
            check_equal(what, name, wanted, has)


def check_equal(what: str, name: str, wanted: object, has: object) -> None:
    """Refused, with RabbitMQ's sentence, unless what is declared again is what it is; 10 and 10.0 are not the same, nor are 1 and true."""
    if type(wanted) is type(has) and wanted == has:
        return
    with_type = wanted is None or has is None
    raise Refused(
        "precondition-failed",
        f"inequivalent arg '{name}' for {what}: received {_shown(wanted, with_type)} but current is {_shown(has, with_type)}",
        "declare it as it is, or delete it first",
    )


def _shown(value: object, with_type: bool) -> str:
    if value is None:
        return "none"
    shown = f"'{str(value).lower() if isinstance(value, bool) else value}'"
    return f"the value {shown} of type '{_type_of(value)}'" if with_type else shown


def _type_of(value: object) -> str:
    """RabbitMQ's name of the type that a client gave an argument, or would have: the width of a number is not kept."""
    if type(value) is int:
        return "signedint" if -_INT32 <= value < _INT32 else "long"
    return _TYPES.get(type(value), "void")
