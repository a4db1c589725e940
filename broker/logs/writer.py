"""The broker's log: lines written by a thread, to standard error or to files, so that whoever reads them, or does not, holds nobody up.

What is said more often than anybody reads is counted instead (each kind of line by itself), and so is what finds the queue to the thread
full. Whatever a client sent is shown as text: nothing in it begins a line or moves a cursor.

Every line of ours begins with the name of its event, which stays the same when the sentence behind it does not: ``disk-full: …``.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Protocol

from ..words.safe_text import safe

#: Lines that may wait for the thread; what comes then is counted.
_MOST_WAITING: Final = 2000
_MOST_CHARACTERS: Final = 16 * 1024
#: So many lines of one kind in so many seconds.
_MOST_ALIKE: Final = 20
_WINDOW_S: Final = 10.0
#: Kinds that are counted at a time.
_MOST_KINDS: Final = 500
#: Lines of all kinds in one second.
_MOST_A_SECOND: Final = 100
#: The logger of lines of which none is left out for being like others.
AUDIT: Final = "homing.audit"
#: How long the end of the process waits for what is not written yet.
_FLUSH_S: Final = 2.0
#: How a line of ours begins.
EVENT: Final = re.compile(r"([a-z]+(?:-[a-z]+)*): ")


def visible(text: str, most: int = 200) -> str:
    """Text from elsewhere on one line: what is not printable as an escape, and no more than ``most`` characters of it."""
    cut = safe(text[:most])
    return cut if len(text) <= most else f"{cut}… ({len(text)} characters)"


class LogOptions(NamedTuple):
    """``path``: None is standard error. A file of ``max_bytes`` is set aside, and the last ``backup_count`` of these are kept."""

    level: str = "info"
    as_json: bool = False
    utc: bool = True
    path: Path | None = None
    max_bytes: int = 0
    backup_count: int = 0


class Lines(logging.Formatter):
    """A line for each record, as text or as a JSON object; its time has the zone beside it."""

    def __init__(self, as_json: bool = False, utc: bool = True) -> None:
        super().__init__()
        self._as_json = as_json
        self._zone = UTC if utc else None

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone(self._zone).isoformat(timespec="milliseconds")
        event, said = _event_of(record)
        trouble = self.formatException(record.exc_info) if record.exc_info else ""
        if self._as_json:
            line = {"time": at, "level": record.levelname, "logger": record.name, "event": event, "message": said[:_MOST_CHARACTERS]}
            return json.dumps({**line, "exception": trouble[:_MOST_CHARACTERS]} if trouble else line)
        text = f"{at} {record.levelname} {record.name}: {event}: {said}" + (f"\n{trouble}" if trouble else "")
        # Further lines are set in, so that none of them can pass for one of the log's own.
        return "\n    ".join(visible(line, _MOST_CHARACTERS) for line in text[:_MOST_CHARACTERS].split("\n"))


def _event_of(record: logging.LogRecord) -> tuple[str, str]:
    """Its name, and what is said of it. What libraries log is an event by the name of their logger."""
    said = record.getMessage()
    if found := EVENT.match(str(record.msg)):
        return found[1], said[found.end() :]
    return record.name.replace(".", "-"), said


def _said_by(record: logging.LogRecord) -> str:
    """What it says, or, where its values do not fit, what it was to say."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!s} ({type(error).__name__})"


class _Left:
    """Lines that were left out: how many, and the last of them, as it would have been said."""

    __slots__ = ("_last", "count")

    def __init__(self) -> None:
        self.count = 0
        self._last = ""

    def add(self, line: Callable[[], str]) -> None:
        self.count += 1
        self._last = line()[:_MOST_CHARACTERS]

    def __str__(self) -> str:
        return f", the last of them: {self._last}"


class Sparing:
    """How often each kind of line may be said: ``_MOST_ALIKE`` times in ``_WINDOW_S``. ``line``: makes what would have been said."""

    def __init__(self) -> None:
        #: Kind -> (when its window began, how many were said in it, those that were not).
        self._kinds: dict[str, tuple[float, int, _Left]] = {}
        #: Of kinds that there was no room to count apart.
        self._others = _Left()
        #: When this second began, the lines that were said in it, and all that were one too many for theirs.
        self._second_s = -_WINDOW_S
        self._said, self._too_many = 0, _Left()

    def admits(self, now_s: float, line: Callable[[], str]) -> bool:
        """Whether there is room for one more in this second, whatever its kind."""
        if now_s - self._second_s >= 1.0:
            self._second_s, self._said = now_s, 0
        self._said += 1
        if self._said > _MOST_A_SECOND:
            self._too_many.add(line)
        return self._said <= _MOST_A_SECOND

    def allows(self, kind: str, now_s: float, line: Callable[[], str]) -> bool:
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= _MOST_KINDS and not self._forget(now_s):
                self._others.add(line)
                return False
            known = now_s, 0, _Left()
        began, said, left = known
        if now_s - began >= _WINDOW_S and not left.count:
            began, said = now_s, 0
        allowed = said < _MOST_ALIKE
        if not allowed:
            left.add(line)
        self._kinds[kind] = began, said + allowed, left
        return allowed

    def _forget(self, now_s: float) -> bool:
        """Makes room; whether there is some."""
        for kind in [kind for kind, (began, _, left) in self._kinds.items() if now_s - began >= _WINDOW_S and not left.count]:
            del self._kinds[kind]
        return len(self._kinds) < _MOST_KINDS

    def left_out(self) -> bool:
        return self._others.count > 0 or self._too_many.count > 0 or any(left.count for _, _, left in self._kinds.values())

    def summaries(self, now_s: float, *, everything: bool = False) -> list[str]:
        """What was left out in windows that are over; from here on these kinds may be said again."""
        lines = []
        for kind, (began, _, left) in list(self._kinds.items()):
            if left.count and (everything or now_s - began >= _WINDOW_S):
                del self._kinds[kind]
                lines.append(f"{left.count} more like this were left out{left}")
        if self._others.count:
            lines.append(f"{self._others.count} more of other kinds were left out{self._others}")
            self._others = _Left()
        if self._too_many.count and (everything or now_s - self._second_s >= 1.0):
            lines.append(f"{self._too_many.count} lines beyond {_MOST_A_SECOND} a second were left out{self._too_many}")
            self._too_many = _Left()
        return lines


