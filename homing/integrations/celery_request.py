"""A task as the worker's main process knows it, which has the channel that it came on (celery.py)."""

from __future__ import annotations

import re
from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.worker.request import Request

from . import kombu
from .report import quietly, raised, success, task_headers, wrap

#: Where a traceback goes on with what followed from it.
_CHAINED = re.compile(r"\n\n(?:During handling of|The above exception was)[^\n]*:\n\n")
#: Frames of Celery's own around the task's, which are others for a retry and for the last try.
_CELERYS = re.compile(r'  File "[^"\n]*[/\\]celery[/\\]app[/\\](?:autoretry|task|trace)\.py", .*\n(?:    .*\n)*')


#: The end of a traceback, behind its frames: what was raised, and its text.
_RAISED = re.compile(r"^(?!Traceback \()([^\s:]+)(?:: (.*))?\Z", re.MULTILINE | re.DOTALL)


class Reporting(Request):  # type: ignore[misc]  # Celery says nothing of its types
    def on_failure(self, exc_info: Any, *arguments: Any, **named: Any) -> Any:
        raised = _unwrapped(exc_info.exception)
        if not isinstance(raised, (Ignore, Retry, Terminated, SystemExit, KeyboardInterrupt)):
            with quietly():
                error = raised.reason if isinstance(raised, Reject) and isinstance(raised.reason, Exception) else raised
                self._tell(_of_exc_info(error, str(exc_info.traceback or "")), ended_by=_ended_by(self.task, raised, self._tries))
        return super().on_failure(exc_info, *arguments, **named)

    def __init_subclass__(cls) -> None:
        """Celery makes a class of it for each task, with an ``on_success`` of its own."""
        super().__init_subclass__()
        wrap(cls, "on_success", _succeeding)

    def on_retry(self, exc_info: Any) -> Any:
        with quietly():
            retry, told = _unwrapped(exc_info.exception), _CHAINED.split(str(exc_info.traceback or ""))
            self._tell(_of_retry(retry, told[0] if len(told) == 1 else told[-2]), again=True)
        return super().on_retry(exc_info)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        if not soft:
            said = f"it ran for more than {timeout} s"
            with quietly():
                self._tell({"error_type": "celery.exceptions.TimeLimitExceeded", "bases": ["Exception"], "error_text": said})
        return super().on_timeout(soft, timeout)

    @property
    def _tries(self) -> int:
        return int(getattr(self._context, "retries", 0) or 0) + 1

    def _tell(self, said: dict[str, Any], again: bool = False, ended_by: str = "") -> None:
        """Whether it is acknowledged already, or will be, or goes back."""
        message = self.message
        channel, info = message.channel, message.delivery_info
        if not kombu.takes_reports(channel):
            return
        ids = {"id": self.id, "root": self.root_id, "parent": self.parent_id, "try": self._tries}
        about = task_headers(info["delivery_tag"], info.get("consumer_tag", ""), self.name, self.id, ids, again, ended_by)
        kombu.tell(channel, message, about, said)


def _succeeding(original: Any) -> Any:
    def on_success(self: Reporting, failed__retval__runtime: Any, **named: Any) -> Any:
        if self._tries > 1 and not failed__retval__runtime[0]:
            with quietly():
                channel, info = self.message.channel, self.message.delivery_info
                if kombu.takes_reports(channel):
                    kombu.send(channel, success(info["delivery_tag"], info.get("consumer_tag"), self.id))
        return original(self, failed__retval__runtime, **named)

    return on_success


def _unwrapped(error: Any) -> Any:
    """As it was in the process that ran the task."""
    return getattr(error, "exc", error) if type(error).__name__ == "ExceptionWithTraceback" else error


def _of_exc_info(error: Any, traceback: str) -> dict[str, Any]:
    said = raised(error, traceback=_CELERYS.sub("", traceback))
    if hasattr(error, "exc_cls_name"):  # it could not be pickled
        said.update(error_type=f"{error.exc_module}.{error.exc_cls_name}", bases=["Exception"])
    return said


def _of_retry(retry: Any, traceback: str) -> dict[str, Any]:
    """An older Celery hands over what was raised as text alone; the traceback says it, too."""
    said = _of_exc_info(retry if retry.exc is None else retry.exc, traceback)
    raised = _RAISED.search(traceback.rstrip()) if retry.exc is None and retry.excs else None
    if raised:
        said.update(error_type=raised[1].removeprefix("__main__."), bases=["Exception"], error_text=raised[2] or "")
    return said


def _ended_by(task: Any, raised: Any, tries: int) -> str:
    """What says that there is no further try: nothing where the task goes back, or could not say what it raised."""
    if isinstance(raised, Reject):
        return "" if raised.requeue else "Reject"
    if isinstance(raised, (WorkerLostError, TimeLimitExceeded)) or hasattr(raised, "exc_cls_name"):
        return ""
    if isinstance(raised, tuple(task.throws or ())):
        return "throws"
    if isinstance(raised, MaxRetriesExceededError) or (tries > 1 and task.max_retries is not None and tries > task.max_retries):
        return "max_retries"
    retried = tuple(getattr(task, "autoretry_for", ()))
    return "autoretry_for" if retried and not isinstance(raised, retried) else ""
