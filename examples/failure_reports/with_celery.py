"""A Celery task that raises goes back to the broker, which keeps why, and tries it again when its settings say, or not at all:

    @app.task(base=Reported)
    def charge(order): …

For the worker's own pools that run callbacks where the connection is (prefork, solo).
"""

# Celery says nothing of its types.
# mypy: disable-error-code="misc"
from __future__ import annotations

from typing import Any

from celery import Task
from celery.exceptions import Reject, TaskPredicate
from celery.worker.request import Request

from examples.failure_reports.report import EXCHANGE, failure


class Reporting(Request):
    """In the worker's main process, which has the channel that the task came on."""

    def on_failure(self, exc_info: Any, *arguments: Any, **options: Any) -> Any:
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(error, Reject) and isinstance(error.reason, dict):
            channel = self.message.channel
            headers = {"delivery_tag": self.message.delivery_tag, **error.reason}
            channel.basic_publish(channel.prepare_message(b"", headers=headers), exchange=EXCHANGE, routing_key="")
        return super().on_failure(exc_info, *arguments, **options)


class Reported(Task):
    """In the process that runs the task."""

    abstract = True
    acks_late = True
    Request = Reporting

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super().__call__(*arguments, **named)
        except TaskPredicate:
            raise
        except Exception as error:
            raise Reject(failure(error), requeue=True) from error
