"""What is told of a failure, and when: the same for every library."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import os
import re
import socket
import sys
import traceback
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

log = logging.getLogger("homing.integrations")

EXCHANGE = "homing.failure"
#: The version of the program, as ``homing instrument`` is told it.
VERSION_VARIABLE = "HOMING_PROGRAM_VERSION"
#: Of the headers, which go in one frame, beside the texts.
_RESERVE_BYTES = 2048
#: What is told takes that at least, where the message goes along.
_LEAST_ROOM_BYTES = 16_384
#: Of a text, and of what a broker keeps of it much less.
_MOST_BYTES = 30_000
_MOST_BASES = 16
#: Deliveries of a channel that are remembered as told of.
_REMEMBERED = 1000
#: Of a message that failed, which its report has as its own.
PROPERTIES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "type",
    "app_id",
)
_HERE = str(Path(__file__).parent) + os.sep

_told: weakref.WeakKeyDictionary[Any, dict[int, None]] = weakref.WeakKeyDictionary()
_introduced: weakref.WeakSet[Any] = weakref.WeakSet()
_logged: set[str] = set()
#: What is instrumented in this program: name and version, the one that was imported last in the end.
instrumented: dict[str, str] = {}


class Unfit(Exception):
    """A version of a library that is not known: it stays as it is."""


def is_homing(server_properties: Any) -> bool:
    """Whether a server says of itself that it takes reports: anything else is to see no difference."""
    name = server_properties.get("broker") if isinstance(server_properties, Mapping) else None
    return name in ("Homing", b"Homing")


def in_flight() -> Exception | None:
    """What the program is handling where this is called."""
    error = sys.exc_info()[1]
    return error if isinstance(error, Exception) else None


def of_error(error: BaseException, frame_max: int = 131_072, **more: Any) -> dict[str, Any]:
    """The headers that say what was raised. ``more``: ``retryable=False`` (never again), ``delay_ms=60_000`` (not before a minute has
    passed), ``reason="…"``, ``task="…"``.
    """
    return _fitted(raised(error, **more), frame_max)


def raised(error: BaseException, **more: Any) -> dict[str, Any]:
    """The same, as long as it is."""
    name, *bases = [_name(kind) for kind in type(error).__mro__[:-1][: _MOST_BASES + 1]]
    return {"error_type": name, "bases": bases, "error_text": _text(error), "traceback": _traceback(error), **more}


def success(tag: int, consumer_tag: str | None, story: str) -> dict[str, Any]:
    """The headers that say that a try of a task has succeeded, of which one before had failed."""
    return {**of_delivery(tag, consumer_tag), "story": story, "succeeded": True, "also_acknowledged": True}


def task_headers(
    tag: int, consumer_tag: str, task: str, story: str, ids: Mapping[str, Any], again: bool = False, ended_by: str = ""
) -> dict[str, Any]:
    """Which task of which delivery: the report counts whether the library acknowledges what failed or gives it back. ``story``: what all
    tries of the task have in common. ``again``: the library has sent the next one; ``ended_by``: what of the library's or the task's says
    that there is none. Neither: it does not say.
    """
    reason = ", ".join(f"{name} {value}" for name, value in {**ids, "not again by": ended_by}.items() if value)
    which = {"delivery_tag": tag, "consumer_tag": consumer_tag, "task": task, "story": story, "reason": reason}
    said = {"again": True, "retryable": True} if again else {"retryable": False} if ended_by else {}
    return {**which, "quiet": True, "also_acknowledged": True, **said}


def of_delivery(tag: int, consumer_tag: str | None) -> dict[str, Any]:
    """Which delivery: it may be acknowledged already."""
    return {"delivery_tag": tag, "consumer_tag": consumer_tag or "", "quiet": True}


def of_message(
    about: dict[str, Any], said: dict[str, Any], exchange: str | None, routing_key: str | None, own: Mapping[str, Any], frame_max: int
) -> tuple[dict[str, Any], bool]:
    """The headers of a report, and whether the message that failed goes along: not where it is tried again, nor where its headers, ``own``,
    leave no room. ``about``: of_delivery or task_headers; ``said``: raised.
    """
    room = _room_beside(own, frame_max or 131_072)
    if about.get("again") or not room:
        return {**about, **_fitted(said, frame_max)}, False
    way = {"exchange": exchange or "", "routing_key": routing_key or "", "message_headers": dict(own)}
    return {**about, **way, **_fitted(said, room)}, True


def _fitted(headers: dict[str, Any], frame_max: int) -> dict[str, Any]:
    """With long texts cut, each in its middle, so that all go in one frame (0: one of any size)."""
    most = min(_MOST_BYTES, max(((frame_max or 131_072) - _RESERVE_BYTES) // 4, 256))
    return {name: _cut(value, most) if isinstance(value, str) else value for name, value in headers.items()}


def _room_beside(headers: Mapping[str, Any], frame_max: int) -> int:
    """Of a frame, for what is told of a message whose headers go along; 0: too little, and it does not go along."""
    room = frame_max - 2 * len(repr(headers))
    return room if room >= _LEAST_ROOM_BYTES else 0


def first_time(channel: Any, tag: int) -> bool:
    """Whether nothing was told of this delivery of the channel yet; from now on something is."""
    told = _told.setdefault(channel, {})
    if tag in told:
        return False
    told[tag] = None
    if len(told) > _REMEMBERED:
        del told[next(iter(told))]
    return True


def introduction(connection: Any) -> dict[str, Any] | None:
    """What a program says of itself before its first consumer, once a connection."""
    if connection in _introduced:
        return None
    _introduced.add(connection)
    return {"quiet": True, **of_itself()}


def of_itself() -> dict[str, str]:
    """What is known of the program."""
    program, version = program_name(), os.environ.get(VERSION_VARIABLE, "")
    library = " ".join(list(instrumented.items())[-1]) if instrumented else ""
    said = {"program": program, "host": socket.gethostname(), "program_version": version, "instrumented": library}
    return {name: value for name, value in said.items() if value}


def program_name() -> str:
    path = Path(sys.argv[0] if sys.argv and sys.argv[0] else "python")
    return path.parent.name if path.name == "__main__.py" else path.name


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """A report is never the reason why a program fails: what goes wrong in one is logged, each kind once, and that is all."""
    try:
        yield
    except Exception as error:
        kind = f"{type(error).__name__}: {error}"
        if kind not in _logged:
            _logged.add(kind)
            log.warning("homing: a failure could not be reported (%s); the program goes on as without", kind)


def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts ``make(original)`` in the place of a method, once. Raises Unfit where there is no such method."""
    original = getattr(owner, name, None)
    if original is None:
        raise Unfit(f"{owner.__name__} has no {name}")
    if not hasattr(original, "reports_to_homing"):
        wrapped: Any = functools.wraps(original)(make(original))
        wrapped.reports_to_homing = True
        setattr(owner, name, wrapped)


def at_least(distribution: str, oldest: tuple[int, ...]) -> None:
    """Notes that the program has it. Raises Unfit where it is older than what was tried."""
    version = importlib.metadata.version(distribution)
    if tuple(int(number) for number in re.findall(r"\d+", version)[: len(oldest)]) < oldest:
        raise Unfit(f"it is {version}, older than {'.'.join(map(str, oldest))}")
    instrumented[distribution] = version


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # a faulty __str__ must not hide the failure it describes
        return f"(no text: {type(broken).__name__} in __str__)"


def _traceback(error: BaseException) -> str:
    """As Python prints it, without what stands here at its beginning."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None and place.tb_frame.f_code.co_filename.startswith(_HERE):
        place = place.tb_next
    return "".join(traceback.format_exception(type(error), error, place))


def _cut(text: str, most: int) -> str:
    """In words that the broker knows: what it redacts is then not half there. What is no UTF-8 is written out."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return data.decode()
    head = data[: most // 2 - 32].decode("utf-8", "ignore")
    tail = data[len(data) - (most // 2 - 32) :].decode("utf-8", "ignore")
    return f"{head}\n… {len(data.decode()) - len(head) - len(tail)} characters left out …\n{tail}"
