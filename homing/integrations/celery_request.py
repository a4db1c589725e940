"""A task as the worker's main process knows it, which has the channel that it came on (celery.py)."""

from __future__ import annotations

import re
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.worker.request import Request

from . import kombu
from .report import fitted, of_error, quietly

#: Where a traceback goes on with what followed from it.
_CHAINED = re.compile(r"\n\n(?:During handling of|The above exception was)[^\n]*:\n\n")
#: Frames of Celery's own around the task's, which are others for a retry and for the last try.
_CELERYS = re.compile(r'  File "[^"\n]*[/\\]celery[/\\]app[/\\](?:autoretry|task|trace)\.py", .*\n(?:    .*\n)*')
#: Of the task's message, which the report has as its own.
_PROPERTIES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "app_id",
)


class Reporting(Request):  # type: ignore[misc]  # Celery says nothing of its types
    #: What is to be told of it once it is settled.
    _untold: dict[str, Any] | None = None

    def on_failure(self, exc_info: Any, *arguments: Any, **named: Any) -> Any:
        error = _unwrapped(exc_info.exception)
        if isinstance(error, Reject) and isinstance(error.reason, Exception):
            error = error.reason
        if not isinstance(error, (Ignore, Retry, SystemExit, KeyboardInterrupt)):
            with quietly():
                self._untold = _of_exc_info(error, str(exc_info.traceback or ""))
        try:
            return super().on_failure(exc_info, *arguments, **named)
        finally:
            self._tell_after()

    def on_retry(self, exc_info: Any) -> Any:
        retry = _unwrapped(exc_info.exception)
        with quietly():
            told = _CHAINED.split(str(exc_info.traceback or ""))
            error = retry if retry.exc is None else retry.exc
            self._untold = {**_of_exc_info(error, told[0] if len(told) == 1 else told[-2]), "again": True}
        try:
            return super().on_retry(exc_info)
        finally:
            self._tell_after()

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        if not soft:
            said = f"it ran for more than {timeout} s"
            self._untold = {"error_type": "celery.exceptions.TimeLimitExceeded", "bases": ["Exception"], "error_text": said}
        try:
            return super().on_timeout(soft, timeout)
        finally:
            self._tell_after()

    def reject(self, requeue: bool = False) -> Any:
        if self._untold is not None and not self.message.acknowledged:
            with quietly():
                self._tell(self._untold, with_message=False)
        self._untold = None
        return super().reject(requeue=requeue)

    def _tell_after(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None and self.message.acknowledged:
            with quietly():
                self._tell(untold, with_message=not untold.get("again"))

    def _tell(self, said: dict[str, Any], with_message: bool) -> None:
        message = self.message
        channel, info = message.channel, message.delivery_info
        if not kombu.takes_reports(channel):
            return
        tries = int(getattr(self._context, "retries", 0) or 0)
        ids = {"id": self.id, "root": self.root_id, "parent": self.parent_id, "try": tries + 1}
        headers = {
            "delivery_tag": info["delivery_tag"],
            "consumer_tag": info.get("consumer_tag", ""),
            "quiet": True,
            "task": self.name,
            "reason": ", ".join(f"{name} {value}" for name, value in ids.items() if value),
            "story": self.id,
        }
        room, own = channel.connection.frame_max or 131_072, message.headers or {}
        taken = 2 * len(repr(own))
        if not with_message or taken > room // 2:
            kombu.send(channel, {**headers, **fitted(said, room)})
            return
        headers.update(exchange=info.get("exchange", ""), routing_key=info.get("routing_key", ""), message_headers=own)
        properties = {name: message.properties[name] for name in _PROPERTIES if message.properties.get(name) is not None}
        properties.update(content_type=message.content_type, content_encoding=message.content_encoding)
        body = message.body.encode(message.content_encoding or "utf-8") if isinstance(message.body, str) else bytes(message.body)
        kombu.send(channel, {**headers, **fitted(said, room - taken)}, body, **properties)


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
