"""dramatiq: what an actor raised, whether its message is retried by another one or is a dead letter. No middleware gets the channel, so the
consumer's methods that settle are replaced.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, Callable

from . import pika
from .report import at_least, is_homing, of_error, quietly, task_headers, wrap

OLDEST = (1, 14)


def install(module: ModuleType) -> None:
    """Of ``dramatiq.brokers.rabbitmq``."""
    at_least("dramatiq", OLDEST)
    wrap(module._RabbitmqConsumer, "ack", partial(_settling, again=True))
    wrap(module._RabbitmqConsumer, "nack", partial(_settling, again=False))


def _settling(original: Callable[..., Any], again: bool) -> Callable[..., Any]:
    """``again``: what raised and is acknowledged has been sent anew."""

    def settle(self: Any, message: Any) -> Any:
        error = getattr(message, "_exception", None)
        if isinstance(error, Exception) and message._tag in self.known_tags:
            with quietly():
                _tell(self, message, error, again)
        return original(self, message)

    return settle


def _tell(consumer: Any, message: Any, error: Exception, again: bool) -> None:
    channel = consumer.channel._impl
    if not is_homing(channel.connection.server_properties):
        return
    ids = {"id": message.message_id, "try": message.options.get("retries", 0) + (0 if again else 1)}
    about = task_headers(
        message._tag, channel.consumer_tags[0] if channel.consumer_tags else "", message.actor_name, message.message_id, ids
    )
    headers = {**about, **of_error(error, channel.connection.params.frame_max), **({"again": True} if again else {})}
    # Its connection lives in another thread, which settles behind this.
    consumer.connection.add_callback_threadsafe(partial(_send, channel, headers))


def _send(channel: Any, headers: dict[str, Any]) -> None:
    with quietly():
        pika.send(channel, headers)
