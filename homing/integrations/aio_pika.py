"""aio-pika, and what is built on it, by aiormq below it: what a callback raises, and what is in flight where a delivery is refused."""

from __future__ import annotations

import functools
import inspect
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

OLDEST = (6, 4)
#: What a frame takes beside its content.
_FRAME_BYTES = 8


async def report(message: Any, error: BaseException, **more: Any) -> None:
    """Tells why a message is about to be refused. ``more``: see report.of_error. Nothing is sent where the broker is not Homing."""
    if takes_reports(message):
        channel = _channel_of(message)
        await _send(channel, {"delivery_tag": message.delivery_tag, "quiet": True, **of_error(error, _frame_max(channel), **more)})


def takes_reports(message: Any) -> bool:
    channel = _channel_of(message)
    return not channel.is_closed and is_homing(channel.connection.server_properties)


async def tell(message: Any, about: dict[str, Any], error: BaseException) -> None:
    """Once, with ``about`` (report.of_message), and the message itself where it is not tried again. ``message``: aio-pika's or aiormq's."""
    channel = _channel_of(message)
    if not first_time(channel, message.delivery_tag):
        return
    properties = message.header.properties if hasattr(message, "header") else message.properties
    own, way = properties.headers or {}, (message.exchange, message.routing_key)
    headers, along = of_message(about, raised(error), *way, own, _frame_max(channel))
    await _send(channel, headers, message.body if along else b"", properties if along else None)


async def send(message: Any, headers: dict[str, Any]) -> None:
    """On the channel of the message, aio-pika's or aiormq's."""
    await _send(_channel_of(message), headers)


def _channel_of(message: Any) -> Any:
    """aiormq's, in aio-pika's or as it is."""
    return getattr(message.channel, "channel", message.channel)


def install(module: ModuleType) -> None:
    """Of ``aiormq.channel``."""
    at_least("aiormq", OLDEST)
    wrap(module.Channel, "basic_consume", _consuming)
    wrap(module.Channel, "basic_nack", _refusing)
    wrap(module.Channel, "basic_reject", _refusing)


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    async def refuse(self: Any, delivery_tag: int, *arguments: Any, **named: Any) -> Any:
        error = in_flight()
        if error is not None:
            await _tell(self, delivery_tag, error)
        return await original(self, delivery_tag, *arguments, **named)

    return refuse


def _consuming(original: Callable[..., Any]) -> Callable[..., Any]:
    async def basic_consume(self: Any, queue: str, consumer_callback: Any, *arguments: Any, **named: Any) -> Any:
        with quietly():
            if is_homing(self.connection.server_properties) and (said := introduction(self.connection)):
                await _send(self, said)
        return await original(self, queue, _watched(consumer_callback), *arguments, **named)

    return basic_consume


def _watched(callback: Any) -> Any:
    @functools.wraps(callback)
    async def on_message(message: Any) -> Any:
        try:
            answer = callback(message)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:
            with quietly():
                if message.delivery_tag and takes_reports(message):
                    await tell(message, of_delivery(message.delivery_tag, message.consumer_tag), error)
            raise

    return on_message


async def _tell(channel: Any, tag: int, error: BaseException) -> None:
    with quietly():
        properties = channel.connection.server_properties
        if tag and not channel.is_closed and is_homing(properties) and first_time(channel, tag):
            await _send(channel, {"delivery_tag": tag, "quiet": True, **of_error(error, _frame_max(channel))})


def _frame_max(channel: Any) -> int:
    return int(channel.connection.connection_tune.frame_max)


async def _send(channel: Any, headers: dict[str, Any], body: bytes = b"", like: Any = None) -> None:
    """Not by ``basic_publish``, which would wait for a confirm: it goes out before what is sent next, and is not confirmed. ``like``:
    properties of a message.
    """
    from aiormq.abc import ChannelFrame
    from pamqp import commands
    from pamqp.body import ContentBody
    from pamqp.header import ContentHeader

    named = {"message_type" if name == "type" else name for name in PROPERTIES}
    of_it = {name: getattr(like, name) for name in named if getattr(like, name, None) is not None}
    publish = commands.Basic.Publish(exchange=EXCHANGE, routing_key="")
    header = ContentHeader(properties=commands.Basic.Properties(headers=headers, **of_it), body_size=len(body))
    most = _frame_max(channel) - _FRAME_BYTES
    parts = [ContentBody(body[start : start + most]) for start in range(0, len(body), most)]
    await channel.write_queue.put(ChannelFrame.marshall(channel_number=channel.number, frames=[publish, header, *parts]))
