"""Taskiq with taskiq-aio-pika: what a task raised, whether it is retried by another message or not. Middlewares see no delivery, so the
receiver's callback, which has it, is replaced, and a middleware tells it of errors.
"""

from __future__ import annotations

import contextvars
from types import ModuleType
from typing import Any, Callable

from . import aio_pika
from .report import at_least, quietly, task_headers, wrap

OLDEST = (0, 11)
_failed: contextvars.ContextVar[list[tuple[Any, Any, BaseException]] | None] = contextvars.ContextVar("failed", default=None)


def install(module: ModuleType) -> None:
    """Of ``taskiq.receiver.receiver``."""
    at_least("taskiq", OLDEST)
    wrap(module.Receiver, "__init__", _starting)
    wrap(module.Receiver, "callback", _receiving)


def _starting(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        with quietly():
            self.broker.add_middlewares(_middleware())

    return init


def _middleware() -> Any:
    from taskiq import TaskiqMiddleware

    class Noting(TaskiqMiddleware):  # type: ignore[misc]  # Taskiq is not there where types are checked
        def on_error(self, message: Any, result: Any, exception: BaseException) -> None:
            noted = _failed.get()
            if noted is not None:
                noted.append((message, result, exception))

    return Noting()


def _receiving(original: Callable[..., Any]) -> Callable[..., Any]:
    async def callback(self: Any, message: Any, *arguments: Any, **named: Any) -> Any:
        noted: list[tuple[Any, Any, BaseException]] = []
        token = _failed.set(noted)
        try:
            return await original(self, message, *arguments, **named)
        finally:
            _failed.reset(token)
            for task, result, error in noted[-1:]:
                # Behind the acknowledgement: by then it is known whether a retry was sent.
                with quietly():
                    await _tell(message, task, result, error)

    return callback


async def _tell(received: Any, task: Any, result: Any, error: BaseException) -> None:
    # Of aio-pika's message.
    incoming = getattr(getattr(received, "ack", None), "__self__", None)
    if incoming is None or not aio_pika.takes_reports(incoming):
        return
    again = type(result.error).__name__ == "NoResultError"
    ids = {"id": task.task_id, "try": int(task.labels.get("_retries", 0)) + 1}
    about = task_headers(incoming.delivery_tag, incoming.consumer_tag, task.task_name, task.task_id, ids)
    await aio_pika.tell(incoming, {**about, **({"again": True} if again else {})}, error)
