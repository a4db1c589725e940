"""How a command talks to a broker: through the public client, one connection, which is not tried for long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import typer

import homing

from ..answers.parts import LeftOut
from ..core.settings.units import counted
from .output import DEFAULT_URL, CommandError, ExitCode, note

T = TypeVar("T")
_AGAIN_S: Final = 1.0
#: What accepts a connection and says nothing is given up after this.
_ANSWERS_MS: Final = 3_000
#: How the broker says it (management/arguments.py).
_NO_QUEUE: Final = "there is no queue "
#: Queues among which the one that was meant is looked for.
_LOOKED_AT: Final = 1_000
_NOT_BACK_YET: Final = ("no-broker", "connect-timeout")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[homing.Connection]:
    """A connection that reports at once when there is no broker, rather than waiting for one."""
    password = _password() if "@" in url else None
    async with homing.connect(url, password=password, reconnect=False, connect_timeout_ms=_ANSWERS_MS) as connection:
        yield connection


def _password() -> str | None:
    """Of the user that the address names, where that has none: the first line of a file, so that it stands in no command line."""
    name = os.environ.get("HOMING_PASSWORD_FILE")
    if name is None:
        return None
    try:
        return Path(name).read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        fix = "HOMING_PASSWORD_FILE names it: name a readable file"
        raise CommandError(ExitCode.FAILED, f"the password cannot be read from {name}: {why}", fix, code="no-password") from None


def talk(url: str, conversation: Callable[[homing.Connection], Awaitable[T]]) -> T:
    """Connects, runs ``conversation(connection)`` and closes in order."""

    async def run() -> T:
        async with connected(url) as connection:
            try:
                return await conversation(connection)
            except homing.HomingError as error:
                name = error.message.removeprefix(_NO_QUEUE).partition(" and auto-create")[0]
                if name != error.message and (meant := await _meant(connection, name)):
                    error.fix = f"{meant} {error.fix}".rstrip()
                raise

    return asyncio.run(run())


@asynccontextmanager
async def made_by(connection: homing.Connection, name: str, of_queues: bool = False) -> AsyncIterator[None]:
    """Says, once what is done within went well, that there was no such address, or queue with ``of_queues``, and that it was made."""
    missing = await _is_missing(connection, name, of_queues)
    yield
    if missing:
        note(f"there was no {'queue' if of_queues else 'address'} {name}: it was made. {await _meant(connection, name)}".rstrip())


async def _is_missing(connection: homing.Connection, name: str, of_queues: bool) -> bool:
    """False also where whoever asks is not told."""
    try:
        if not of_queues:
            return bool((await connection.call("explain", address=name))["queues"] is None)
        await connection.call("queue", queue=name)
    except homing.HomingError as error:
        return error.message == f"{_NO_QUEUE}{name}"
    return False


async def _meant(connection: homing.Connection, name: str) -> str:
    """A question, or nothing where no queue that may be seen is called so."""
    from difflib import get_close_matches

    names: list[str] = []
    after: dict[str, str] | None = {}
    try:
        while after is not None and len(names) < _LOOKED_AT:
            page = await connection.call("queues", limit=_LOOKED_AT, **after)
            names += [each["queue"] for each in page["items"] if each["queue"] != name]
            after = {"after": page["next"]} if page["next"] is not None else None
    except homing.HomingError:
        return ""
    near = get_close_matches(name, names, n=2, cutoff=0.75)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def talk_on(url: str, conversation: Callable[[homing.Connection], Awaitable[T]]) -> T:
    """As ``talk``; where the connection is lost it begins again as soon as there is a broker."""

    async def run() -> T:
        was_there = lost = False
        while True:
            try:
                async with connected(url) as connection:
                    if lost:
                        note("the broker is back")
                    was_there, lost = True, False
                    return await conversation(connection)
            except homing.HomingError as error:
                if not was_there or not (error.connection_lost or error.code in _NOT_BACK_YET):
                    raise
                if not lost:
                    note(f"the connection is lost ({error.message}); this goes on when the broker is back")
                lost = True
            await asyncio.sleep(_AGAIN_S)

    return asyncio.run(run())


class Seen(list[Any]):
    """A list of which something may be left out, and what is said of that."""

    left_out = ""


def left_out(told: LeftOut | None) -> str:
    """What the broker tells of it, as a sentence; empty where nothing is left out."""
    if not told:
        return ""
    number = told["queues"]
    return f"{counted(number, 'queue')} {'is' if number == 1 else 'are'} left out: you lack the right {told['right']} there"


async def seen(connection: homing.Connection, verb: str, *, first: Any = None, page: int = 250, **arguments: Any) -> Seen:
    """All that such a call has, page by page; ``first``: the ``after`` of the first one."""
    found, after = Seen(), first
    while True:
        answer = await connection.call(verb, **arguments, limit=page, after=after)
        found += answer["items"]
        found.left_out = found.left_out or left_out(answer["left_out"])
        after = answer["next"]
        if after is None:
            return found


def call(url: str, verb: str, **arguments: Any) -> Any:
    """One management call (docs/protocol.md, 2.7) and its value."""
    return talk(url, lambda connection: connection.call(verb, **arguments))


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """For the shell's completion: the queues of the broker that the command would talk to; none where there is none."""
    try:
        found = listing(context.params.get("url") or os.environ.get("HOMING_URL", DEFAULT_URL), "queues")
    except homing.HomingError:
        return []
    return [each["name"] for each in found if each["name"].startswith(incomplete)]


def listing(url: str, verb: str, **arguments: object) -> list[Any]:
    """All that such a call has, page by page."""
    return talk(url, lambda connection: connection.listing(verb, **arguments))
