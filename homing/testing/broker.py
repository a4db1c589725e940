"""A broker in the test's own process and event loop, with a journal that goes when it ends."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import homing

from ..broker.clock import BrokerClock
from ..broker.config.config import Config, ConfigError, load, parse
from ..broker.config.models import NativeSection
from ..broker.core.settings.units import counted, format_duration_ms, parse_duration_ms
from ..broker.process.server import embedded
from .clock import Clock

#: What of a broker.yaml holds here. Where it listens, who may log in and where it keeps its data are this broker's own.
_SECTIONS: Final = (*("broker", "limits", "journal", "address-settings", "addresses", "queues", "virtual-hosts", "policies", "amqp"),)
#: A broker.yaml, its sections, or nothing: then the defaults of a broker without one.
Given = Path | str | Mapping[str, Any] | None


class Broker:
    """``async with Broker("broker.yaml") as broker``: a broker as that file says, of which everybody may ask everything, on loopback.

    Time passes as usual, but for ``advance``. Jitter is drawn from ``seed``: the same delays each time. Raises ConfigError for a wrong
    file, ValueError for a directory, and TypeError for anything else, and in another event loop than asyncio's own.
    """

    #: Where it listens; ``amqp_url`` is None where the file has no section ``amqp``.
    url: str
    amqp_url: str | None

    def __init__(self, config: Given = None, *, seed: int = 0) -> None:
        self._config = _read(config)
        self._seed = seed
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Broker:
        async with AsyncExitStack() as stack:
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="homing-")))
            self._clock = clock = stack.enter_context(Clock.shared(lambda: self._server.busy(), self._remove_dead_letters))
            config = self._config.with_data(directory)
            self._server, places = await stack.enter_async_context(
                embedded(config, lambda last_ms: BrokerClock(last_ms, clock.wall, clock.monotonic), Random(self._seed))
            )
            self.url = f"homing://{places['native']}"
            self.amqp_url = f"amqp://guest:guest@{places['amqp']}/" if "amqp" in places else None
            self._connection = await stack.enter_async_context(self.connect(client_id="homing.testing"))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def connect(self, **options: Any) -> homing.Connection:
        """``homing.connect`` to this broker, with the same options."""
        return homing.connect(self.url, **options)

    @property
    def now(self) -> datetime:
        """The broker's time, in UTC."""
        return datetime.fromtimestamp(self._clock.wall(), UTC)

    async def advance(self, duration: str | timedelta) -> None:
        """So much later (``"10m"``, or a timedelta): what falls due until then happens, each at its time, and clients in this event loop
        do what they do about it. At the end go the dead letters that are too old or too many. Returns when nothing is left to do. What
        waits for another process, or for a thread of its own, is not waited for. Raises ValueError for what is no duration, and a negative
        one.
        """
        given = duration // timedelta(milliseconds=1) if isinstance(duration, timedelta) else duration
        await self._clock.advance(parse_duration_ms(given) / 1000)

    async def settled(self) -> None:
        """Returns when nothing is left to do but to wait."""
        await self._clock.settle()

    async def _remove_dead_letters(self) -> None:
        # A look takes a source by its age or by its number, not by both.
        while await self._server.sweep.look():
            pass

    async def messages(self, queue: str) -> list[dict[str, Any]]:
        """Everything that is in a queue, as ``peek`` shows it: body, properties, state, failed, due_at_ms, hops (newest first), ….

        Raises homing.CallError where there is no such queue.
        """
        async with self._connection.session() as session:
            return [message async for message in session.browser(queue)]

    async def dead_letters(self, queue: str) -> list[dict[str, Any]]:
        """The messages that were dead-lettered from this queue last, wherever they are now."""
        return [message for message, last in await self._moved() if last["queue"] == queue]

    async def assert_dead_lettered(self, queue: str, *, reason: str | None = None, count: int = 1) -> list[dict[str, Any]]:
        """So many messages of this queue were dead-lettered, for this reason where one is named (``delivery_limit``, ``poison``,
        ``not-retryable``, ``expired``, ``maxlen``, ``rejected``); they are returned. Settles first. Raises AssertionError, which says what
        is there instead.
        """
        await self.settled()
        dead = await self.dead_letters(queue)
        found = [each for each in dead if reason in (None, each["hops"][0]["reason"])]
        if len(found) == count:
            return found
        wanted = f"{counted(count, 'dead letter')} of {queue}" + (f" for {reason}" if reason else "")
        raise AssertionError(f"expected {wanted}, found {len(found)}{await self._instead(queue, dead)}")

    async def _moved(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        queues = await self._connection.listing("queues")
        return [(message, message["hops"][0]) for each in queues for message in await self.messages(each["name"]) if message["hops"]]

    async def _instead(self, queue: str, dead: list[dict[str, Any]]) -> str:
        lines = [f"dead-lettered: {each['hops'][0]['reason']}: {_brief(each)}" for each in dead]
        if queue in {each["name"] for each in await self._connection.listing("queues")}:
            lines += [f"{self._state(each)}: {_brief(each)}" for each in await self.messages(queue)]
        else:
            lines.append("there is no such queue")
        return "".join(f"\n  {line}" for line in lines)

    def _state(self, message: dict[str, Any]) -> str:
        state, failed = message["state"], f"failed {counted(message['failed'], 'time')}"
        if message["due_at_ms"] is None:
            return f"still {state}, {failed}"
        left_ms = message["due_at_ms"] - int(self._clock.wall() * 1000)
        return f"still {state}, {failed}, due in {format_duration_ms(max(0, left_ms))}"


def _brief(message: dict[str, Any]) -> str:
    return f"message {message['message_id']}, {message['body'][:60]!r}"


def _read(given: Given) -> Config:
    try:
        config = _parsed(given)
    except ConfigError as error:
        error.add_note(error.fix)  # pytest shows it under the message
        raise
    amqp = None if config.amqp is None else config.amqp.model_copy(update={"host": "127.0.0.1", "port": 0, "tls_port": None})
    native = NativeSection.model_validate({"port": 0})
    # Archives go with the test too: the file's directory for them may be anywhere.
    journal = config.journal.model_copy(update={"disk_reserve_bytes": 0, "archive_directory": "archive"})
    return config.model_copy(update={"native": native, "amqp": amqp, "journal": journal})


def _parsed(given: Given) -> Config:
    if given is None:
        return parse("")
    if isinstance(given, Mapping):
        return parse(json.dumps(given), source="the configuration", only=_SECTIONS)  # JSON is YAML
    wanted = f"expected the path of a broker.yaml, its sections as a dict, or None for the defaults, got {given!r}"
    if not isinstance(given, str | os.PathLike):
        raise TypeError(wanted)
    if Path(given).is_dir():
        raise ValueError(wanted)
    return load(Path(given), only=_SECTIONS)
