"""A broker on several nodes, by a PostgreSQL that keeps its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import socketserver
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPConnectionError

import homing
from homing.broker.process.cluster.beginning import begin, statements
from homing.broker.protocols.codec_proxy import Peer, header
from homing.journal.errors import JournalError
from homing.journal.first_node import FirstNode
from homing.journal.follower import Follower
from homing.journal.journal import Journal, JournalOptions
from homing.journal.replication.entry import beginning
from homing.journal.replication.leader import Leader
from homing.journal.replication.leadership import Watch, follow_until_leading
from homing.journal.replication.postgresql import Access, PostgresLog
from tests.amqp_wire import Wire
from tests.certificates import Authority
from tests.faults.kill_loop.failing_over import PLAIN, FailOvers
from tests.faults.kill_loop.loop import Options
from tests.postgresql import Postgres, begun, log_of
from tests.process import ROOT, HomingCommand, Server, free_port, wait_until
from tests.unit.journal_support import NOW_MS, OPTIONS, opened, queue, send, sequences

_CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"


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
    async with PostgresLog(Access(url, "main")) as log:
        await log.make("broker", beginning("broker"))


async def secret_of(url: str) -> bytes:
    async with PostgresLog(Access(url, "main")) as log:
        return await log.secret()


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
        os.kill(standby.pid, signal.SIGHUP)
        wait_until("it says so", lambda: "standby-not-reloaded" in standby.log_path.read_text())
        leader.kill()
        nobody_leads(standby, authority)


def taken_for_the_leader(standby: Server, secret: bytes) -> None:
    """By a node that is late: what it passes on does not go on to the leader from here."""
    with connected(standby.ready["stomp"], "127.0.0.1") as stomp:
        stomp.sendall(header(Peer("127.0.0.9", 1), Peer("127.0.0.1", 2), secret) + _CONNECT)
        with contextlib.suppress(ConnectionResetError):
            assert stomp.recv(1000) == b""


def asked(node: Server, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{node.ready['http']}{path}", timeout=20) as answer:
            said: bytes = answer.read()
    except urllib.error.HTTPError as error:  # 503, too, says why
        with error:
            said = error.read()
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


@contextlib.contextmanager
def forked(homing: HomingCommand, directory: Path) -> Iterator[None]:
    """In ``directory`` there is a command for shells, by which all but a broker, which others end by its number, is forked."""

    class Commands(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            url, *words = [line.decode().rstrip("\n") for line in iter(self.rfile.readline, b"\n")]
            done = homing(*words, url=url)
            self.wfile.write(f"{done.returncode}\n{done.stdout}{done.stderr}".encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Commands) as server:
        command = directory / "homing"
        command.write_text(
            f"""#!/bin/bash
            [ "$1" != serve ] || exec {ROOT / ".venv" / "bin" / "homing"} "$@"
            exec 3<>/dev/tcp/127.0.0.1/{server.server_address[1]}
            printf '%s\\n' "$HOMING_URL" "$@" "" >&3
            read -r code <&3
            cat <&3
            exit "$code"
            """
        )
        command.chmod(0o755)
        serving = threading.Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.plain
@pytest.mark.timeout(240)
def test_the_ten_minutes_of_the_page_are_as_it_shows_them(postgres: Postgres, homing: HomingCommand, tmp_path: Path) -> None:
    """What its shell blocks say, on other ports and another database."""
    page = (ROOT / "docs" / "cluster.md").read_text()
    script = "set -eo pipefail\n" + "".join(re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    script = script.replace("postgresql://homing@127.0.0.1:5432/homing", asyncio.run(postgres.database("page")))
    for port in ("7171", "7172", "7181", "7182"):
        script = script.replace(port, str(free_port()))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    with (tmp_path / "log").open("w") as log, forked(homing, tmp_path):
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=homing.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
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
    """``scripts/check-fail-over`` does the same at length. A busy machine makes more changes of leaders, no fewer."""
    database = asyncio.run(postgres.database("nodes"))
    loop = FailOvers(tmp_path, Options(rounds=len(PLAIN), seed=5, most_ms=800), [*PLAIN], database, nodes=2, fail_over_after_s=2.0)
    result = loop.run()
    print(result.figures, loop.gaps_ms)
    assert not result.violations, "\n".join(map(str, result.violations[:20]))
    assert result.figures["sends confirmed"] > 20 * len(PLAIN)


async def test_a_log_that_was_restored_to_an_older_state_goes_on_from_the_node_that_is_furthest(
    postgres: Postgres, tmp_path: Path, homing: HomingCommand
) -> None:
    """The leader finds out at its next commit and answers nobody, its standby at its next look. All that was confirmed is there after."""
    options, tables = JournalOptions(**OPTIONS), ["homing_cell", *(f"homing_log_lost_{each}" for each in range(3))]
    (homing.directory / "broker.yaml").write_text(
        f"journal: {{replication: {{url: '{postgres.url}', cell: lost, node: b, storage-is-replicated: true}}}}"
    )

    def said(*words: str) -> str:
        done = homing(*words)
        return done.stdout + done.stderr

    async def follower(node: str) -> Follower:
        return await Follower.open(tmp_path / node, options, lambda: NOW_MS, "broker")

    async def leads(log: PostgresLog, node: str) -> Leader:
        copy = await follower(node)
        try:
            return await follow_until_leading(log, copy, f"{node} 1", Watch(node, 0.3), time.monotonic)
        finally:
            await copy.close()

    async with log_of(postgres, "lost") as log, log_of(postgres, "lost", "b") as bs, log_of(postgres, "lost", "c") as log_c:
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
        with pytest.raises(TimeoutError):  # it has all that is left, and would lead without what was confirmed
            await asyncio.wait_for(leads(log_c, "c"), 1)
        with pytest.raises(JournalError, match=r"journal-log-lost: .* `homing cluster reseed`"):
            await leads(log, "b")
        # As its process does at its end; at a start that finds the database brought back; and at its end.
        await bs.tell_lost(standby.at)
        await bs.report(standby.at.number, standby.at.number)
        assert [each.lost for each in (await bs.describe()).members] == [None]
        await bs.tell_lost(standby.at)
        assert "b  log-lost, has entry" in said("cluster", "status")
        for node, why in (("a", "no-such-node"), ("b", "nobody is there to be asked")):
            assert why in said("cluster", "reseed", "--from", node)
        assert f"The log goes on behind entry {standby.at.number}: start b" in said("cluster", "reseed", "--from", "b", "--yes")
        assert "log-not-lost" in said("cluster", "reseed", "--from", "b", "--yes")
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
                return await follow_until_leading(log, copy, f"{name} 1", Watch(name, 0.3), time.monotonic)
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
