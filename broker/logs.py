"""The broker's log: lines to a file descriptor, written by a thread, so that whoever reads them, or does not, holds nobody up.

What is said more often than anybody reads is counted instead (each kind of line by itself), and so is what finds the queue to the thread
full. Whatever a client sent is shown as text: nothing in it begins a line or moves a cursor.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from .safe_text import safe

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Lines that may wait for the thread; what comes then is counted.
_MOST_WAITING: Final = 2000
_MOST_CHARACTERS: Final = 16 * 1024
#: So many lines of one kind in so many seconds.
_MOST_ALIKE: Final = 20
_WINDOW_S: Final = 10.0
#: Kinds that are counted at a time.
_MOST_KINDS: Final = 500
#: How long the end of the process waits for what is not written yet.
_FLUSH_S: Final = 2.0


def visible(text: str, most: int = 200) -> str:
    """Text from elsewhere on one line: what is not printable as an escape, and no more than ``most`` characters of it."""
    cut = safe(text[:most])
    return cut if len(text) <= most else f"{cut}… ({len(text)} characters)"


class _Visible(logging.Formatter):
    """Further lines are set in, so that none of them can pass for one of the log's own."""

    def format(self, record: logging.LogRecord) -> str:
        lines = super().format(record)[:_MOST_CHARACTERS].split("\n")
        return "\n    ".join(visible(line, _MOST_CHARACTERS) for line in lines)


class Sparing:
    """How often each kind of line may be said: ``_MOST_ALIKE`` times in ``_WINDOW_S``."""

    def __init__(self) -> None:
        #: Kind -> (when its window began, how many were said in it, how many were not).
        self._kinds: dict[str, tuple[float, int, int]] = {}
        #: Of kinds that there was no room to count apart.
        self._others = 0

    def allows(self, kind: str, now_s: float) -> bool:
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= _MOST_KINDS and not self._forget(now_s):
                self._others += 1
                return False
            known = now_s, 0, 0
        began, said, left = known
        if now_s - began >= _WINDOW_S and not left:
            began, said = now_s, 0
        allowed = said < _MOST_ALIKE
        self._kinds[kind] = (began, said + 1, left) if allowed else (began, said, left + 1)
        return allowed

    def _forget(self, now_s: float) -> bool:
        """Makes room; whether there is some."""
        for kind in [kind for kind, (began, _, left) in self._kinds.items() if now_s - began >= _WINDOW_S and not left]:
            del self._kinds[kind]
        return len(self._kinds) < _MOST_KINDS

    def left_out(self) -> bool:
        return self._others > 0 or any(left for _, _, left in self._kinds.values())

    def summaries(self, now_s: float, *, everything: bool = False) -> list[str]:
        """What was left out in windows that are over; from here on these kinds may be said again."""
        told = []
        for kind, (began, _, left) in list(self._kinds.items()):
            if left and (everything or now_s - began >= _WINDOW_S):
                del self._kinds[kind]
                told.append(f"{left} more like this were left out: {kind}")
        if self._others:
            told.append(f"{self._others} more of other kinds were left out")
            self._others = 0
        return told


class LogWriter(logging.Handler):
    """Lines to the file descriptor ``descriptor``, by a thread. Nothing here ever waits for it but ``close``, and that not for long."""

    def __init__(self, descriptor: int, now_s: Callable[[], float] = time.monotonic, flush_s: float = _FLUSH_S) -> None:
        super().__init__()
        self.setFormatter(_Visible(_FORMAT))
        self._descriptor = descriptor
        self._now_s = now_s
        self._flush_s = flush_s
        self._sparing = Sparing()
        #: Something was left out and not told of yet.
        self._spares = False
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        #: Lines that found the queue full.
        self._lost = 0
        self._over = False
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    # -- in any thread -----------------------------------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Under the handler's lock, as ``summaries``."""
        if record.levelno < logging.CRITICAL and not self._sparing.allows(str(record.msg), self._now_s()):
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
            self._lines.put(f"a line of the log could not be made: {visible(str(record.msg))} ({type(error).__name__})")

    def close(self) -> None:
        """What waits is written, if somebody takes it within ``flush_s``."""
        if not self._over:
            self._over = True
            self._lines.put(None)
            self._thread.join(self._flush_s)
        super().close()

    # -- in its own thread -------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=_WINDOW_S if self._spares else None)
            except Empty:
                line = ""
            if line:
                self._write(line)
            for said in self._left_out(everything=line is None) if self._spares or self._lost or line is None else ():
                self._write(f"{self._stamp()} WARNING homing: {said}")
            if line is None:
                return

    def _left_out(self, *, everything: bool) -> list[str]:
        assert self.lock is not None
        with self.lock:
            told = self._sparing.summaries(self._now_s(), everything=everything)
            self._spares = self._sparing.left_out()
            if self._lost:
                told.append(f"{self._lost} lines were left out while nobody took what stood before them")
                self._lost = 0
        return [visible(each, 500) for each in told]

    @staticmethod
    def _stamp() -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())

    def _write(self, line: str) -> None:
        data = (line + "\n").encode(errors="backslashreplace")
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                # Somebody has made it so that it does not wait: this thread may.
                select.select([], [self._descriptor], [])
            except OSError:
                return


def start_logging(descriptor: int = 2) -> LogWriter:
    """The process's log from here on, warnings of Python's included; close it in the end."""
    writer = LogWriter(descriptor)
    root = logging.getLogger()
    root.addHandler(writer)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    return writer
