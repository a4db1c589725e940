"""FastStream with RabbitMQ's broker: what a handler raised, by whatever acknowledgement policy, or why it rejected by hand."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable

from . import aio_pika
from .report import at_least, quietly, task_headers, wrap

OLDEST = (0, 6)


def install(module: ModuleType) -> None:
    """Of ``faststream.rabbit.broker.broker``."""
    at_least("faststream", OLDEST)
    wrap(module.RabbitBroker, "__init__", _starting)


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        with quietly():
            self.add_middleware(middleware())

    return init


def middleware() -> Any:
    """For ``RabbitBroker(middlewares=[…])`` by hand."""
    from faststream import BaseMiddleware
    from faststream.exceptions import AckMessage, HandlerException

    class Reporting(BaseMiddleware):  # type: ignore[misc]  # FastStream is not there where types are checked
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            try:
                return await call_next(msg)
            except AckMessage:
                raise
            except Exception as error:
                with quietly():
                    # What rejects by hand may say why: ``raise RejectMessage() from error``.
                    why = (error.__cause__ or error.__context__) if isinstance(error, HandlerException) else None
                    await _tell(msg.raw_message, _name_of(self.context.get("handler_")), why or error)
                raise

    return Reporting


def _name_of(subscriber: Any) -> str:
    """Of the function that handles; of several, as filters have them, the first."""
    called = next(iter(getattr(subscriber, "calls", ())), None)
    return str(getattr(getattr(getattr(called, "handler", None), "_original_call", None), "__name__", ""))


async def _tell(incoming: Any, handler: str, error: BaseException) -> None:
    if aio_pika.takes_reports(incoming):
        about = task_headers(incoming.delivery_tag, incoming.consumer_tag, handler, "", {})
        await aio_pika.tell(incoming, about, error)
