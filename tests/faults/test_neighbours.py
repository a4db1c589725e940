"""What one peer does to shut others out of a real broker: floods of handshakes, guessed passwords, a log and a socket that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from homing import client
from homing.broker.auth.passwords import hash_password
from homing.broker.protocols.amqp091.codec import method_frame
from homing.broker.protocols.amqp091.codec_methods import PROTOCOL_HEADER
from homing.broker.protocols.native.codec import Op, encode
from tests.faults import outage
from tests.faults.hostile import Raw, good_client
from tests.faults.outage import judge, through
from tests.process import ROOT, HomingCommand, Server, wait_until

StartServer = Callable[..., Server]
OTHER = "127.0.0.2"


def test_silent_sockets_give_way_to_whoever_comes_from_elsewhere(start_server: StartServer) -> None:
    server = start_server(
        {"amqp": {"port": 0}, "limits": {"max-handshakes": 40, "max-handshakes-per-peer": 30, "max-connections": 60, "login-timeout": "1m"}}
    )
    amqp = f"homing://{server.ready['amqp']}"
    with Raw(server.url) as inside:
        silent = [Raw(server.url if number % 3 else amqp, hello=False, source=OTHER) for number in range(200)]
        for _ in range(50):
            with Raw(server.url) as raw:
                raw.alive()
        inside.alive()
        # Slots of connections are none of theirs.
        others = [Raw(server.url) for _ in range(40)]
        assert silent[1].error()[1] == "handshake-gave-way"
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < 200
        for raw in (*silent, *others):
            raw.close()
    log = server.logged("gave way to another")
    assert re.search(r"127\.0\.0\.2:\d+ gave way to another: 127\.0\.0\.2 has 30 logins under way \(limits\.max-handshakes-per-peer\)", log)
    assert server.stop() == 0
    left_out = (
        r"\d+ more like this were left out, the last of them: connection-refused: 127\.0\.0\.2:\d+ gave way to another: 127\.0\.0\.2 has"
    )
    assert re.search(left_out, server.log_path.read_text())


def test_one_peer_does_not_take_all_connections(start_server: StartServer) -> None:
    server = start_server({"amqp": {"port": 0}, "limits": {"max-connections": 20, "max-connections-per-peer": 10}})
    taken = [Raw(server.url, source=OTHER) for _ in range(10)]
    with Raw(server.url, hello=False, source=OTHER) as raw:
        refused = raw.error()
        assert (refused[1], "127.0.0.2 has 10 connections" in refused[2]) == ("too-many-connections", True)
    with Raw(f"homing://{server.ready['amqp']}", hello=False, source=OTHER) as raw:
        raw.raw(PROTOCOL_HEADER + method_frame(0, "connection.start-ok", {}, "PLAIN", b"\x00guest\x00guest", "en_US"))
        raw.socket.settimeout(20)
        said = b""
        while b"NOT_ALLOWED - 127.0.0.2 has 10 connections" not in said:
            data = raw.socket.recv(1 << 16)
            assert data, said
            said += data
    with Raw(server.url) as raw:
        raw.alive()
    for raw in taken:
        raw.close()


async def test_while_passwords_are_guessed_those_who_know_them_come_in(start_server: StartServer) -> None:
    server = start_server({"users": {"ann": hash_password("known"), "bob": hash_password("known")}, "limits": {"login-threads": 1}})
    guessers: list[Raw] = []

    def attack() -> None:
        for number in range(60):
            raw = Raw(server.url, hello=False, source=OTHER)
            raw.send(Op.HELLO, "homing", 1, {"user": "ann" if number % 2 else f"\x1b[2J{number}", "password": f"guess {number}"})
            guessers.append(raw)

    await asyncio.to_thread(attack)
    # In the order in which they came, these would wait for far longer than the login time.
    for user in ("ann", "bob", "ann"):
        async with client.connect(server.url, user=user, password="known", connect_timeout_ms=20_000) as connection:
            await connection.call("queues")
    # Known again: even from where it is guessed at.
    with Raw(server.url, hello=False, source=OTHER) as raw:
        raw.hello(user="ann", password="known")
    for raw in guessers:
        raw.close()
    log = server.logged("login-refused: user ann from 127.0.0.2", "\\x1b[2J0 from 127.0.0.2")
    assert "\x1b" not in log
    assert "guess 1" not in log


def test_a_log_that_nobody_reads_freezes_nobody_and_the_broker_ends(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("native: {port: 0}\namqp: {port: 0}\n")
    reader, end = os.pipe()
    os.set_blocking(end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(end, b"x" * 4096)
    os.set_blocking(end, True)
    command = [sys.executable, "-m", "homing", "serve", "--config", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=end, text=True) as process:
        os.close(end)
        assert process.stdout is not None
        try:
            places = dict(word.split("=", 1) for word in process.stdout.readline().split()[2:])
            with Raw(f"homing://{places['native']}") as good:
                for number in range(200):
                    with Raw(f"homing://{places['amqp']}", hello=False) as raw:
                        login = b"\x00" + b"n" * 4000 + b"%d\x00guess" % number
                        raw.raw(PROTOCOL_HEADER + method_frame(0, "connection.start-ok", {}, "PLAIN", login, "en_US"))
                good.alive()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            os.close(reader)


async def test_a_consumer_that_takes_nothing_is_given_up_though_its_heart_beats(start_server: StartServer) -> None:
    server = start_server({"limits": {"write-timeout": "1s"}})
    body, count = b"x" * (1 << 20), 24

    def attack() -> float:
        with Raw(server.url, heartbeat_ms=10_000) as raw:
            raw.producer("held")
            for number in range(count):
                raw.send(Op.SEND, 1, number + 1, [[body]])
                raw.until(Op.CONFIRM)
            raw.send(Op.SUBSCRIBE, 2, 1, "held", {})
            raw.until(Op.DELIVER)
            raw.send(Op.GIVEN, 1, 1)
            began = time.monotonic()
            with contextlib.suppress(OSError):
                while time.monotonic() - began < 30:
                    raw.socket.sendall(encode([int(Op.HEARTBEAT)]))
                    time.sleep(0.05)
            return time.monotonic() - began

    async with good_client(server.url):
        assert await asyncio.to_thread(attack) < 20
    await asyncio.to_thread(wait_until, "the log tells of it", lambda: "(limits.write-timeout)" in server.log_path.read_text())
    async with client.connect(server.url) as connection, connection.session() as session:
        consumer = session.consumer("held", prefetch=2)
        counts = []
        for _ in range(count):
            message = await consumer.receive(timeout_ms=20_000)
            assert message is not None
            counts.append(message.delivery_count)
    # As when a connection is lost: what was given counts, and comes back.
    assert sorted(counts) == [1] * (count - 1) + [2]


async def test_lists_that_no_frame_holds_come_in_pages(start_server: StartServer, homing: HomingCommand) -> None:
    server = start_server({"limits": {"max-frame-bytes": "64KiB"}})
    names = sorted(f"queue.{number}" for number in range(150))
    async with client.connect(server.url) as connection:
        await asyncio.gather(*(connection.call("create-queue", queue=name) for name in names))
        with pytest.raises(client.CallError) as refused:
            await connection.call("queues")
        assert refused.value.code == "too-many-for-one-answer"
        assert [each["name"] for each in await connection.listing("queues")] == names
    found = await asyncio.to_thread(homing.json, "queues", url=server.url)
    assert [each["name"] for each in found] == names


async def test_a_client_goes_on_after_an_outage(server: Server) -> None:
    """In short; ten minutes of it: scripts/check-outage."""
    account = await through(server, outage_s=1.0)
    assert account.sent > outage.MAX_UNCONFIRMED
    assert judge(account) == []
    # Stored twice, and seen: one that was confirmed has two ids, or one comes under two ids after the outage.
    for ids, number in ((account.ids, 7), (account.ids_after, max(account.ids_after))):
        ids[number].add(-1)
        assert [sentence.partition(",")[0] for sentence in judge(account)] == ["stored twice"]
        ids[number].remove(-1)
    assert judge(account) == []
