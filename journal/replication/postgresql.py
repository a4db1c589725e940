"""The replicated log in PostgreSQL: a row for the cell, and a statement that compares it, changes it and adds the entry.

A commit that is cancelled while it waits for PostgreSQL's standby is one that the standby lacks, and it answers success with a warning. So
nothing here is ever cancelled, and no timeout of the driver or the server is set: patience ends by cutting the connection. What was asked
before a warning, an error or a cut may have happened or not: LogAway. ``asyncpg`` belongs to the extra ``homing[cluster]``.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ..commit.packed_batch import VERSION
from ..errors import JournalError
from .cell import HEARD_S, Cell, Seen
from .copies import HELD, PostgresCopies
from .copies import SCHEMA as COPIES
from .entry import Position
from .log import LogAway, Standing

#: Of the tables.
FORMAT: Final = 1
#: Entries are read up to so many, or so many bytes and one, at a time.
_READ_ENTRIES: Final = 256
_READ_BYTES: Final = 8 << 20
#: How long an answer is waited for before the connection is cut: more each time it was cut for that, which leaves a session there.
_PATIENCE_S: Final = 4.0
_LONGEST_S: Final = 64.0
#: What fails so often answers again where it takes an entry.
_FAILED_S: Final = 3.0
_TABLES: Final = 3
_SCHEMA: Final = """\
CREATE TABLE IF NOT EXISTS homing_cell (
    cell text PRIMARY KEY, format int NOT NULL, broker_id text NOT NULL, epoch bigint NOT NULL, last bigint NOT NULL, hash bytea NOT NULL,
    leader text NOT NULL, since timestamptz, log int NOT NULL, secret bytea NOT NULL, successor text NOT NULL DEFAULT '',
    before text NOT NULL DEFAULT '', why text NOT NULL DEFAULT '', ended timestamptz, fail_overs bigint NOT NULL DEFAULT 0,
    lost boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS homing_member (
    cell text, node text, process text NOT NULL, addresses text NOT NULL, reads int NOT NULL, applied bigint NOT NULL,
    durable bigint NOT NULL, seen timestamptz NOT NULL, behind_ms bigint NOT NULL, version text NOT NULL,
    hindrance text NOT NULL, lost bytea, PRIMARY KEY (cell, node)
) WITH (fillfactor = 50);
"""
_LOG: Final = """\
CREATE TABLE IF NOT EXISTS homing_log_{cell}_{each} (number bigint PRIMARY KEY, epoch bigint NOT NULL, entry bytea NOT NULL);
ALTER TABLE homing_log_{cell}_{each} ALTER entry SET STORAGE EXTERNAL;
"""
#: A table is begun after so many bytes in the one before.
_TABLE_BYTES: Final = 64 << 20
_TURN: Final = """\
DO $$ BEGIN
    PERFORM set_config('lock_timeout', '1s', true);
    PERFORM 1 FROM homing_cell WHERE cell = '{cell}' AND epoch = {epoch} AND log = {table} FOR UPDATE;
    IF FOUND AND coalesce((SELECT max(number) FROM homing_log_{cell}_{following}), 0) <= {up_to} THEN
        TRUNCATE homing_log_{cell}_{following};
        UPDATE homing_cell SET log = {following} WHERE cell = '{cell}';
    END IF;
END $$"""
#: Others keep what is theirs by the epoch: it is a later one than any that was.
_RESEED: Final = """\
DO $$ BEGIN
    UPDATE homing_cell SET epoch = {epoch}, last = {at.number}, hash = '\\x{at_hash}', log = 0, leader = '', successor = '', lost = false,
        since = NULL, before = CASE WHEN leader = '' THEN before ELSE split_part(leader, ' ', 1) END, why = 'lost its log',
        ended = clock_timestamp() WHERE cell = '{cell}' AND epoch = {seen.epoch} AND last = {seen.last} AND hash = '\\x{seen_hash}';
    IF FOUND THEN
        TRUNCATE {tables};
        UPDATE homing_member SET lost = NULL WHERE cell = '{cell}';
    END IF;
END $$"""
#: 244 bits of the secret are chance.
_CELL: Final = """\
INSERT INTO homing_cell (cell, format, broker_id, epoch, last, hash, leader, log, secret)
VALUES ('{cell}', {format}, '{broker_id}', {at.epoch}, {at.number}, '\\x{hash}', '', 0,
    sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea));
