"""The log of a cluster in a real PostgreSQL: what it takes, keeps, and answers for."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from homing.broker.errors import Refused
from homing.broker.process.cluster import handing_over
from homing.journal.errors import JournalError
from homing.journal.replication import postgresql
from homing.journal.replication.copies import Part
from homing.journal.replication.entry import Entry, after, beginning
from homing.journal.replication.leader import Leader
from homing.journal.replication.log import LogAway, Standing
from homing.journal.replication.postgresql import Access, PostgresLog
from tests.postgresql import Postgres, begun, log_of, url_of
from tests.process import ROOT, HomingCommand, Server, free_port

#: Commits wait for a standby that is not there; and do not.
_NO_STANDBY = ("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
_NO_WAIT = ("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")


async def test_entries_join_in_their_epoch_behind_the_one_they_name_and_are_read_in_order(postgres: Postgres) -> None:
    async with log_of(postgres, "order") as log:
        at = start = await begun(log)
        assert await log.look() == Standing(0, 0, start.hash, "")
        assert await log.fence(Standing(0, 0, start.hash, ""), "a 1")
        entries = []
        for number in range(600):
            entry, following = after(at, 1, b"%d" % number)
            assert await log.append(at, following, entry)
            at = following
            entries.append(entry)
        read: list[bytes] = []
        while found := await log.read(len(read)):
            read += found
        assert read == entries
        entry, following = after(at, 1, b"again")
        for before, other in ((start, following), (at, following._replace(epoch=0)), (at, following._replace(number=9))):
            assert not await log.append(before, other, entry)
        assert not await log.fence(Standing(1, at.number - 1, at.hash, ""), "b 1")
        assert await log.fence(await log.look(), "b 1")
        assert not await log.append(at, following, entry), "the epoch is another"
        await log.release(1)
        assert (await log.look()).leader == "b 1"
        await log.release(2)
        assert await log.look() == Standing(2, 600, at.hash, "")


async def test_a_host_that_is_gone_does_not_keep_from_one_that_is_there(postgres: Postgres) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://homing@127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{postgres.port}/postgres"
        async with PostgresLog(Access(url, "hosts")) as log:
            await begun(log)


async def test_what_is_no_log_of_this_cell_is_refused_in_words(postgres: Postgres) -> None:
    async with log_of(postgres, "absent") as log:
        with pytest.raises(JournalError, match=r"log-no-cell: .* `homing cluster init`"):
            await log.begin(True)
        await begun(log)
        with pytest.raises(JournalError, match="log-cell-exists"):
            await log.make("another", beginning("another"))
        with pytest.raises(JournalError, match=r"log-unprotected: .*synchronous_standby_names = ''"):
            await log.begin(False)
        await log.report(5, 4)
        async with log_of(postgres, "absent", process="2") as other:
            with pytest.raises(JournalError, match="log-node-taken"):
                await other.report(0, 0)
        await log.leave()
        (member,) = (await log.describe()).members
        assert (member.node, member.process, member.applied, member.durable, member.addresses) == ("a", "", 5, 4, "{}")


class Node:
    """What a command says in the directory of a node, and its exit code."""

    def __init__(self, homing: HomingCommand) -> None:
        self._homing = homing

    def says(self, url: str, cell: str, *words: str) -> str:
        replication = f"{{url: '{url}', cell: {cell}, node: b, storage-is-replicated: true}}"
        text = f"native: {{port: {free_port()}}}\njournal: {{replication: {replication}, disk-reserve: 1MiB}}\n"
        (self._homing.directory / "broker.yaml").write_text(text)
        done = self._homing(*words)
        return f"{done.returncode} {done.stderr[done.stderr.rindex('error ') :]}"


@pytest.fixture
def node(homing: HomingCommand) -> Node:
    return Node(homing)


SERVE, STATUS, INIT = ["serve"], ["cluster", "status"], ["cluster", "init"]


async def test_what_the_database_says_no_to_is_said_with_what_to_do_by_nodes_and_commands(postgres: Postgres, node: Node) -> None:
    nowhere, weak = postgres.url.replace("/postgres", "/nowhere"), postgres.url.replace("homing@", "weak@")
    await postgres.sql("CREATE ROLE weak LOGIN")
    async with log_of(postgres, "refused") as log:
        await begun(log)
    for words in (SERVE, STATUS):
        said = node.says(nowhere, "refused", *words)
        assert re.match(r"1 error log-no-database  .*\"nowhere\" does not exist\.\n.* Make it \(createdb\)", said)
    for words in (SERVE, STATUS, INIT):
        said = node.says(weak, "refused", *words)
        assert re.match(r"1 error log-forbidden  .*permission denied for .*\n.* `homing cluster init --print` prints the SQL", said)
    await postgres.sql("GRANT SELECT, UPDATE ON homing_cell TO weak")
    assert "log-forbidden  The database refuses this user: it may not SELECT homing_member." in node.says(weak, "refused", *SERVE)


async def test_tables_that_lack_something_are_not_waited_for(postgres: Postgres, node: Node) -> None:
    async with log_of(postgres, "lacking") as log:
        await begun(log)
    for table, taken, back, what in (
        ("homing_member", "RENAME lost TO lost_before", "RENAME lost_before TO lost", 'column "lost"'),
        ("homing_log_lacking_1", "RENAME TO homing_log_gone", "", 'relation "homing_log_lacking_1"'),
    ):
        await postgres.sql(f"ALTER TABLE {table} {taken}")
        for words in (SERVE, STATUS):
            said = node.says(postgres.url, "lacking", *words)
            assert re.match(rf"1 error log-tables  .* of this Homing: {what} does not exist\.\n.*`homing cluster init --print`", said)
        if back:
            await postgres.sql(f"ALTER TABLE {table} {back}")


async def test_a_replica_is_not_the_database(postgres: Postgres, node: Node) -> None:
    """Where the primary is named, too, it is found."""
    replica = Postgres()
    try:
        replica.copy(postgres, "replica")
        replica.start()
        said = node.says(replica.url, "replica", *STATUS)
        assert re.match(r"1 error log-away  .* what answers is a replica; name the primary, too\n", said)
        async with log_of(replica, "replica") as log:
            with pytest.raises(LogAway, match="what answers is a replica"):
                await log.begin(True)
        assert "error log-no-cell" in node.says(url_of([replica.port, postgres.port]), "replica", *STATUS)
        assert "what answers is a replica" in node.says(url_of([replica.port, free_port()]), "replica", *STATUS)
    finally:
        replica.stop()


async def test_a_node_ends_at_an_entry_of_a_version_that_it_cannot_read(postgres: Postgres, node: Node) -> None:
    """Exit code 6: as for a journal of a newer Homing."""
    async with log_of(postgres, "newer") as log:
        at = await begun(log)
        assert await log.fence(await log.look(), "a 1")
        written, following = after(at, 1, b"")
        assert await log.append(at, following, Entry.unpack(written)._replace(version=9).pack())
    said = node.says(postgres.url, "newer", *SERVE)
    assert re.match(r"6 error log-newer  .* behind entry 0, it is of version 9, and .* up to 1\.\n.* Start a newer Homing", said)
    await postgres.sql("UPDATE homing_cell SET format = 9 WHERE cell = 'newer'")
    assert re.match(r"6 error log-newer  The cell newer is of format 9\.", node.says(postgres.url, "newer", *SERVE))


#: Run by each Python that starts: signals in the moment before a process begins anew, and in the moment after.
IN_THE_MOMENT = """\
import os, signal
begin_anew = os.execve
def execve(program, words, environment):
    os.kill(os.getpid(), signal.SIGHUP)
    begin_anew(program, words, {**environment, "ANEW": "1"})
