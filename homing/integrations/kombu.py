"""kombu, by py-amqp below it: what a callback raises, and what is in flight where a message is rejected or requeued."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

from .report import (
    EXCHANGE,
    PROPERTIES,
    at_least,
    first_time,
    in_flight,
    introduction,
    is_homing,
    of_delivery,
    of_error,
    of_message,
    quietly,
    raised,
    wrap,
)

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
            with quietly():
                tag = message.delivery_info["delivery_tag"]
                if tag and channel.is_open and takes_reports(channel) and first_time(channel, tag):
                    tell(channel, message, of_delivery(tag, message.delivery_info.get("consumer_tag")), raised(error))
            raise

    return on_message


def _tell(channel: Any, tag: int, error: BaseException) -> None:
    with quietly():
        if tag and channel.is_open and takes_reports(channel) and first_time(channel, tag):
            send(channel, {"delivery_tag": tag, "quiet": True, **of_error(error, channel.connection.frame_max)})


def tell(channel: Any, message: Any, about: dict[str, Any], said: dict[str, Any]) -> None:
    """With ``about`` (report.of_message), and the message itself where it is not tried again. ``message``: kombu's, or py-amqp's."""
    properties, info = message.properties, message.delivery_info
    own, way = properties.get("application_headers") or {}, (info.get("exchange"), info.get("routing_key"))
    headers, along = of_message(about, said, *way, own, channel.connection.frame_max)
    if not along:
        send(channel, headers)
        return
    body = message.body
    of_it = {name: properties[name] for name in PROPERTIES if properties.get(name) is not None}
    send(channel, headers, body.encode(properties.get("content_encoding") or "utf-8") if isinstance(body, str) else bytes(body), **of_it)


def takes_reports(channel: Any) -> bool:
    """Other transports of kombu's have no such connection."""
    return is_homing(getattr(getattr(channel, "connection", None), "server_properties", None))


def send(channel: Any, headers: dict[str, Any], body: bytes = b"", **properties: Any) -> None:
    """Not by ``basic_publish``, which would wait for a confirm."""
    from amqp.basic_message import Message

    channel._basic_publish(Message(body, application_headers=headers, **properties), EXCHANGE, "")
