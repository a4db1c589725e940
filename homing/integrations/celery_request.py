"""A task as the worker's main process knows it, which has the channel that it came on (celery.py)."""

from __future__ import annotations

import re
from typing import Any

from billiard.exceptions import Terminated
from celery.exceptions import Ignore, Reject, Retry
from celery.worker.request import Request

from . import kombu
from .report import PROPERTIES, fitted, of_error, quietly, room_beside, task_headers

#: Where a traceback goes on with what followed from it.
_CHAINED = re.compile(r"\n\n(?:During handling of|The above exception was)[^\n]*:\n\n")
#: Frames of Celery's own around the task's, which are others for a retry and for the last try.
_CELERYS = re.compile(r'  File "[^"\n]*[/\\]celery[/\\]app[/\\](?:autoretry|task|trace)\.py", .*\n(?:    .*\n)*')


class Reporting(Request):  # type: ignore[misc]  # Celery says nothing of its types
    def on_failure(self, exc_info: Any, *arguments: Any, **named: Any) -> Any:
        error = _unwrapped(exc_info.exception)
        if isinstance(error, Reject) and isinstance(error.reason, Exception):
            error = error.reason
        if not isinstance(error, (Ignore, Retry, Terminated, SystemExit, KeyboardInterrupt)):
            with quietly():
                self._tell(_of_exc_info(error, str(exc_info.traceback or "")))
        return super().on_failure(exc_info, *arguments, **named)

    def on_retry(self, exc_info: Any) -> Any:
        with quietly():
            retry, told = _unwrapped(exc_info.exception), _CHAINED.split(str(exc_info.traceback or ""))
            error = retry if retry.exc is None else retry.exc
            self._tell({**_of_exc_info(error, told[0] if len(told) == 1 else told[-2]), "again": True})
        return super().on_retry(exc_info)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        if not soft:
            said = f"it ran for more than {timeout} s"
            with quietly():
                self._tell({"error_type": "celery.exceptions.TimeLimitExceeded", "bases": ["Exception"], "error_text": said})
        return super().on_timeout(soft, timeout)

    def _tell(self, said: dict[str, Any]) -> None:
        """Whether it is acknowledged already, or will be, or goes back."""
        message = self.message
        channel, info = message.channel, message.delivery_info
        if not kombu.takes_reports(channel):
            return
        tries = int(getattr(self._context, "retries", 0) or 0)
        ids = {"id": self.id, "root": self.root_id, "parent": self.parent_id, "try": tries + 1}
        about = task_headers(info["delivery_tag"], info.get("consumer_tag", ""), self.name, self.id, ids)
        own = message.headers or {}
        way = {"exchange": info.get("exchange", ""), "routing_key": info.get("routing_key", ""), "message_headers": own}
        room = room_beside(own, channel.connection.frame_max or 131_072)
        if said.get("again") or not room:
            kombu.send(channel, {**about, **fitted(said, channel.connection.frame_max)})
            return
        properties = {name: message.properties[name] for name in PROPERTIES if message.properties.get(name) is not None}
        properties.update(content_type=message.content_type, content_encoding=message.content_encoding)
        body = message.body.encode(message.content_encoding or "utf-8") if isinstance(message.body, str) else bytes(message.body)
        kombu.send(channel, {**about, **way, **fitted(said, room)}, body, **properties)


def _unwrapped(error: Any) -> Any:
    """As it was in the process that ran the task."""
    return getattr(error, "exc", error) if type(error).__name__ == "ExceptionWithTraceback" else error


def _of_exc_info(error: Any, traceback: str) -> dict[str, Any]:
    said = of_error(error, traceback=_CELERYS.sub("", traceback))
    if hasattr(error, "exc_cls_name"):  # it could not be pickled
        said.update(error_type=f"{error.exc_module}.{error.exc_cls_name}", bases=["Exception"])
    if isinstance(error, Reject):
        said["retryable"] = bool(error.requeue)
    return said
