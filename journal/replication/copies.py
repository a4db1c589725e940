"""A node's copy of the journal on its way to another node, through the database of their log, a part at a time.

Whoever needs one says from which byte on, in a row of its own; the leader gives the part behind it. So no address, port, certificate or
password has a part in it, and whoever may read the log may read this. The table is not logged: PostgreSQL writes these bytes to no
write-ahead log and to no standby, and where it restarts both sides begin again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

SCHEMA: Final = """\
CREATE UNLOGGED TABLE IF NOT EXISTS homing_copy (
    cell text, node text, process text NOT NULL, place bigint NOT NULL, asked timestamptz NOT NULL, holds bigint, source text NOT NULL,
    given bigint NOT NULL, size bigint NOT NULL, content bytea NOT NULL, why text NOT NULL, PRIMARY KEY (cell, node)
);
ALTER TABLE homing_copy ALTER content SET STORAGE EXTERNAL;
"""
#: Of a cell, those whose process lives.
_ASKING: Final = (
    "homing_copy JOIN homing_member USING (cell, node, process) WHERE cell = $1 AND seen > clock_timestamp() - interval '10 seconds'"
)
#: Up to which entry the log may go: nodes that are given a copy need what came behind it.
HELD: Final = f"SELECT min(holds) FROM {_ASKING}"
#: For each byte that was given one that is gone stays in the table.
_VACUUM_BYTES: Final = 64 << 20


class Wanted(NamedTuple):
    """A ``process`` of ``node`` needs a copy, from byte ``place`` on. ``waits``: it was not given that part yet."""

    node: str
    process: str
    place: int
    waits: bool


class Part(NamedTuple):
    """``source``: another for each copy that is made. ``size``: of the whole, in bytes. ``why``: why there is none to give, else empty."""

    source: str
    size: int
    content: bytes
    why: str = ""


class Copies(Protocol):
    """Each function raises LogAway."""

    async def want(self, place: int) -> None:
        """This node needs a copy from that byte on."""

    async def part(self, place: int) -> Part | None:
        """What was given for it; None: nothing yet."""

    async def end(self) -> None:
        """This node needs no copy any more."""

    async def wanted(self) -> list[Wanted]:
        """Of nodes that live, in the order in which they asked first."""

    async def hold(self, to: Wanted, number: int) -> None:
        """The log keeps what is behind this entry, as long as that node needs a copy."""

    async def give(self, to: Wanted, part: Part, number: int) -> None:
        """``number``: see ``hold``."""


class PostgresCopies:
    """See Copies. ``ask``: of a connection of its own."""

    def __init__(self, ask: Callable[..., Awaitable[list[Any]]], cell: str, node: str, process: str) -> None:
        self._ask = ask
        self._cell = cell
        self._me = (cell, node, process)
        self._given_bytes = 0

    async def want(self, place: int) -> None:
        sql = (
            "INSERT INTO homing_copy VALUES ($1, $2, $3, $4, clock_timestamp(), NULL, '', -1, 0, '', '') ON CONFLICT (cell, node)"
            " DO UPDATE SET process = $3, place = $4, given = -1, content = ''"
        )
        await self._ask(sql, *self._me, place)

    async def part(self, place: int) -> Part | None:
        sql = (
            "SELECT source, size, content, why FROM homing_copy WHERE cell = $1 AND node = $2 AND process = $3"
            " AND place = $4 AND given = $4"
        )
        rows = await self._ask(sql, *self._me, place)
        return Part(*rows[0]) if rows else None

    async def end(self) -> None:
        await self._ask("DELETE FROM homing_copy WHERE cell = $1 AND node = $2", *self._me[:2])

    async def wanted(self) -> list[Wanted]:
        sql = f"SELECT node, process, place, given <> place FROM {_ASKING} ORDER BY asked"
        return [Wanted(*row) for row in await self._ask(sql, self._cell)]

    async def hold(self, to: Wanted, number: int) -> None:
        sql = "UPDATE homing_copy SET holds = $4 WHERE cell = $1 AND node = $2 AND process = $3"
        await self._ask(sql, self._cell, to.node, to.process, number)

    async def give(self, to: Wanted, part: Part, number: int) -> None:
        sql = (
            "UPDATE homing_copy SET given = place, source = $5, size = $6, content = $7, why = $8, holds = $9"
            " WHERE cell = $1 AND node = $2 AND process = $3 AND place = $4"
        )
        await self._ask(sql, self._cell, *to[:3], *part, number)
        self._given_bytes += len(part.content)
        if self._given_bytes >= _VACUUM_BYTES:
            self._given_bytes = 0
            await self._ask("VACUUM homing_copy")
