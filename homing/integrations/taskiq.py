"""Taskiq with taskiq-aio-pika: what a task raised, whether it is retried by another message or not. Middlewares see no delivery, so the
receiver's callback, which has it, is replaced, and a middleware tells it of errors.
"""

from __future__ import annotations

import contextvars
import importlib
from types import ModuleType
from typing import Any, Callable

from . import aio_pika
from .report import at_least, quietly, success, task_headers, wrap

OLDEST = (0, 11)


class _Run:
    """Of one task: which try it is, its id, and, where it raised, its message, its result and what it raised."""

    number = 1
    task_id = ""
    failed: tuple[Any, Any, BaseException] | None = None


_run: contextvars.ContextVar[_Run] = contextvars.ContextVar("run")


def install(given: ModuleType | None = None) -> None:
    """Of ``taskiq.receiver.receiver``, which is imported by hand where it is not given."""
    at_least("taskiq", OLDEST)
    module: Any = given or importlib.import_module("taskiq.receiver.receiver")
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
        def pre_execute(self, message: Any) -> Any:
            # The library counts on where it retries.
            with quietly():
                run = _run.get()
                run.number, run.task_id = int(message.labels.get("_retries", 0)) + 1, message.task_id
            return message

        def on_error(self, message: Any, result: Any, exception: BaseException) -> None:
            with quietly():
                _run.get().failed = message, result, exception

    return Noting()


def _receiving(original: Callable[..., Any]) -> Callable[..., Any]:
    async def callback(self: Any, message: Any, *arguments: Any, **named: Any) -> Any:
        run = _Run()
        token = _run.set(run)
        try:
            return await original(self, message, *arguments, **named)
        finally:
            _run.reset(token)
            # Behind the acknowledgement: by then it is known whether a retry was sent.
            with quietly():
                if run.failed is not None:
                    await _tell(message, *run.failed, run.number)
                elif run.number > 1:
                    await _tell_success(message, run.task_id)

    return callback


def _incoming(received: Any) -> Any:
    """aio-pika's message, where its server takes reports."""
    incoming = getattr(getattr(received, "ack", None), "__self__", None)
    return incoming if incoming is not None and aio_pika.takes_reports(incoming) else None


async def _tell_success(received: Any, task_id: str) -> None:
    if incoming := _incoming(received):
        await aio_pika.send(incoming, success(incoming.delivery_tag, incoming.consumer_tag, task_id))


async def _tell(received: Any, task: Any, result: Any, error: BaseException, number: int) -> None:
    if not (incoming := _incoming(received)):
        return
    again = type(result.error).__name__ == "NoResultError"
    ids = {"id": task.task_id, "try": number}
    about = task_headers(incoming.delivery_tag, incoming.consumer_tag, task.task_name, task.task_id, ids, again)
    await aio_pika.tell(incoming, about, error)