class Sink(Protocol):
    """Where lines end up; used by the log's thread alone."""

    def write(self, line: str) -> None: ...

    def close(self) -> None: ...


class _Descriptor:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: str) -> None:
        data = (line + "\n").encode(errors="backslashreplace")
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                # Somebody has made it so that it does not wait: this thread may.
                select.select([], [self._descriptor], [])
            except OSError:
                return

    def close(self) -> None: ...


class _Files(RotatingFileHandler):
    """What cannot be written there, as on a full disk, goes to standard error."""

    def write(self, line: str) -> None:
        self.handle(logging.makeLogRecord({"msg": line}))

    def handleError(self, record: logging.LogRecord) -> None:
        _Descriptor(2).write(record.getMessage())


def open_sink(options: LogOptions) -> Sink:
    """Raises OSError where the file cannot be opened. A file that was moved away is begun anew."""
    if options.path is None:
        return _Descriptor(2)
    return _Files(options.path, maxBytes=options.max_bytes, backupCount=options.backup_count, encoding="utf-8", errors="backslashreplace")


class LogWriter(logging.Handler):
    """Lines to ``sink``, by a thread. Nothing here ever waits for it but ``close``, and that not for long."""

    def __init__(self, sink: Sink, now_s: Callable[[], float] = time.monotonic, flush_s: float = _FLUSH_S) -> None:
        super().__init__()
        self.setFormatter(Lines())
        self._sink = sink
        self._now_s = now_s
        self._flush_s = flush_s
        self._sparing = Sparing()
        #: Something was left out and not reported yet.
        self._spares = False
        #: A sink among them is where the lines behind it go.
        self._lines: SimpleQueue[str | Sink | None] = SimpleQueue()
        #: Lines that found the queue full.
        self._lost = 0
        self._over = False
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    # -- in any thread -----------------------------------------------------------------------------------------------

    def take_up(self, options: LogOptions, sink: Sink) -> None:
        """From the next line on."""
        _write_from(logging.getLevelNamesMapping()[options.level.upper()])
        self.setFormatter(Lines(options.as_json, options.utc))
        self._lines.put(sink)

    def emit(self, record: logging.LogRecord) -> None:
        """Under the handler's lock, as ``summaries``."""
        spared = record.levelno < logging.CRITICAL and record.name != AUDIT
        if spared and not self._allows(record, self._now_s()):
            if not self._spares:
                self._spares = True
                self._lines.put("")  # from here on the thread looks at the clock
            return
        if self._lines.qsize() >= _MOST_WAITING:
            self._lost += 1
            return
        try:
            self._lines.put(self.format(record))
        except Exception as error:
            self._lines.put(self._own_line(f"line-failed: a line could not be made: {record.msg!s} ({type(error).__name__})"))

    def _allows(self, record: logging.LogRecord, now_s: float) -> bool:
        kept_apart, line = getattr(record, "apart", False), partial(_said_by, record)
        return (kept_apart or self._sparing.allows(str(record.msg), now_s, line)) and self._sparing.admits(now_s, line)

    def close(self) -> None:
        """What waits is written, if somebody takes it within ``flush_s``."""
        if not self._over:
            self._over = True
            self._lines.put(None)
            self._thread.join(self._flush_s)
        super().close()

    def _own_line(self, said: str) -> str:
        return self.format(logging.makeLogRecord({"name": "homing", "levelno": logging.WARNING, "levelname": "WARNING", "msg": said}))

    # -- in its own thread -------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=_WINDOW_S if self._spares else None)
            except Empty:
                line = ""
            if isinstance(line, str):
                if line:
                    self._sink.write(line)
            elif line is not None:
                self._sink.close()
                self._sink = line
            for said in self._left_out(everything=line is None) if self._spares or self._lost or line is None else ():
                self._sink.write(self._own_line(f"lines-left-out: {said}"))
            if line is None:
                self._sink.close()
                return

    def _left_out(self, *, everything: bool) -> list[str]:
        assert self.lock is not None
        with self.lock:
            lines = self._sparing.summaries(self._now_s(), everything=everything)
            self._spares = self._sparing.left_out()
            if self._lost:
                lines.append(f"{self._lost} lines were left out while nobody took what stood before them")
                self._lost = 0
        return [visible(each, 500) for each in lines]


def _write_from(level: int) -> None:
    """Of what the broker uses only warnings: what a library thinks of this machine is nobody's business here."""
    logging.getLogger("homing").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.WARNING))


def start_logging() -> LogWriter:
    """The process's log from here on, warnings of Python's included; close it in the end."""
    writer = LogWriter(_Descriptor(2))
    logging.getLogger().addHandler(writer)
    _write_from(logging.INFO)
    logging.captureWarnings(True)
    return writer