os.execve = execve
if "ANEW" in os.environ:
    os.kill(os.getpid(), signal.SIGTERM)
"""


async def test_a_signal_is_not_lost_where_a_node_begins_anew(postgres: Postgres, tmp_path: Path) -> None:
    """A leader hands over to a node that stands in the database alone."""
    async with log_of(postgres, "anew", "b") as log:
        await begun(log)
        (tmp_path / "sitecustomize.py").write_text(IN_THE_MOMENT)
        replication = {"url": postgres.url, "cell": "anew", "node": "a", "storage-is-replicated": True}
        server = Server(tmp_path / "a", {"journal": {"replication": replication}})
        server.runner = ["env", f"PYTHONPATH={tmp_path}:{ROOT}"]
        try:
            await asyncio.to_thread(server.start)
            await log.report(0, 0)
            await postgres.sql("UPDATE homing_cell SET successor = 'b' WHERE cell = 'anew'")
            assert await asyncio.to_thread(server.wait) == 0
        finally:
            server.close()
    said = server.log_path.read_text()
    assert len(re.findall("INFO homing: starting: ", said)) == 2
    assert re.findall("stopping: SIGTERM|standby-not-reloaded", said.rpartition("starting: ")[2]) == [
        "stopping: SIGTERM",
        "standby-not-reloaded",
    ]


async def test_who_is_named_next_is_there_has_most_and_can_lead(postgres: Postgres) -> None:
    async with AsyncExitStack() as stack:
        a, b, c, d = [await stack.enter_async_context(log_of(postgres, "named", node)) for node in "abcd"]
        await begun(a)
        assert await a.name_successor(0) == "", "nobody leads"
        assert await a.fence(await a.look(), "a 1")
        for log, applied, behind_ms, hindrance in ((a, 9, 0, ""), (b, 5, 0, ""), (c, 6, 0, "disk"), (d, 7, 6000, "")):
            await log.report(applied, applied, behind_ms, hindrance)
        assert [await a.name_successor(1, node) for node in "acdx"] == [""] * 4
        assert await a.name_successor(0) == "", "of another epoch"
        assert await a.name_successor(1) == "b"
        assert (await a.look()).successor == "b"
        await a.serves(1)
        await a.release(1, 0.5)
        told = await a.describe()
        assert (told.led_s, told.gap_s) == (None, None), "nobody has served since"
        assert await d.fence(await d.look(), "d 1", 3.0)
        await d.serves(2)
        told = await d.describe()
        assert (told.standing.leader, told.standing.successor, told.before, told.why) == ("d 1", "", "a", "handed over")
        assert 0.5 < (told.gap_s or 0) < 30
        assert await b.fence(await b.look(), "b 1", 3.0)
        await b.serves(3)
        told = await b.describe()
        assert (told.before, told.why) == ("d", "died")
        assert 3.0 < (told.gap_s or 0) < 33
        await b.leave()
        await a.report(9, 9)
        assert await b.name_successor(3) == "a"


async def test_a_leader_that_cannot_be_asked_is_deposed_and_a_node_that_is_gone_is_removed(postgres: Postgres) -> None:
    async with log_of(postgres, "deposed") as a, log_of(postgres, "deposed", "b", "2") as b:
        at = await begun(a)
        assert await a.fence(await a.look(), "a 1")
        await a.report(0, 0)
        with pytest.raises(Refused, match="no other node is there"):
            await handing_over.look(b)
        await b.report(0, 0)
        taking = await handing_over.look(b)
        assert re.match(r"Node a leads, in epoch 1\. .* Node b takes the lead$", taking.said())

        async def lead() -> None:
            while (seen := await b.look()).successor != "b":  # noqa: ASYNC110 - the database is told
                await asyncio.sleep(0.01)
            assert await b.fence(seen, "b 2")
            await b.serves(3)

        change, _ = await asyncio.gather(handing_over.take_over(b, taking), lead())
        assert (change["leader"], change["before"], change["epoch"]) == ("b", "a", 3)
        assert (await b.describe()).why == "was deposed"
        with pytest.raises(JournalError, match="journal-fenced: Another node leads: b, in epoch 3"):
            await Leader(a, 1, at).append(b"late")
        with pytest.raises(Refused, match="somebody else took the lead"):
            await handing_over.take_over(b, taking)
        for node, why in (("b", "node b runs: it is leading"), ("a", "node a runs: it is standby"), ("x", "has no node x")):
            with pytest.raises(Refused, match=why):
                await handing_over.remove(b, node)
        await a.leave()
        assert await handing_over.remove(b, "a") == ["b"]


async def no_standby(postgres: Postgres) -> None:
    """From its return on each commit waits: the checkpointer tells the others of a standby's name, when it has its turn."""
    await postgres.sql(*_NO_STANDBY)
    waited = False
    while not waited:
        commit = asyncio.create_task(postgres.sql("SELECT pg_logical_emit_message(true, 'test', '')"))
        while not commit.done():
            await asyncio.sleep(0.02)
            waited |= bool(await postgres.ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
        await commit


async def waiting(postgres: Postgres, cell: str) -> int:
    """How many sessions of the server are in the middle of an entry."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE $1"
    return len(await postgres.ask(sql, f"%INSERT INTO homing_log_{cell}%"))


async def test_what_nobody_answered_for_is_proved_by_an_entry_behind_it(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit waits for a standby that is not there, and goes on waiting when its connection is cut; then it waits no longer."""
    async with log_of(postgres, "unknown") as log:
        at = await begun(log)
        assert await log.fence(await log.look(), "a 1")
        monkeypatch.setattr(postgresql, "_PATIENCE_S", 0.3)
        async with log_of(postgres, "unknown") as hasty:
            await no_standby(postgres)
            appending = asyncio.create_task(Leader(hasty, 1, at).append(b"sent"))
            try:
                while await waiting(postgres, "unknown") < 2:  # noqa: ASYNC110 - another process does it
                    await asyncio.sleep(0.05)
                assert not appending.done()
                assert (await log.look()).last == 0
            finally:
                await postgres.sql(*_NO_WAIT)
            at = await appending
        assert [Entry.unpack(entry).batch for entry in await log.read(0)] == [b"sent", b""]
        assert (await log.look()).ends_at(at)


async def test_a_driver_that_gives_up_by_itself_is_found(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: it cancels the commit, and then all see what no standby has."""
    fetch = asyncpg.Connection.fetch

    async def gives_up(connection: asyncpg.Connection, sql: str, *values: object) -> Any:
        try:
            return await fetch(connection, sql, *values, timeout=0.2 if "INSERT INTO homing_log" in sql else None)
        except TimeoutError:
            await asyncio.sleep(0.2)  # the server is asked to cancel, unless the connection is cut at once
            raise

    async with log_of(postgres, "planted") as log:
        at = await begun(log)
        assert await log.fence(await log.look(), "a 1")
        async with log_of(postgres, "planted") as hasty:
            monkeypatch.setattr(asyncpg.Connection, "fetch", gives_up)
            await no_standby(postgres)
            appending = asyncio.create_task(Leader(hasty, 1, at).append(b"sent"))
            try:
                async with asyncio.timeout(20):
                    while (await log.look()).last == 0:  # noqa: ASYNC110 - another process does it
                        await asyncio.sleep(0.05)
                assert not appending.done()
            finally:
                await postgres.sql(*_NO_WAIT)
            await appending


async def test_a_commit_that_was_told_to_wait_no_longer_is_no_answer(postgres: Postgres) -> None:
    async with log_of(postgres, "cancelled") as log:
        at = await begun(log)
        assert await log.fence(await log.look(), "a 1")
        entry, following = after(at, 1, b"x")
        await no_standby(postgres)
        appending = asyncio.create_task(log.append(at, following, entry))
        try:
            cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%log_cancelled%'"
            while not appending.done():
                await postgres.sql(cancel)
                await asyncio.sleep(0.05)
        finally:
            await postgres.sql(*_NO_WAIT)
        with pytest.raises(LogAway, match="synchronous replication"):
            appending.result()
        assert (await log.look()).ends_at(following), "it is there, and nowhere else"


async def test_what_is_read_has_no_hole_where_a_table_ends(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table with more entries than are read at a time the rest comes before those of the next."""
    monkeypatch.setattr(postgresql, "_READ_ENTRIES", 3)
    monkeypatch.setattr(postgresql, "_TABLE_BYTES", 1)
    async with log_of(postgres, "holes") as log:
        leader = Leader(log, 1, await begun(log))
        assert await log.fence(await log.look(), "a 1")
        for number in range(10):
            await leader.append(b"%d" % number)
            if number == 6:
                await log.report(7, 7)
                await log.trim(1, 1)
        read: list[bytes] = []
        while found := await log.read(len(read)):
            read += found
        assert [Entry.unpack(entry).batch for entry in read] == [b"%d" % number for number in range(10)]


async def test_tables_take_turns_once_enough_nodes_have_their_entries_on_disk(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "_TABLE_BYTES", 1)
    async with log_of(postgres, "turns") as log, log_of(postgres, "turns", "b") as other:
        start = await begun(log)
        assert await log.fence(await log.look(), "a 1")
        leader = Leader(log, 1, start)
        first = []
        for number in range(1, 9):
            await leader.append(b"%d" % number)
            await log.report(number, number)
            await other.report(number, 3 if number < 8 else 0)
            await log.trim(1, 2)
            first.append((await log.read(0))[0])
        # Of each table that was begun again all entries were the other's, too: it has three of them on disk.
        numbers = [int.from_bytes(entry[12:20], "big") for entry in first]
        assert numbers == sorted(numbers)
        assert 1 < numbers[-1] <= 4
        # Whoever is given a copy needs what came behind it, as long as he lives.
        await other.copies.want(0)
        (asking,) = await log.copies.wanted()
        await log.copies.hold(asking, numbers[-1] - 1)
        kept = await log.read(0)
        for number in range(9, 12):
            await leader.append(b"%d" % number)
            await other.report(number, number)
            await log.report(number, number)
            await log.trim(1, 2)
        assert kept == (await log.read(0))[: len(kept)]
        await log.copies.give(asking, Part("a copy", 5, b"whole"), 1)
        assert await other.copies.part(0) == Part("a copy", 5, b"whole")
        assert await other.copies.part(5) is None
        await other.copies.end()
        await other.trim(0, 1)  # not of this epoch
        assert len(await log.read(numbers[-1] - 1)) == 12 - numbers[-1]
        # Whose producers wait writes little, and has as few tables as it can.
        monkeypatch.setattr(postgresql, "_TABLE_BYTES", 1 << 30)
        await other.report(11, 11)
        await log.trim(1, 2)
        assert len(await log.read(0)) == 12 - numbers[-1]
        for _ in range(3):
            await log.trim(1, 2, at_once=True)
        assert await log.read(0) == []
