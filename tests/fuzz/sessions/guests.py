"""Guests of the kill loop's brokers: sessions of hostile clients, some at a time, for as long as a broker lives.

What a session does is drawn from the seed, the number of the broker and its own, so that a seed repeats the same decisions.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.sessions.amqp import AmqpGuest
from tests.fuzz.sessions.line import Over
from tests.fuzz.sessions.native import NativeGuest
from tests.process import free_port

_JOIN_S: Final = 20.0


@dataclass
class Guests:
    """``begin`` and ``end`` around the life of each broker. ``log``: a line for each thing that a guest did, with its time."""

    seed: int
    log: Path
    clients: int = 6
    amqp_port: int = field(default_factory=free_port)
    sessions: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    #: What guests saw that must not be.
    problems: list[str] = field(default_factory=list)
    _brokers: int = 0

    def begin(self, native_port: int) -> None:
        self._brokers += 1
        self._loop = asyncio.new_event_loop()
        self._lines = self.log.open("a")
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._all(native_port),), name="guests", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Who is still there goes, in whatever it is doing. Raises AssertionError when somebody does not."""
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            stack = "".join(traceback.format_stack(sys._current_frames()[self._thread.ident or 0]))
            waiting = [str(task) for task in asyncio.all_tasks(self._loop)]
            raise AssertionError(f"guests do not go: {waiting}\n{stack}")
        self._loop.close()
        self._lines.close()

    async def _all(self, native_port: int) -> None:
        self._leave = asyncio.Event()
        coming = [asyncio.create_task(self._one_after_another(native_port, number)) for number in range(self.clients)]
        await self._leave.wait()
        for each in coming:
            each.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        await asyncio.sleep(0.05)  # what the last ones have under way ends

    async def _one_after_another(self, native_port: int, client: int) -> None:
        session = 0
        while not self._leave.is_set():
            session += 1
            await self._session(native_port, client, session)
            await asyncio.sleep(0.01)

    async def _session(self, native_port: int, client: int, session: int) -> None:
        name = f"{self.seed}/{self._brokers}/{client}/{session}"
        chance = Random(name)

        def record(text: str) -> None:
            self.sent += 1
            self._lines.write(f"{time.time():.3f} {name} {text}\n")
            if text.startswith("act "):
                self.acts[text[4:]] += 1
            elif text.startswith("INTERNAL-ERROR"):
                self.problems.append(f"{name}: {text}")

        native = chance.random() < 0.55
        self.sessions["native" if native else "AMQP"] += 1
        guest: Any = NativeGuest(chance, native_port, record) if native else AmqpGuest(chance, self.amqp_port, record)
        try:
            await guest.run()
        except Over:
            pass
        except Exception as error:
            self.problems.append(f"{name}: {error!r}")
            raise
