"""dramatiq: what an actor raised, whether its message is retried by another one or is a dead letter. No middleware gets the channel, so the
consumer's methods that settle are replaced; a middleware notes which try it is, before the library counts on.
"""

from __future__ import annotations

import importlib
from functools import partial
from types import ModuleType
from typing import Any, Callable

from . import pika
from .report import at_least, is_homing, of_error, quietly, success, task_headers, wrap

OLDEST = (1, 14)
#: At a message: its actor, whether the broker retries what raises, and which try it is.
_NOTE = "_homing"


def install(given: ModuleType | None = None) -> None:
    """Of ``dramatiq.brokers.rabbitmq``, which is imported by hand where it is not given."""
    at_least("dramatiq", OLDEST)
    module: Any = given or importlib.import_module("dramatiq.brokers.rabbitmq")
    wrap(module.RabbitmqBroker, "__init__", _starting)
    wrap(module._RabbitmqConsumer, "ack", _settling)
    wrap(module._RabbitmqConsumer, "nack", _settling)


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        with quietly():
            self.add_middleware(_middleware())

    return init


def _middleware() -> Any:
    from dramatiq.middleware import Middleware, Retries

    class Noting(Middleware):  # type: ignore[misc]  # dramatiq is not there where types are checked
        def before_process_message(self, broker: Any, message: Any) -> None:
            with quietly():
                retries = any(isinstance(each, Retries) for each in broker.middleware)
                setattr(message, _NOTE, (broker.get_actor(message.actor_name), retries, message.options.get("retries", 0) + 1))

    return Noting()


def _settling(original: Callable[..., Any]) -> Callable[..., Any]:
    def settle(self: Any, message: Any) -> Any:
        error = getattr(message, "_exception", None)
        tried = getattr(message, _NOTE, (None, False, 0))[2]
        if (isinstance(error, Exception) or tried > 1) and message._tag in self.known_tags:
            with quietly():
                _tell(self, message, error)
        return original(self, message)

    return settle


def _tell(consumer: Any, message: Any, error: Any) -> None:
    channel = consumer.channel._impl
    if is_homing(channel.connection.server_properties):
        consumer_tag = channel.consumer_tags[0] if channel.consumer_tags else ""
        if isinstance(error, Exception):
            headers = _failure(message, error, consumer_tag, channel.connection.params.frame_max)
        else:
            headers = success(message._tag, consumer_tag, message.message_id)
        # Its connection lives in another thread, which settles behind this.
        consumer.connection.add_callback_threadsafe(partial(_send, channel, headers))


def _failure(message: Any, error: Exception, consumer_tag: str, frame_max: int) -> dict[str, Any]:
    actor, retries, number = getattr(message, _NOTE, (None, False, 0))
    # What is not dead was sent anew.
    again = retries and not message.failed
    ended_by = _ended_by(actor, message, error) if retries and message.failed else ""
    ids = {"id": message.message_id, "try": number}
    about = task_headers(message._tag, consumer_tag, message.actor_name, message.message_id, ids, again, ended_by)
    return {**about, **of_error(error, frame_max)}


def _ended_by(actor: Any, message: Any, error: Exception) -> str:
    throws = message.options.get("throws") or actor.options.get("throws")
    if throws and isinstance(error, throws):
        return "throws"
    return "max_retries" if actor.options.get("retry_when") is None else "retry_when"


def _send(channel: Any, headers: dict[str, Any]) -> None:
    with quietly():
        pika.send(channel, headers)
