"""kombu, by py-amqp below it: what a callback raises, and what is in flight where a message is rejected or requeued."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from .report import EXCHANGE, at_least, first_time, in_flight, introduction, is_homing, of_error, quietly, wrap

OLDEST = (5, 0)


def report(message: Any, error: BaseException, **more: Any) -> None:
    """Tells why a message is about to be refused. ``more``: see report.of_error. Nothing is sent where the broker is not Homing."""
    channel = message.channel
    if takes_reports(channel):
        tag = message.delivery_info["delivery_tag"]
        send(channel, {"delivery_tag": tag, "quiet": True, **of_error(error, channel.connection.frame_max, **more)})


def install(module: ModuleType) -> None:
    """Of ``amqp.channel``."""
    at_least("amqp", OLDEST)
    wrap(module.Channel, "basic_consume", _consuming)
    wrap(module.Channel, "basic_reject", _rejecting)


def _rejecting(original: Callable[..., Any]) -> Callable[..., Any]:
    def basic_reject(self: Any, delivery_tag: int, *arguments: Any, **named: Any) -> Any:
        error = in_flight()
        if error is not None:
            _tell(self, delivery_tag, error)
        return original(self, delivery_tag, *arguments, **named)

    return basic_reject


def _consuming(original: Callable[..., Any]) -> Callable[..., Any]:
    def basic_consume(self: Any, *arguments: Any, **named: Any) -> Any:
        with quietly():
            if takes_reports(self) and (said := introduction(self.connection)):
                send(self, said)
        if named.get("callback") is not None:
            named["callback"] = _watched(self, named["callback"])
        return original(self, *arguments, **named)

    return basic_consume


def _watched(channel: Any, callback: Any) -> Any:
    @functools.wraps(callback)
    def on_message(message: Any) -> Any:
        try:
            return callback(message)
        except Exception as error:
            _tell(channel, message.delivery_info["delivery_tag"], error)
            raise

    return on_message


def _tell(channel: Any, tag: int, error: BaseException) -> None:
    with quietly():
        if tag and channel.is_open and takes_reports(channel) and first_time(channel, tag):
            send(channel, {"delivery_tag": tag, "quiet": True, **of_error(error, channel.connection.frame_max)})


def takes_reports(channel: Any) -> bool:
    """Other transports of kombu's have no such connection."""
    return is_homing(getattr(getattr(channel, "connection", None), "server_properties", None))


def send(channel: Any, headers: dict[str, Any], body: bytes = b"", **properties: Any) -> None:
    """Not by ``basic_publish``, which would wait for a confirm."""
    from amqp.basic_message import Message

    channel._basic_publish(Message(body, application_headers=headers, **properties), EXCHANGE, "")