"""
#: What a node does with them, and what of that it may not.
_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")
_LACKING: Final = "SELECT * FROM unnest($1::text[]) AS t, unnest($2::text[]) AS r WHERE NOT has_table_privilege(t, r)"
_SHARED: Final = ("homing_cell", "homing_member", "homing_copy")
_OWN: Final = (
    "`homing cluster init --print` prints the SQL for whoever may make tables; the user of journal.replication.url has to own them."
)
_STANDING: Final = ", ".join(Standing._fields)
#: What a member says of itself.
_SAID: Final = Seen._fields[:-2]
#: That a member is there, and may lead.
_SEEN: Final = f"(process <> '' AND seen > clock_timestamp() - interval '{HEARD_S} seconds')"
_LEADS: Final = "split_part(leader, ' ', 1)"
#: Who lacks something for longer is no successor.
_REACH_MS: Final = 5_000


def schema(cell: str, broker_id: str, at: Position) -> str:
    """The SQL that makes a cell: its log is empty and begins behind ``at``, and nobody leads."""
    logs = "".join(_LOG.format(cell=cell, each=each) for each in range(_TABLES))
    return _SCHEMA + COPIES + logs + _CELL.format(cell=cell, format=FORMAT, broker_id=broker_id, at=at, hash=at.hash.hex())


class Access(NamedTuple):
    """``url``: without a password. The files: None where there is none."""

    url: str
    cell: str
    password_file: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class Member(NamedTuple):
    """``node``: its name; ``process``: what no other process of that name has. ``addresses``: of its listeners, by protocol; ``version``:
    of Homing. Without a process it only asks."""

    node: str = ""
    process: str = ""
    addresses: str = "{}"
    version: str = ""


_NOBODY: Final = Member()


class _Line:
    """One connection, for one question at a time; made when it is needed, and made anew after any trouble."""

    def __init__(self, access: Access, program: str) -> None:
        self._access = access
        self._program = program
        self._one = asyncio.Lock()
        self._connection: Any = None
        self._patience_s = _PATIENCE_S
        self._warned = ""

    async def ask(self, sql: str, *arguments: object) -> list[Any]:
        """The rows. Raises LogAway."""
        async with self._one:
            asking = asyncio.get_running_loop().create_task(self._ask(sql, arguments))
            asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
            try:
                await asyncio.wait({asking}, timeout=self._patience_s)
            finally:
                if not asking.done():
                    self.cut(asking)
            if not asking.done():
                self._patience_s = min(_LONGEST_S, 2 * self._patience_s)
                raise LogAway("it did not answer in time")
            rows = asking.result()
            self._patience_s = _PATIENCE_S
            return rows

    async def _ask(self, sql: str, arguments: tuple[object, ...]) -> list[Any]:
        self._warned = ""
        try:
            if self._connection is None:
                self._connection = await self._connect()
            rows: list[Any] = await self._connection.fetch(sql, *arguments)
        except _troubles() as error:
            self.cut()
            raise LogAway(_said(error)) from error
        if self._warned:
            self.cut()
            raise LogAway(self._warned)
        return rows

    async def _connect(self) -> Any:
        """To whichever host can be written to. All are tried at once: a machine that is gone does not even refuse."""
        tries = [asyncio.ensure_future(self._reach(url)) for url in _each_host(self._access.url)]
        connection: Any = None
        refused: Exception = OSError("the URL names no host")
        try:
            for ended in asyncio.as_completed(tries):
                try:
                    connection = await ended
                    break
                except _troubles() as error:
                    # What a server says tells more than that another did not answer.
                    refused = error if isinstance(refused, OSError) else refused
        finally:
            for each in tries:
                each.cancel()
            for found in await asyncio.gather(*tries, return_exceptions=True):
                if found is not connection and not isinstance(found, BaseException):
                    found.terminate()
        if connection is None:
            raise refused
        connection.add_log_listener(self._listen)
        return connection

    async def _reach(self, url: str) -> Any:
        import asyncpg

        access = self._access
        return await asyncpg.connect(
            url,
            password=None if access.password_file is None else access.password_file.read_text().rstrip("\n"),
            ssl=_context(access),
            timeout=_PATIENCE_S,
            server_settings={"application_name": self._program},
            target_session_attrs="read-write",
        )

    def _listen(self, _: object, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._warned = str(message.message)

    def cut(self, asking: asyncio.Task[Any] | None = None) -> None:
        """What was asked goes on, where it goes on."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        elif asking is not None:
            asking.cancel()


