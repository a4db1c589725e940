"""Limits of connections, time and memory; and that passwords are seen by nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homing import client
from homing.broker.auth.passwords import hash_password
from homing.broker.protocols.native.codec import Op, encode
from tests.faults.hostile import ANSWER_S, Raw, good_client, memory_mib, reset_peak
from tests.pauses import tried_again
from tests.process import HomingCommand, Server, wait_until

StartServer = Callable[..., Server]


async def test_connections_beyond_the_limit_are_told_and_the_others_stay(start_server: StartServer) -> None:
    server = start_server({"limits": {"max-connections": 20}})

    def attack() -> None:
        held = [Raw(server.url) for _ in range(19)]
        for _ in range(30):
            with Raw(server.url, hello=False) as raw:
                assert raw.error()[1] == "too-many-connections"
        for raw in held:
            raw.alive()
            raw.close()
        wait_until("there is room again", lambda: admitted(server))

    async with good_client(server.url):
        await asyncio.to_thread(attack)


def admitted(server: Server) -> bool:
    with Raw(server.url, hello=False) as raw:
        raw.send(Op.HELLO, "homing", 1, {})
        frame = raw.next()
        return frame is not None and frame[0] == Op.WELCOME


async def test_a_thousand_connections_opened_and_closed_leave_nothing_behind(start_server: StartServer) -> None:
    server = start_server()

    def attack(count: int) -> None:
        for number in range(count):
            raw = Raw(server.url, hello=number % 3 > 0)
            if number % 3 > 1:
                raw.send(Op.SUBSCRIBE, 1, 1, "passing", {})
            raw.close()

    def files() -> int:
        return len(os.listdir(f"/proc/{server.pid}/fd"))

    async with good_client(server.url):
        await asyncio.to_thread(attack, 100)
        await asyncio.to_thread(wait_until, "the first are gone", lambda: files() < 40)
        before, memory = files(), memory_mib(server.pid)
        await asyncio.gather(asyncio.to_thread(attack, 500), asyncio.to_thread(attack, 500))
        await asyncio.to_thread(wait_until, "all are gone", lambda: files() <= before + 2)
        assert memory_mib(server.pid) - memory < 40


async def test_out_of_file_descriptors_the_others_and_the_journal_go_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "broker")
    server.start()
    try:
        import resource

        used = len(os.listdir(f"/proc/{server.pid}/fd"))
        async with good_client(server.url):
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 15, used + 15))

            def attack() -> None:
                sockets = []
                for _ in range(60):
                    try:
                        sockets.append(Raw(server.url, hello=False))
                    except OSError:
                        break
                wait_until("no descriptor is left", lambda: len(os.listdir(f"/proc/{server.pid}/fd")) >= used + 15)
                for each in sockets:
                    each.close()

            await asyncio.to_thread(attack)
            await asyncio.to_thread(wait_until, "connections are taken again", lambda: admitted_or_reset(server))
        assert server.stop() == 0
    finally:
        server.close()


def admitted_or_reset(server: Server) -> bool:
    try:
        return admitted(server)
    except OSError:
        return False


async def test_missed_heartbeats_end_a_connection_and_what_it_held_comes_back(start_server: StartServer) -> None:
    server = start_server({"limits": {"heartbeat": "400ms"}})

    def attack(queue: str) -> float:
        with Raw(server.url, heartbeat_ms=400) as raw:
            assert raw.welcome[2]["heartbeat_ms"] == 400
            raw.producer(queue)
            raw.send(Op.SEND, 1, 1, [[b"held"]])
            raw.send(Op.SUBSCRIBE, 2, 1, queue, {})
            raw.until(Op.DELIVER)
            began = time.monotonic()
            raw.send(Op.GIVEN, 1, 1)
            while raw.next() is not None:
                pass
            silent_s = time.monotonic() - began
        with Raw(server.url) as raw:
            raw.send(Op.SUBSCRIBE, 2, 1, queue, {})
            assert raw.until(Op.DELIVER)[3][0][1] == 2
        return silent_s

    queues = iter(("one", "two", "three"))

    @tried_again
    async def beside_a_good_client() -> None:
        async with good_client(server.url):
            # 2.5 heartbeats, looked at twice a second.
            assert 0.9 < await asyncio.to_thread(attack, next(queues)) < 15

    await beside_a_good_client()


async def test_a_client_that_never_reads_costs_bounded_memory(start_server: StartServer) -> None:
    server = start_server({"broker": {"memory-limit": "128MiB"}})
    async with client.connect(server.url) as connection, connection.session() as session:
        producer = session.producer("unread")
        for _ in range(60):
            await producer.send(b"x" * (1 << 20))

    def attack() -> None:
        raws = []
        for number in range(10):
            raw = Raw(server.url)
            for consumer in range(1, 20):
                raw.send(Op.SUBSCRIBE, consumer, consumer, "unread", {"prefetch": 1000})
            # Asks and asks, and never reads an answer.
            raw.socket.settimeout(2)
            with contextlib.suppress(OSError):
                raw.socket.sendall(encode([Op.CALL, number + 1, "peek", {"queue": "unread", "limit": 10}]) * 200)
            raws.append(raw)
        time.sleep(1)  # for as long answers would pile up
        for raw in raws:
            raw.close()

    reset_peak(server.pid)
    async with good_client(server.url):
        await asyncio.to_thread(attack)
    assert memory_mib(server.pid, "VmHWM") < 1000
    async with client.connect(server.url) as connection, connection.session() as session:
        consumer = session.consumer("unread", prefetch=5)
        for _ in range(60):
            message = await consumer.receive(timeout_ms=20_000)
            assert message is not None
            assert message.delivery_count == 1


SECRET = "correct-horse-battery-staple-5711"
WRONG = "wrong-horse-battery-staple-5711"


@pytest.fixture(scope="module")
def users_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    hashed = hash_password(SECRET)
    server = Server(tmp_path_factory.mktemp("users") / "broker", {"users": {"ann": hashed}, "limits": {"login-timeout": "1m"}})
    yield server.start(), hashed
    server.close()


async def test_logins_that_fail_say_so_and_hold_nobody_up(users_server: tuple[Server, str]) -> None:
    server, _ = users_server
    attempts = [
        ({}, "login-required"),
        ({"user": "ann"}, "login-required"),
        ({"password": SECRET}, "login-required"),
        ({"user": "ann", "password": WRONG}, "login-refused"),
        ({"user": "nobody", "password": SECRET}, "login-refused"),
        ({"user": "ann", "password": ""}, "login-refused"),
        ({"user": "ann", "password": "x" * 5000}, "login-refused"),
        ({"user": "x" * 5000, "password": WRONG}, "login-refused"),
        ({"user": 5, "password": WRONG}, "malformed-frame"),
    ]

    def attack() -> None:
        for options, code in attempts:
            with Raw(server.url, hello=False) as raw:
                raw.send(Op.HELLO, "homing", 1, options)
                error = raw.error()
                assert error[1] == code, options
                assert SECRET not in str(error)
                assert WRONG not in str(error)

    url = server.url.replace("//", f"//ann:{SECRET}@")
    async with good_client(url):
        await asyncio.to_thread(attack)


async def test_frames_sent_with_the_login_wait_for_it_and_their_errors_are_answered(users_server: tuple[Server, str]) -> None:
    server, _ = users_server
    hello = encode([Op.HELLO, "homing", 1, {"user": "ann", "password": SECRET}])

    def send() -> None:
        with Raw(server.url, hello=False) as raw:
            raw.raw(hello + encode([Op.CALL, 5, "queues", {}]))
            raw.until(Op.WELCOME)
            assert raw.until(Op.RESULT)[1] == 5
        for bad, code in (
            (encode([99]), "unknown-op"),
            (encode([Op.PULL, "x", 1]), "malformed-frame"),
            (b"\x00\x00\x00\x01\xc1", "malformed-frame"),
        ):
            with Raw(server.url, hello=False) as raw:
                raw.raw(hello + bad)
                assert raw.error()[1] == code

    await asyncio.to_thread(send)


async def test_logins_given_up_do_not_queue_before_others(users_server: tuple[Server, str]) -> None:
    """Checking a password takes tens of milliseconds on purpose: those who did not wait for it are not checked."""
    server, _ = users_server

    def hasty() -> None:
        for _ in range(300):
            with Raw(server.url, hello=False) as raw:
                raw.send(Op.HELLO, "homing", 1, {"user": "ann", "password": WRONG})

    def check_cost_s(user: str) -> float:
        before = cpu_s(server.pid)
        with Raw(server.url, hello=False) as raw:
            raw.send(Op.HELLO, "homing", 1, {"user": user, "password": WRONG})
            assert raw.error()[1] == "login-refused"
        return cpu_s(server.pid) - before

    with Raw(server.url, hello=False) as raw:
        await asyncio.to_thread(raw.hello, user="ann", password=SECRET)
    await asyncio.to_thread(check_cost_s, "first")
    alone = sum([await asyncio.to_thread(check_cost_s, f"nobody {number}") for number in range(5)])
    await asyncio.to_thread(hasty)
    # What the broker works until the next one is answered, not how long it takes: those given up would cost some 300 checks.
    assert await asyncio.to_thread(check_cost_s, "last") < 12 * alone
    async with good_client(server.url.replace("//", f"//ann:{SECRET}@")):
        pass


def cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def test_passwords_and_hashes_are_nowhere_to_be_read(users_server: tuple[Server, str], homing: HomingCommand, tmp_path: Path) -> None:
    server, hashed = users_server
    url = server.url.replace("//", f"//ann:{SECRET}@")
    shown: list[str] = []
    async with client.connect(url) as connection:
        shown.append(str(await connection.call("settings")))
        shown += [str(connection.url), repr(connection.url), repr(connection)]
    with pytest.raises(client.HomingError) as refused:
        await client.connect(server.url.replace("//", f"//ann:{WRONG}@"), reconnect=False)
    shown += [str(refused.value), repr(refused.value)]
    for arguments in (("queues",), ("send", "secret", "--body", "x"), ("peek", "absent"), ("explain", "secret")):
        done = await asyncio.to_thread(homing, *arguments, url=url)
        shown.append(done.stdout + done.stderr)
        done = await asyncio.to_thread(homing, *arguments, url=server.url.replace("//", f"//ann:{WRONG}@"))
        assert done.returncode != 0
        shown.append(done.stdout + done.stderr)
    os.kill(server.pid, signal.SIGHUP)
    done = await asyncio.to_thread(homing, "journal", "export", "--data", server.data, "--out", tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    shown.append(done.stdout + done.stderr)
    server.stop()
    shown.append(server.log_path.read_text())
    files = [path for top in (server.data, tmp_path / "dump") for path in top.rglob("*") if path.is_file()]
    assert files
    for text in (SECRET, WRONG, hashed, hashed.rpartition("$")[2]):
        assert not [each[:300] for each in shown if text in each]
        assert not [path for path in files if text.encode() in path.read_bytes()]


async def test_a_reload_with_a_broken_file_changes_nothing(start_server: StartServer) -> None:
    server = start_server()
    async with good_client(server.url):
        server.config_path.write_text("users: {ann: plain-password-5711}\naddress-settings: {'#': {colour: red}}\n")
        with Raw(server.url) as raw:
            await asyncio.to_thread(raw.send, Op.CALL, 5, "reload", {})
            refused = await asyncio.to_thread(raw.refusal, 5)
        assert refused[2] == "config-invalid"
        assert "plain-password-5711" not in str(refused)
        os.kill(server.pid, signal.SIGHUP)
        await asyncio.to_thread(wait_until, "the log tells of it", lambda: "not-reloaded" in server.log_path.read_text())
    assert "plain-password-5711" not in server.log_path.read_text()


def test_a_reload_of_an_empty_or_cut_file_lets_nobody_in(start_server: StartServer, homing: HomingCommand) -> None:
    server = start_server({"users": {"ann": hash_password(SECRET)}, "addresses": {"news": {}}})
    whole = server.config_path.read_text()
    assert "users:" in whole
    url = server.url.replace("homing://", f"homing://ann:{SECRET}@")
    for number, text in enumerate(["", whole.partition("users:")[0], whole.replace("ann:", "bob:")[: whole.index("$argon2") + 30]], 1):
        server.config_path.write_text(text)
        os.kill(server.pid, signal.SIGHUP)
        wait_until("the log tells of it", lambda number=number: server.log_path.read_text().count("not-reloaded") == number)
        with Raw(server.url, hello=False) as raw:
            raw.send(Op.HELLO, "homing", 1, {})
            assert raw.error()[1] == "login-required"
    done = homing("reload", url=url)
    assert (done.returncode, done.stdout) == (5, "")
    assert "nothing was changed" in done.stderr
    server.config["addresses"]["sports"] = {}
    server.config["limits"] = {"max-queues": 77}
    server.write_config()
    done = homing("reload", url=url)
    assert done.returncode == 0, done.stderr
    assert "addresses.sports" in done.stdout
    assert "77  after a restart" in done.stdout
    server.logged("sets nothing", "changed: addresses.sports", "only a restart brings into force: limits.max_queues")


CONFIGS: dict[str, tuple[str | bytes, str]] = {
    "broken yaml": ("native: {port: 0\nlimits: [", "broker.yaml"),
    "a tab": ("native:\n\tport: 0\n", "line 2"),
    "unknown section": ("colour: red\n", "colour"),
    "unknown key": ("native: {port: 0, colour: red}\n", "native.colour"),
    "unknown setting": ("address-settings:\n  '#':\n    max-delivery-atempts: 3\n", "max-delivery-atempts"),
    "wrong type": ("native: {port: seven}\n", "native.port"),
    "port too large": ("native: {port: 70000}\n", "native.port"),
    "nan": ("limits: {heartbeat-tolerance: .nan}\n", "heartbeat-tolerance"),
    "endless duration": ("address-settings: {'#': {message-ttl: 9223372036854775807}}\n", "message-ttl"),
    "every address": ("native: {host: 0.0.0.0, port: 0}\n", "loopback"),
    "other host": ("native: {host: example.org, port: 0}\n", "loopback"),
    "password in the clear": ("users: {ann: hunter2-5711}\n", "argon2"),
    "a list": ("- a\n- b\n", "broker.yaml"),
    "python object": ("native: !!python/object/apply:os.system ['true']\n", "broker.yaml"),
    "no utf-8": (b"native: {host: \xff\xfe}\n", "broker.yaml"),
    "a null byte": (b"native: {port: 0}\x00\n", "broker.yaml"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_cannot_be_used_is_refused_by_name(tmp_path: Path, homing: HomingCommand, name: str) -> None:
    text, expected = CONFIGS[name]
    path = tmp_path / "broker.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = homing("serve", "--config", path, "--data", tmp_path / "data", "--json", timeout_s=ANSWER_S)
    assert done.returncode == 5, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter2-5711" not in done.stderr + done.stdout
    assert not (tmp_path / "data").exists()
