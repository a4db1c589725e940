"""A broker on several nodes, by a PostgreSQL that keeps its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pika
import pytest
from pika.exceptions import AMQPConnectionError

import homing
from homing.broker.errors import Refused
from homing.broker.process import handing_over
from homing.broker.process.beginning import begin, statements
from homing.broker.protocols.codec_proxy import Peer, header
from homing.journal.errors import JournalError
from homing.journal.first_node import FirstNode
from homing.journal.follower import Follower
from homing.journal.journal import Journal, JournalOptions
from homing.journal.replication import postgresql
from homing.journal.replication.copies import Part
from homing.journal.replication.entry import Entry, Position, after, beginning
from homing.journal.replication.leader import Leader
from homing.journal.replication.leadership import Watch, follow_until_leading
from homing.journal.replication.log import LogAway, Standing
from homing.journal.replication.postgresql import Access, Member, PostgresLog
from tests.amqp_wire import Wire
from tests.certificates import Authority
from tests.faults.kill_loop.failing_over import PLAIN, FailOvers
from tests.faults.kill_loop.loop import Options
from tests.postgresql import Postgres
from tests.process import ROOT, Server, free_port, wait_until
from tests.unit.journal_support import NOW_MS, OPTIONS, opened, queue, send, sequences

#: Commits wait for a standby that is not there; and do not.
_NO_STANDBY = ("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
_NO_WAIT = ("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
_CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    try:
        yield server.start()
    finally:
        server.stop()


@asynccontextmanager
async def log_of(postgres: Postgres, cell: str, node: str = "a", process: str = "1") -> AsyncIterator[PostgresLog]:
    log = PostgresLog(Access(postgres.url, cell), Member(node, process, "{}"))
    try:
        yield log
    finally:
        log.cut()


async def begun(log: PostgresLog, broker_id: str = "broker") -> Position:
    await log.make(broker_id, beginning(broker_id))
    assert await log.begin(True) == broker_id
    return beginning(broker_id)


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
        log = PostgresLog(Access(url, "hosts"), Member("a", "1", "{}"))
        try:
            await begun(log)
        finally:
            log.cut()


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
        (member,) = (await log.describe())["members"]
        assert (member["node"], member["applied"], member["durable"]) == ("a", 5, 4)
        assert await log.address("a") == "{}"


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
        await a.release(1, 0.5)
        assert await d.fence(await d.look(), "d 1", 3.0)
        await d.serves(2)
        told = await d.describe()
        assert (told["leader"], told["successor"], told["before"], told["why"]) == ("d 1", "", "a", "handed over")
        assert 0.5 < told["gap_s"] < 30
        assert await b.fence(await b.look(), "b 1", 3.0)
        await b.serves(3)
        told = await b.describe()
        assert (told["before"], told["why"]) == ("d", "died")
        assert 3.0 < told["gap_s"] < 33
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
        assert (await b.describe())["why"] == "was deposed"
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


@contextlib.contextmanager
def two_nodes(postgres: Postgres, directory: Path, **more: object) -> Iterator[tuple[Server, Server]]:
    """The first leads, the second stands by; of a database of their own."""
    url = asyncio.run(postgres.database("two"))
    certificate = str(Authority(directory).issue("broker"))
    nodes = []
    for node in ("a", "b"):
        replication = {"url": url, "node": node, "storage-is-replicated": True, "fail-over-after": "20s", **more}
        own: dict[str, Any] = {name: {"port": free_port(), "tls-port": free_port()} for name in ("native", "amqp", "stomp")}
        own |= {"http": {"port": free_port()}, "tls": {"certificate": certificate, "key": certificate}}
        nodes.append(Server(directory / node, {**own, "journal": {"replication": replication}}))
    try:
        asyncio.run(made(url))
        for each in nodes:
            each.start()
        yield nodes[0], nodes[1]
    finally:
        for each in nodes:
            each.close()


async def made(url: str) -> None:
    log = PostgresLog(Access(url, "main"), Member("", "", "{}"))
    await log.make("broker", beginning("broker"))
    log.cut()


async def secret_of(url: str) -> bytes:
    log = PostgresLog(Access(url, "main"), Member("", "", "{}"))
    try:
        return await log.secret()
    finally:
        log.cut()


def connected(place: str, of: str, ca: Path | None = None) -> socket.socket:
    host, _, port = place.rpartition(":")
    plain = socket.create_connection((host, int(port)), 20, source_address=(of, 0))
    return plain if ca is None else ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname="localhost")


def test_what_a_standby_does_for_clients(postgres: Postgres, tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    with two_nodes(postgres, tmp_path) as (leader, standby):
        assert standby.ready["standby"] is True
        # Limits per address, throttled logins and the audit see who connects, not the node between.
        clients = [connected(standby.ready["stomp"], "127.0.0.7"), connected(standby.ready["stomp-tls"], "127.0.0.8", authority)]
        for each in clients:
            each.sendall(_CONNECT)
            assert each.recv(9) == b"CONNECTED"
        found = asyncio.run(called(standby.url, "connections"))
        assert [each["peer"].partition(":")[0] for each in found] == ["127.0.0.7", "127.0.0.8", "127.0.0.1"]
        for each in clients:
            each.close()
        taken_for_the_leader(standby, asyncio.run(secret_of(postgres.url.replace("/postgres", "/two"))))
        amqp = Wire(int(standby.ready["amqp"].rpartition(":")[2]))
        assert amqp.tune.heartbeat == 5, "that its machine is gone is noticed soon"
        amqp.socket.close()
        for node, state in ((leader, "leading"), (standby, "standby")):
            wait_until(f"it is {state}", lambda node=node, state=state: json.loads(asked(node, "/readyz"))["state"] == state)
            assert json.loads(asked(node, "/readyz"))["cluster"]["leader"] == "a"
            figures = asked(node, "/metrics")
            assert f'homing_cluster_leading{{cell="main"}} {float(state == "leading")}' in figures
            assert 'homing_cluster_behind_entries{cell="main",node="a"}' in figures
        leader.kill()
        nobody_leads(standby, authority)


def taken_for_the_leader(standby: Server, secret: bytes) -> None:
    """By a node that is late: what it passes on does not go on to the leader from here."""
    with connected(standby.ready["stomp"], "127.0.0.1") as stomp:
        stomp.sendall(header(Peer("127.0.0.9", 1), Peer("127.0.0.1", 2), secret) + _CONNECT)
        with contextlib.suppress(ConnectionResetError):
            assert stomp.recv(1000) == b""


def asked(node: Server, path: str) -> str:
    with urllib.request.urlopen(f"http://{node.ready['http']}{path}", timeout=20) as answer:
        said: bytes = answer.read()
    return said.decode()


def nobody_leads(standby: Server, authority: Path) -> None:
    """Whoever connects is to come again, and is told so in his protocol, with TLS, too."""
    for place, ca in ((standby.ready["stomp"], None), (standby.ready["stomp-tls"], authority)):
        with connected(place, "127.0.0.1", ca) as stomp:
            stomp.sendall(_CONNECT)
            assert stomp.recv(1000).startswith(b"ERROR\nmessage:this node stands by, and no other leads")
    with pytest.raises(homing.ConnectError) as refused:
        asyncio.run(called(standby.url, "connections"))
    assert refused.value.code == "no-leader"
    with pytest.raises(AMQPConnectionError, match=r"\(320\) 'CONNECTION_FORCED - this node stands by, and no other leads"):
        pika.BlockingConnection(pika.URLParameters(f"amqp://{standby.ready['amqp']}/"))


async def called(url: str, verb: str, **arguments: object) -> Any:
    async with homing.connect(url) as connection:
        return await connection.call(verb, **arguments)


@pytest.mark.timeout(240)
def test_the_ten_minutes_of_the_page_are_as_it_shows_them(postgres: Postgres, tmp_path: Path) -> None:
    """What its shell blocks say, on other ports and another database; a busy machine is no reason to take a leader for gone."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    script = "set -eo pipefail\n" + "".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    script = script.replace(
        "postgresql://homing@127.0.0.1:5432/homing", f"{asyncio.run(postgres.database('page'))}\n    fail-over-after: 5s"
    )
    for port in ("7171", "7172", "7181", "7182"):
        script = script.replace(port, str(free_port()))
    environment = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    with (tmp_path / "log").open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            said, _ = shell.communicate(timeout=200)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    print(said, (tmp_path / "log").read_text())
    assert shell.returncode == 0
    assert re.search(r"a leads, epoch 1 .*\n +a  leading,.*\n +b  standby,", said)
    assert re.search(r"b leads, epoch 2 .*\n +before it a led, and died; .*\n +a  standby,.*\n +b  leading,", said)
    assert re.search(r"^a leads, in place of b; nobody was served for \d+ms\nb stands by$", said, re.MULTILINE)
    assert re.search(r"a leads, epoch 3 .*\n +before it b led, and handed over; .*\n +a  leading,.*\n +b  standby,", said)
    assert re.search(r"cluster\.failed-over +node b leads since a was taken for gone", said)
    bodies = re.findall(r'"body": "(\w+)"', said)
    assert bodies == ["before", "first", "second"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_leaders_are_killed_paused_and_stopped_under_working_clients_and_every_promise_is_kept(postgres: Postgres, tmp_path: Path) -> None:
    """``scripts/check-fail-over`` does the same at length. Others wait longer for a leader here: the machine may be busy."""
    database = asyncio.run(postgres.database("nodes"))
    loop = FailOvers(tmp_path, Options(rounds=len(PLAIN), seed=5), [*PLAIN], database, nodes=2, fail_over_after_s=4.0)
    result = loop.run()
    print(result.figures, loop.gaps_ms)
    assert not result.violations, "\n".join(map(str, result.violations[:20]))
    assert result.figures["sends confirmed"] > 20 * len(PLAIN)


async def test_a_log_that_was_restored_to_an_older_state_goes_on_from_the_node_that_is_furthest(postgres: Postgres, tmp_path: Path) -> None:
    """The leader finds out at its next commit and answers nobody, its standby at its next look. All that was confirmed is there after."""
    options, tables = JournalOptions(**OPTIONS), ["homing_cell", *(f"homing_log_lost_{each}" for each in range(3))]
    (tmp_path / "broker.yaml").write_text(
        f"journal: {{replication: {{url: '{postgres.url}', cell: lost, node: b, storage-is-replicated: true}}}}"
    )

    async def follower(node: str) -> Follower:
        return await Follower.open(tmp_path / node, options, lambda: NOW_MS, "broker")

    async def leads(log: PostgresLog, node: str) -> Leader:
        copy = await follower(node)
        try:
            return await follow_until_leading(log, copy, f"{node} 1", Watch(node, 1.0), time.monotonic)
        finally:
            await copy.close()

    async with log_of(postgres, "lost") as log, log_of(postgres, "lost", "b") as bs:
        await begun(log)
        journal, _ = await Journal.open(tmp_path / "a", options, NOW_MS, await leads(log, "a"))
        journal.batch.queue(queue())
        for number in range(1, 41):
            send(journal, number)
            await journal.flush()
            if number == 20:
                await postgres.sql(*(f"CREATE TABLE saved_{each} AS TABLE {each}" for each in tables))
        standby = await follower("b")
        while entries := await log.read(standby.at.number):
            await standby.apply(entries)
        await standby.close()
        await postgres.sql(*(f"TRUNCATE {each}; INSERT INTO {each} SELECT * FROM saved_{each}" for each in tables))
        answered: list[int] = []
        send(journal, 41)
        journal.when_safe(lambda: answered.append(41))
        with pytest.raises(JournalError, match="journal-log-lost"):
            await journal.flush()
        await journal.close()
        assert not answered
        with pytest.raises(JournalError, match=r"journal-log-lost: .* `homing cluster reseed`"):
            await leads(log, "b")
        # As its process does at its end.
        await bs.tell_lost(standby.at)
        assert "b  log-lost, has entry" in await said_by(tmp_path, "cluster", "status")
        for node, why in (("a", "no-such-node"), ("b", "nobody is there to be asked")):
            assert why in await said_by(tmp_path, "cluster", "reseed", "--from", node)
        said = await said_by(tmp_path, "cluster", "reseed", "--from", "b", "--yes")
        assert f"The log goes on behind entry {standby.at.number}: start b" in said
        assert "log-not-lost" in await said_by(tmp_path, "cluster", "reseed", "--from", "b", "--yes")
        leader = await leads(log, "b")
        journal, _ = await Journal.open(tmp_path / "b", options, NOW_MS, leader)
        send(journal, 42)
        await journal.flush()
        await journal.close()
        assert sequences(tmp_path / "b") == [*range(1, 41), 42]
        assert leader.epoch == 3
        with pytest.raises(JournalError, match="journal-left-behind"):
            await leads(log, "c")


async def test_a_cell_begins_with_what_a_broker_kept_and_the_command_may_end_in_the_middle(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, place = JournalOptions(**OPTIONS), tmp_path / "a"
    async with opened(place) as (journal, recovered):
        journal.batch.queue(queue())
        send(journal, journal.next_id())
        await journal.flush()
        shown = journal.ids_taken
        with pytest.raises(JournalError, match="journal-locked"):
            statements(place, "begun")
    assert recovered.broker_id in statements(place, "begun")

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    async with log_of(postgres, "begun") as log, log_of(postgres, "taken") as other:
        with monkeypatch.context() as patched:
            patched.setattr(FirstNode, "begin", end)
            with pytest.raises(KeyboardInterrupt):
                await begin(log, place, True)
        with pytest.raises(JournalError, match=r"journal-foreign: .*`homing cluster init`"):
            await Follower.open(place, options, lambda: NOW_MS, recovered.broker_id)
        for _ in range(2):
            assert await begin(log, place, True) == (recovered.broker_id, 1)
        with pytest.raises(JournalError, match="journal-replicated"):
            await Journal.open(place, options, NOW_MS)
        await begun(other)
        with pytest.raises(JournalError, match="log-cell-exists"):
            await begin(other, place, True)

        async def leads(name: str) -> Leader:
            copy = await Follower.open(tmp_path / name, options, lambda: NOW_MS, recovered.broker_id)
            try:
                return await follow_until_leading(log, copy, f"{name} 1", Watch(name, 1.0), time.monotonic)
            finally:
                await copy.close()

        with pytest.raises(JournalError, match="journal-left-behind"):
            await leads("b")
        journal, again = await Journal.open(place, options, NOW_MS, await leads("a"))
        assert again.broker_id == recovered.broker_id
        assert len(again.references) == 1
        assert journal.next_id() >= shown
        await journal.close()
        with pytest.raises(JournalError, match="journal-left-behind"):
            await leads("b")


async def said_by(directory: Path, *arguments: str) -> str:
    """What the command says, whatever its exit code."""
    command = [sys.executable, "-m", "homing.broker", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(*command, cwd=directory, env=environment, stdout=PIPE, stderr=STDOUT, stdin=DEVNULL)
    said, _ = await process.communicate()
    return said.decode()