def _troubles() -> tuple[type[Exception], ...]:
    """What says that nobody knows what became of a question, or that a server was not reached."""
    import asyncpg

    return asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError


def _said(error: Exception) -> str:
    import asyncpg

    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "none of the hosts of journal.replication.url can be written to: what answers is a replica; name the primary, too"
    return "; ".join(str(error).splitlines()) or type(error).__name__


def _each_host(url: str) -> list[str]:
    scheme, netloc, *rest = urlsplit(url)
    user, at, hosts = netloc.rpartition("@")
    return [urlunsplit((scheme, f"{user}{at}{host}", *rest)) for host in hosts.split(",")]


def _context(access: Access) -> ssl.SSLContext | None:
    """None: as the URL says."""
    if access.ca is None and access.certificate is None:
        return None
    context = ssl.create_default_context(cafile=access.ca)
    if access.certificate is not None:
        context.load_cert_chain(access.certificate, access.key)
    return context


class PostgresLog:
    """See log.ReplicatedLog. Used on one loop; ``async with`` cuts it at the end. ``on_away`` is called with why it did not answer, and
    with "" when it does again.

    Raises JournalError ``log-no-driver``.
    """

    def __init__(self, access: Access, member: Member = _NOBODY, on_away: Callable[[str], None] = lambda why: None) -> None:
        if find_spec("asyncpg") is None:
            raise JournalError("log-no-driver", "A replicated log needs asyncpg, which is not installed.", "pip install 'homing[cluster]'")
        self._cell = access.cell
        self._member = member
        self._on_away = on_away
        self._away = ""
        #: When it last did not answer.
        self._failed_s = -_FAILED_S
        name = f"homing {access.cell} {member.node}"
        #: What changes the log waits for the server's standby; what looks does not wait for that.
        self._writing, self._looking = _Line(access, name), _Line(access, f"{name} looks")
        self._copying = _Line(access, f"{name} copies")
        self.copies = PostgresCopies(self._copying.ask, access.cell, member.node, member.process)
        #: Which of the tables entries are added to, and how many bytes since it was begun.
        self._table, self._bytes = 0, 0
        self._tables = tables = [f"homing_log_{access.cell}_{each}" for each in range(_TABLES)]
        self._append_sql = [
            "WITH l AS (UPDATE homing_cell SET last = last + 1, hash = $4 WHERE cell = $5 AND epoch = $2 AND last = $1 - 1 AND hash = $6"
            f" RETURNING last) INSERT INTO {table} SELECT last, $2, $3 FROM l RETURNING number"
            for table in tables
        ]
        self._size_sql = " + ".join(f"pg_total_relation_size('{table}')" for table in tables)
        found = " UNION ALL ".join(
            f"(SELECT number, entry, octet_length(entry) AS size FROM {table} WHERE number > $1 ORDER BY number LIMIT {_READ_ENTRIES})"
            for table in tables
        )
        # As many of all as of each: what is behind those that a table has more of is not next.
        found = f"SELECT * FROM ({found}) AS each ORDER BY number LIMIT {_READ_ENTRIES}"
        summed = f"SELECT number, entry, sum(size) OVER (ORDER BY number) - size AS before FROM ({found}) AS found"
        self._read_sql = f"SELECT entry FROM ({summed}) AS summed WHERE before < {_READ_BYTES} ORDER BY number"

    async def _ask(self, line: _Line, sql: str, *arguments: object) -> list[Any]:
        try:
            rows = await line.ask(sql, *arguments)
        except LogAway as away:
            if missing := await self._missing(away):
                raise missing from away
            self._say(str(away))
            self._failed_s = time.monotonic()
            raise
        # Where its disk is full it can be read all the while.
        if line is self._writing or time.monotonic() > self._failed_s + _FAILED_S:
            self._say("")
        return rows

    async def _missing(self, away: LogAway) -> JournalError | None:
        """What is not there, and does not come by waiting. Raises LogAway."""
        import asyncpg

        if not isinstance(away.__cause__, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError):
            return None
        there = "homing_cell" not in str(away) and await self._looking.ask("SELECT 1 FROM homing_cell WHERE cell = $1", self._cell)
        if not there and isinstance(away.__cause__, asyncpg.UndefinedTableError):
            return no_cell(self._cell)
        fix = "`homing cluster init --print` prints the tables as they have to be: bring back what was taken from them."
        return JournalError("log-tables", f"The tables of the cell {self._cell} are not those of this Homing: {away}.", fix)

    def _say(self, away: str) -> None:
        if bool(away) != bool(self._away):
            self._away = away
            self._on_away(away)

    async def look(self) -> Standing:
        rows = await self._ask(self._looking, f"SELECT {_STANDING} FROM homing_cell WHERE cell = $1", self._cell)
        if not rows:
            raise no_cell(self._cell)
        return Standing(*rows[0])

    async def append(self, before: Position, at: Position, entry: bytes) -> bool:
        values = (at.number, at.epoch, entry, at.hash, self._cell, before.hash)
        self._bytes += len(entry)
        return bool(await self._ask(self._writing, self._append_sql[self._table], *values))

    async def read(self, after: int) -> list[bytes]:
        return [entry for (entry,) in await self._ask(self._looking, self._read_sql, after)]

    async def fence(self, seen: Standing, leader: str, silent_s: float = 0.0) -> bool:
        told = _unless_told("'died'", "clock_timestamp() - make_interval(secs => $6)", fail_overs="fail_overs + 1")
        sql = (
            f"UPDATE homing_cell SET epoch = epoch + 1, leader = $1, successor = '', since = NULL, {told}"
            " WHERE cell = $2 AND epoch = $3 AND last = $4 AND hash = $5 AND NOT lost RETURNING log"
        )
        rows = await self._ask(self._writing, sql, leader, self._cell, seen.epoch, seen.last, seen.hash, silent_s)
        for (table,) in rows:
            self._table = table
        return bool(rows)

    async def serves(self, epoch: int) -> None:
        """Whoever leads in this epoch serves by now."""
        sql = "UPDATE homing_cell SET since = clock_timestamp() WHERE cell = $1 AND epoch = $2"
        await self._ask(self._looking, sql, self._cell, epoch)

    async def release(self, epoch: int, ended_s: float = 0.0) -> None:
        sql = (
            f"UPDATE homing_cell SET leader = '', since = NULL, before = {_LEADS},"
            " why = CASE WHEN successor = '' THEN 'stopped' ELSE 'handed over' END,"
            " ended = clock_timestamp() - make_interval(secs => $3) WHERE cell = $1 AND epoch = $2 AND leader <> ''"
        )
        await self._ask(self._writing, sql, self._cell, epoch, ended_s)

    async def lose(self) -> None:
        await self._ask(self._writing, "UPDATE homing_cell SET lost = true WHERE cell = $1", self._cell)

    async def name_successor(self, epoch: int, node: str = "") -> str:
        """That node is to lead next, or the best there is: whoever leads in this epoch hands over when it sees it. Returns its name; "":
        it is not there, or far behind, or hindered, or leads, or the epoch is another."""
        best = (
            f"SELECT m.node FROM homing_member m JOIN homing_cell c USING (cell) WHERE cell = $1 AND {_SEEN} AND m.node <> {_LEADS}"
            f" AND behind_ms < {_REACH_MS} AND hindrance = '' AND ($3 = '' OR m.node = $3) ORDER BY applied DESC LIMIT 1"
        )
        sql = (
            f"UPDATE homing_cell SET successor = best.node FROM ({best}) AS best"
            " WHERE cell = $1 AND epoch = $2 AND leader <> '' RETURNING successor"
        )
        rows = await self._ask(self._writing, sql, self._cell, epoch, node)
        return rows[0][0] if rows else ""

    async def depose(self, epoch: int, node: str) -> bool:
        """Whoever leads in that epoch is fenced, and ``node`` is to lead. False: the epoch is another."""
        told = _unless_told("'was deposed'", "clock_timestamp()")
        sql = (
            f"UPDATE homing_cell SET epoch = epoch + 1, leader = '', successor = $3, since = NULL, {told}"
            " WHERE cell = $1 AND epoch = $2 RETURNING 1"
        )
        return bool(await self._ask(self._writing, sql, self._cell, epoch, node))

    async def remove(self, node: str) -> bool:
        """What that member has on disk counts no longer. False: it is there, or there is none."""
        sql = f"DELETE FROM homing_member WHERE cell = $1 AND node = $2 AND NOT {_SEEN} RETURNING 1"
        return bool(await self._ask(self._writing, sql, self._cell, node))

    async def trim(self, epoch: int, copies: int, at_once: bool = False) -> None:
        """Begins the next table, of which nothing is needed any more: so many nodes have all of it on disk, and none that is given a copy
        has to go on with it. Else it is left for later. ``at_once``: producers wait for it, and who is given a copy may begin again."""
        if self._bytes < _TABLE_BYTES and not at_once:
            return
        have = "SELECT durable FROM homing_member WHERE cell = $1 ORDER BY durable DESC OFFSET $2 LIMIT 1"
        held = "NULL" if at_once else HELD
        ((up_to,),) = await self._ask(self._looking, f"SELECT least(coalesce(({have}), 0), ({held}))", self._cell, copies - 1)
        following = (self._table + 1) % _TABLES
        # One statement: who is stopped in the middle of it holds no lock.
        await self._ask(self._writing, _TURN.format(cell=self._cell, epoch=epoch, table=self._table, following=following, up_to=up_to))
        ((self._table,),) = await self._ask(self._looking, "SELECT log FROM homing_cell WHERE cell = $1", self._cell)
        self._bytes = 0

    async def report(self, applied: int, durable: int, behind_ms: int = 0, hindrance: str = "") -> None:
        """This node's row; whether the log lacks what it has is told anew. ``behind_ms``: for how long it has lacked something.
        ``hindrance``: see leadership.Hindrance.

        Raises JournalError ``log-node-taken``: another process has the name, and was there a moment ago.
        """
        row = (self._cell, *self._member, VERSION, applied, durable, behind_ms, hindrance)
        columns, places = ", ".join(["cell", *_SAID]), ", ".join(f"${place}" for place in range(1, len(row) + 1))
        changed = ", ".join(f"{name} = excluded.{name}" for name in [*_SAID[1:], "seen"])
        sql = (
            f"INSERT INTO homing_member ({columns}, seen) VALUES ({places}, clock_timestamp()) ON CONFLICT (cell, node) DO UPDATE SET"
            f" {changed}, lost = NULL WHERE homing_member.process = excluded.process"
            f" OR homing_member.process = '' OR homing_member.seen < clock_timestamp() - interval '{HEARD_S} seconds' RETURNING 1"
        )
        if not await self._ask(self._looking, sql, *row):
            raise JournalError(
                "log-node-taken",
                f"Another process is node {self._member.node} of the cell {self._cell}.",
                "Give each node a name of its own (journal.replication.node).",
            )

    async def tell_lost(self, at: Position) -> None:
        """The log lacks what this node has, up to this entry, on disk."""
        await self.report(at.number, at.number)
        sql = "UPDATE homing_member SET lost = $3 WHERE cell = $1 AND node = $2"
        await self._ask(self._looking, sql, self._cell, self._member.node, at.pack())

    async def reseed(self, seen: Standing, epoch: int, at: Position) -> bool:
        """The log begins anew behind this entry, in that epoch, and nobody leads; unless it is not as it was seen any more."""
        hashes = {"at_hash": at.hash.hex(), "seen_hash": seen.hash.hex()}
        tables = ", ".join(self._tables)
        await self._ask(self._writing, _RESEED.format(cell=self._cell, seen=seen, epoch=epoch, at=at, tables=tables, **hashes))
        now = await self.look()
        return now.epoch >= epoch

    async def leave(self) -> None:
        """Another process may take the name at once."""
        sql = "UPDATE homing_member SET process = '' WHERE cell = $1 AND node = $2 AND process = $3"
        await self._ask(self._looking, sql, self._cell, self._member.node, self._member.process)

    async def begin(self, storage_is_replicated: bool) -> str:
        """The cell's broker_id, once the database is one that keeps what it commits. Raises LogAway, and JournalError ``log-no-cell``,
        ``log-no-database``, ``log-tables``, ``log-newer``, ``log-forbidden`` and ``log-unprotected``."""
        try:
            rows = await self._ask(self._looking, "SELECT format, broker_id FROM homing_cell WHERE cell = $1", self._cell)
            if not rows:
                raise no_cell(self._cell)
            ((found, broker_id),) = rows
            if found > FORMAT:
                raise JournalError("log-newer", f"The cell {self._cell} is of format {found}.", "Start a newer Homing on this node.")
            for table, right in await self._ask(self._looking, _LACKING, [*_SHARED, *self._tables], _RIGHTS):
                raise _forbidden(f"it may not {right} {table}", _OWN)
        except LogAway as away:
            raise refusal(away) or away from away
        if not storage_is_replicated:
            names = ("synchronous_commit", "synchronous_standby_names")
            ((commit, standbys),) = await self._ask(self._writing, "SELECT current_setting($1), current_setting($2)", *names)
            if commit not in ("on", "remote_apply") or not standbys:
                raise _unprotected(commit, standbys)
        return str(broker_id)

    async def secret(self) -> bytes:
        """Of the cell: by it nodes know each other."""
        return bytes((await self._ask(self._looking, "SELECT secret FROM homing_cell WHERE cell = $1", self._cell))[0][0])

    async def describe(self) -> Cell:
        """The cell and its members."""
        cell = (
            f"SELECT {_STANDING}, broker_id, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,"
            " extract(epoch FROM clock_timestamp() - since)::float8, before, why, extract(epoch FROM since - ended)::float8, fail_overs,"
            f" {self._size_sql} FROM homing_cell WHERE cell = $1"
        )
        members = (
            f"SELECT {', '.join(_SAID)}, lost, extract(epoch FROM clock_timestamp() - seen)::float8 FROM homing_member WHERE cell = $1"
        )
        sql = f"SELECT cell.*, member.* FROM ({members}) AS member RIGHT JOIN ({cell}) AS cell ON true ORDER BY node"
        rows = [tuple(row) for row in await self._ask(self._looking, sql, self._cell)]
        if not rows:
            raise no_cell(self._cell)
        begins, ends = len(Standing._fields), -len(Seen._fields)
        seen = tuple(Seen(*row[ends:]) for row in rows if row[ends] is not None)
        return Cell._make([Standing(*rows[0][:begins]), *rows[0][begins:ends], seen])

    async def make(self, broker_id: str, at: Position) -> None:
        """See ``schema``. Raises LogAway, and JournalError ``log-cell-exists`` and as ``refusal`` does."""
        import asyncpg

        try:
            await self._ask(self._writing, f"DO $homing$ BEGIN {schema(self._cell, broker_id, at)} END $homing$")
        except LogAway as away:
            if isinstance(away.__cause__, asyncpg.UniqueViolationError):
                fix = "Start the nodes; `homing cluster status` shows it."
                raise JournalError("log-cell-exists", f"There is a cell {self._cell} already.", fix) from away
            raise refusal(away) or away from away

    async def __aenter__(self) -> PostgresLog:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Its connections; what is asked next makes others."""
        self._writing.cut()
        self._looking.cut()
        self._copying.cut()


def _unless_told(why: str, ended: str, **more: str) -> str:
    """What the row tells of whoever led; where nobody does any more, it was told."""
    now = {"before": _LEADS, "why": why, "ended": ended, **more}
    return ", ".join(f"{name} = CASE WHEN leader = '' THEN {name} ELSE {value} END" for name, value in now.items())


def no_cell(cell: str) -> JournalError:
    return JournalError(
        "log-no-cell", f"The database has no cell {cell}.", "Make it once, with `homing cluster init`; or see to journal.replication.cell."
    )


def refusal(away: LogAway) -> JournalError | None:
    """What the database said no to, where it answered and somebody has to see to it: ``log-no-database``, ``log-forbidden``. While a node
    runs it goes on asking all the same: rights that were taken come back."""
    import asyncpg

    match away.__cause__:
        case asyncpg.InvalidCatalogNameError():
            fix = "Make it (createdb), or see to journal.replication.url."
            return JournalError("log-no-database", f"The server refuses: {away}.", fix)
        case asyncpg.InvalidAuthorizationSpecificationError():
            return _forbidden(
                str(away), "See to the user of journal.replication.url, to its password-file, and to the server's pg_hba.conf."
            )
        case asyncpg.InsufficientPrivilegeError():
            return _forbidden(str(away), _OWN)
    return None


def _forbidden(said: str, fix: str) -> JournalError:
    return JournalError("log-forbidden", f"The database refuses this user: {said}.", fix)


def _unprotected(commit: str, standbys: str) -> JournalError:
    return JournalError(
        "log-unprotected",
        "The database would answer for commits that it has on one machine alone"
        f" (synchronous_commit = {commit}, synchronous_standby_names = '{standbys}').",
        "Set both for a synchronous standby (docs/cluster.md), or `storage-is-replicated: true` where the disk below is.",
    )
