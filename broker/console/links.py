"""Connections to the broker: one for a user and password, kept for a while, so that the broker's slow check of passwords is asked once."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterable
from typing import Final

import homing

from .commands import Commands
from .problems import Problem

#: What accepts a connection and says nothing is given up after this.
_ANSWERS_MS: Final = 3_000
KEPT_S: Final = 600.0
_SWEEP_S: Final = 60.0
#: Where there are no users, as AMQP's clients say it.
GUEST: Final = ("guest", "guest")
_NO_USERS: Final = homing.ConnectError(
    "login-refused", "this broker has no users: whoever comes from its own machine is guest, with the password guest", "log in as guest"
)
_USERS_REQUIRED: Final = homing.ConnectError(
    "users-required",
    "this broker has no users, and who comes to this console may come from another machine",
    "homing user add NAME --role administrator",
)


class _Kept:
    """One login's connection, and who waits for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.connection: homing.Connection | None = None
        self.used_s = 0.0

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.state is homing.ConnectionState.CONNECTED

    async def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close()


class Links:
    """``url``: the broker, without a user; ``commands``: those of it. ``now_s``: a clock that never goes back. ``exposed``: who comes may
    come from another machine, and has to be a user."""

    def __init__(self, url: str, commands: Commands, now_s: Callable[[], float], exposed: bool) -> None:
        self.url = url
        self.commands = commands
        self._now_s = now_s
        self._exposed = exposed
        self._key = secrets.token_bytes(32)
        self._kept: dict[bytes, _Kept] = {}

    async def get(self, user: str, password: str) -> homing.Connection:
        """An open connection with this login's rights. Raises homing.ConnectError; ``login-…`` where it is refused."""
        kept = self._kept.setdefault(self._digest(user, password), _Kept())
        async with kept.lock:
            if not kept.is_open:
                kept.connection = await self._open(user, password)
            kept.used_s = self._now_s()
            assert kept.connection is not None
            return kept.connection

    async def _open(self, user: str, password: str) -> homing.Connection:
        """Where there are no users anybody comes in without saying who: then only the guest may."""
        try:
            connection = await self._connect(None, None)
        except homing.ConnectError as error:
            if error.code != "login-required":
                raise
            return await self._connect(user, password)
        if self._exposed or (user, password) != GUEST:
            await connection.close()
            raise _USERS_REQUIRED if self._exposed else _NO_USERS
        return connection

    async def _connect(self, user: str | None, password: str | None) -> homing.Connection:
        return await homing.connect(
            self.url, user=user, password=password, reconnect=False, connect_timeout_ms=_ANSWERS_MS, product="homing-console"
        )

    def _digest(self, user: str, password: str) -> bytes:
        parts = (each.encode(errors="surrogatepass") for each in (user, password))
        return hashlib.blake2b(b"".join(len(part).to_bytes(4, "big") + part for part in parts), key=self._key).digest()

    async def close_unused(self) -> None:
        for digest, kept in list(self._kept.items()):
            if self._now_s() - kept.used_s >= KEPT_S and not kept.lock.locked():
                del self._kept[digest]
                await kept.close()

    async def close(self) -> None:
        for kept in self._kept.values():
            await kept.close()
        self._kept.clear()


class Brokers:
    """Those that one can log in to, by their addresses."""

    def __init__(self, all_links: Iterable[Links]) -> None:
        self._by_url = {each.url: each for each in all_links}

    @property
    def urls(self) -> list[str]:
        return list(self._by_url)

    def named(self, url: str) -> Links:
        """The first one where none is named. Raises Problem."""
        found = self._by_url.get(url or self.urls[0])
        if found is None:
            raise Problem("no-such-broker", "this console is not of that broker", f"name one of these: {', '.join(self.urls)}", 404)
        return found

    async def sweep(self) -> None:
        """Closes for ever what nobody has used for a while."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            for each in self._by_url.values():
                await each.close_unused()

    async def close(self) -> None:
        for each in self._by_url.values():
            await each.close()
