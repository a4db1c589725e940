"""What a queue was declared with over AMQP 0-9-1, as its options keep it: {arguments, durable, auto_delete, exclusive} under ``amqp``."""

from __future__ import annotations

from typing import Final, NamedTuple

from homing.journal.declarations import QueueOptions, Table

from ..queue import Queue

#: The key in a queue's options.
AMQP: Final = "amqp"
#: The highest priority that a queue may tell apart from those below it.
MOST_PRIORITY: Final = 255
#: What has an effect, and what RabbitMQ compares when a queue is declared again.
HEEDED: Final = (
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-delivery-limit",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    "x-delayed-retry-multiplier",
    "x-consumer-timeout",
    "x-single-active-consumer",
    "x-queue-type",
)


class ConsumerArguments(NamedTuple):
    """What a consumer was asked for with. ``timeout_ms`` None: the queue's holds. ``ignored``: names of those that have no effect."""

    priority: int = 0
    timeout_ms: int | None = None
    ignored: tuple[str, ...] = ()


NO_ARGUMENTS: Final = ConsumerArguments()


def arguments_of(queue: Queue) -> Table:
    """Its ``x-`` arguments; empty for every queue that AMQP did not declare."""
    return declared_arguments(queue.options)


def declared_arguments(options: QueueOptions) -> Table:
    """As ``arguments_of``, of its options."""
    declared = options.get(AMQP)
    return {} if declared is None else declared.get("arguments", {})


def ignored(queue: Queue) -> list[str]:
    """The arguments it was declared with that have no effect: hints where and how to store it, and what nobody knows."""
    return [argument for argument in arguments_of(queue) if argument not in HEEDED]


def counts_deliveries(queue: Queue) -> bool:
    """Whether AMQP clients are shown how often a message failed: by quorum queues and where AMQP set a limit, as with RabbitMQ."""
    arguments = arguments_of(queue)
    if arguments.get("x-queue-type") == "quorum" or "x-delivery-limit" in arguments:
        return True
    return queue.policy is not None and "delivery-limit" in queue.policy.definition
