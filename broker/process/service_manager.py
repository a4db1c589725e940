"""Notifies the service manager that started the process: systemd, or who speaks sd_notify(3) as it does."""

from __future__ import annotations

import logging
import os
import socket
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import MutableMapping
from typing import Final

from ..logs.writer import visible

log = logging.getLogger("homing")

#: The watchdog is fed so many times within its limit.
_TIMES_FED: Final = 3


class ServiceManager:
    """Says nothing where nobody asked (without ``NOTIFY_SOCKET``), and never waits for who listens."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        # Taken out: they are for this process, not for those that it starts.
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        limit_us = int(environment.pop("WATCHDOG_USEC", 0))
        meant = environment.pop("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self._interval_s = limit_us / 1e6 / _TIMES_FED if meant else 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        self._timer: TimerHandle | None = None

    def ready(self, status: str) -> None:
        """It serves; also what ends a reload."""
        self._notify("READY=1", f"STATUS={visible(status)}")

    def reloading(self) -> None:
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._notify("STOPPING=1", f"STATUS={visible(status)}")

    def feed_watchdog(self, loop: AbstractEventLoop) -> None:
        """From now on, as long as the loop turns."""
        if self._interval_s:
            self._notify("WATCHDOG=1")
            self._timer = loop.call_later(self._interval_s, self.feed_watchdog, loop)

    def _notify(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)
        except OSError as error:
            log.warning("manager-not-notified: the service manager could not be notified of %s: %s", lines[0], error.strerror)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
