"""pika: what a callback raises, what is in flight where a delivery is refused, and what ends a program in a loop over ``consume()``.
It has no places for hooks, so methods are replaced.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Iterator
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

OLDEST = (1, 0)
#: By channel, the delivery that ``consume()`` gave last: method, properties and body.
_given: weakref.WeakKeyDictionary[Any, tuple[Any, Any, bytes]] = weakref.WeakKeyDictionary()
#: A program that ends waits so long for a socket that takes nothing.
_MOST_S = 1.0


def report(channel: Any, delivery_tag: int, error: BaseException, **more: Any) -> None:
    """Tells why a delivery is about to be refused. ``more``: see report.of_error. Nothing is sent where the broker is not Homing."""
    channel = getattr(channel, "_impl", channel)
    if is_homing(channel.connection.server_properties):
        headers = of_error(error, channel.connection.params.frame_max, **more)
        send(channel, {"delivery_tag": delivery_tag, "quiet": True, **headers})


def install(module: ModuleType) -> None:
    """Of ``pika.channel`` or ``pika.adapters.blocking_connection``."""
    at_least("pika", OLDEST)
    if hasattr(module, "BlockingChannel"):
        wrap(module.BlockingChannel, "basic_consume", _consuming)
        wrap(module.BlockingChannel, "consume", _iterating)
        sys.excepthook = _ending(sys.excepthook)
        return
    wrap(module.Channel, "basic_consume", _consuming)
    wrap(module.Channel, "basic_nack", _refusing)
    wrap(module.Channel, "basic_reject", _refusing)


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(self: Any, delivery_tag: int = 0, *arguments: Any, **named: Any) -> Any:
        error = in_flight()
        if error is not None:
            with quietly():
                _tell(self, delivery_tag, error)
        return original(self, delivery_tag, *arguments, **named)

    return refuse


def _consuming(original: Callable[..., Any]) -> Callable[..., Any]:
    def basic_consume(self: Any, queue: str, on_message_callback: Any, *arguments: Any, **named: Any) -> Any:
        channel = getattr(self, "_impl", self)
        with quietly():
            if is_homing(channel.connection.server_properties) and (said := introduction(channel.connection)):
                send(channel, said)
        # Its own channel hands a blocking one nothing but events.
        inner = getattr(on_message_callback, "__module__", "").startswith("pika.")
        return original(self, queue, on_message_callback if inner else _watched(channel, on_message_callback), *arguments, **named)

    return basic_consume


def _watched(channel: Any, callback: Any) -> Any:
    @functools.wraps(callback)
    def on_message(given: Any, method: Any, properties: Any, body: bytes) -> Any:
        try:
            return callback(given, method, properties, body)
        except Exception as error:
            with quietly():
                _tell_at_once(channel, method, properties, body, error)
            raise

    return on_message


def _iterating(original: Callable[..., Any]) -> Callable[..., Any]:
    def consume(self: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
        for given in original(self, *arguments, **named):
            # Nothing came in time, where it is none.
            if given[0] is not None:
                _given[self._impl] = given
            yield given

    return consume


def _ending(original: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(kind: type[BaseException], error: BaseException, place: Any) -> None:
        if isinstance(error, Exception):
            for channel, given in list(_given.items()):
                with quietly():
                    _tell_at_once(channel, *given, error)
        original(kind, error, place)

    return excepthook


def _tell_at_once(channel: Any, method: Any, properties: Any, body: bytes, error: BaseException) -> None:
    """With the message itself, as it may be acknowledged already. The program may end here, and what is not written goes with it."""
    if not _is_new(channel, method.delivery_tag):
        return
    about, own = of_delivery(method.delivery_tag, method.consumer_tag), properties.headers or {}
    way = method.exchange, method.routing_key
    headers, along = of_message(about, raised(error), *way, own, channel.connection.params.frame_max)
    send(channel, headers, body if along else b"", properties if along else None)
    transport, until_s = channel.connection._transport, time.monotonic() + _MOST_S
    transport._on_socket_writable()
    while transport.get_write_buffer_size() and time.monotonic() < until_s:
        time.sleep(0.01)
        transport._on_socket_writable()


def _tell(channel: Any, tag: int, error: BaseException) -> None:
    if _is_new(channel, tag):
        report(channel, tag, error)


def _is_new(channel: Any, tag: int) -> bool:
    return bool(tag) and channel.is_open and is_homing(channel.connection.server_properties) and first_time(channel, tag)


def send(channel: Any, headers: dict[str, Any], body: bytes = b"", like: Any = None) -> None:
    """``like``: properties of a message."""
    import pika

    of_it = {name: getattr(like, name) for name in PROPERTIES if getattr(like, name, None) is not None}
    channel.basic_publish(EXCHANGE, "", body, pika.BasicProperties(headers=headers, **of_it))
