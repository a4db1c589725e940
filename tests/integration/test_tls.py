"""TLS, for all protocols and HTTP, as programs use it; certificates that do not hold, and peers that mean no good."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import shutil
import signal
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
import stomp
from cryptography import x509

import homing
from homing.broker.auth.passwords import hash_password
from homing.broker.protocols.codec_tls import TlsTransport
from homing.client import AckMode
from tests.certificates import Authority
from tests.key_updates import flood
from tests.process import HomingCommand, Server, wait_until
from tests.system.secured_clients import BODY as SENT
from tests.system.secured_clients import Broker, blocking_facade, native, with_aio_pika, with_pika


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("secured")
    good = shutil.copy(authority.issue("server"), directory / "server.pem")
    listeners = {name: {"port": 0, "tls-port": 0} for name in ("native", "amqp", "stomp", "http")}
    with closing(Server(directory, {**listeners, "tls": {"certificate": "server.pem", "key": "server.pem"}})) as secured:
        yield secured.start()
        assert Path(good).exists()


def place(server: Server, name: str) -> tuple[str, int]:
    host, _, port = server.ready[name].rpartition(":")
    return host, int(port)


def url(server: Server, authority: Authority, host: str = "127.0.0.1") -> str:
    return f"homings://{host}:{place(server, 'native-tls')[1]}?cafile={authority.file}"


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def test_http_speaks_it_and_tells_when_the_certificate_ends(server: Server, authority: Authority) -> None:
    with urllib.request.urlopen(
        f"https://localhost:{place(server, 'http-tls')[1]}/metrics", timeout=20, context=trusting(authority)
    ) as said:
        assert b"\nhoming_certificate_end_timestamp_seconds 1." in said.read()


def test_old_versions_are_refused_and_the_end_is_said(server: Server, authority: Authority) -> None:
    old = trusting(authority)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(place(server, "native-tls"), 20) as plain, pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        old.wrap_socket(plain, server_hostname="localhost")
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = trusting(authority)
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection(place(server, "amqp-tls"), 20) as plain,
            context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as tls,
        ):
            tls.sendall(b"no protocol")
            assert tls.recv(100) == b"AMQP\0\0\x09\x01"
            assert tls.recv(100) == b"", "without a close_notify this raises"


def test_who_speaks_in_the_clear_is_told(server: Server, homing: HomingCommand) -> None:
    reported = homing("queues", url=f"homing://{server.ready['native-tls']}")
    assert reported.returncode == 3
    assert "this port speaks TLS, not the native protocol" in reported.stderr
    assert "homings://" in reported.stderr
    other = homing("queues", url=f"homings://{server.ready['native']}")
    assert (other.returncode, "what answers there does not speak TLS" in other.stderr) == (3, True)
    wait_until("the log tells", lambda: "speaks the native protocol on a port for TLS" in server.log_path.read_text())


def test_a_program_of_stomp_py_speaks_it(server: Server, authority: Authority) -> None:
    host, port = "localhost", place(server, "stomp-tls")[1]
    program, told = stomp.StompConnection12([(host, port)]), queue.Queue[str]()
    program.set_ssl([(host, port)], ca_certs=str(authority.file))

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py says nothing of its types
        def on_message(self, frame: Any) -> None:
            told.put(frame.body)

    program.set_listener("", Listener())
    program.connect(wait=True)
    program.subscribe("/queue/secured", id="s")
    program.send("/queue/secured", "x" * 100_000)
    assert told.get(timeout=20) == "x" * 100_000
    program.disconnect()


def said_and_heard(plain: socket.socket, context: ssl.SSLContext | None, data: bytes) -> bytes:
    """All that comes back to who says this, and says that he says no more. Python's own sockets end TLS on both sides at once."""
    if context is None:
        plain.sendall(data)
        plain.shutdown(socket.SHUT_WR)
        return plain.makefile("rb").read()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")

    def whole(step: Callable[[], Any]) -> Any:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                if more := plain.recv(65_536):
                    incoming.write(more)
                else:
                    incoming.write_eof()

    whole(tls.do_handshake)
    tls.write(data)
    with pytest.raises(ssl.SSLWantReadError):
        tls.unwrap()
    plain.sendall(outgoing.read())
    heard = b""
    try:
        while True:
            heard += whole(lambda: tls.read(65_536))
    except ssl.SSLZeroReturnError:  # the end, as TLS says it
        return heard


@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("goodbye", [b"", b"DISCONNECT\nreceipt:bye\n\n\0"])
def test_who_says_no_more_in_stomp_is_answered_yet(server: Server, authority: Authority, secured: bool, goodbye: bytes) -> None:
    said = [b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"]
    said += [b"SEND\ndestination:/queue/answered\npersistent:true\nreceipt:%d\n\nx\0" % number for number in range(3)]
    with socket.create_connection(place(server, "stomp-tls" if secured else "stomp"), 20) as plain:
        heard = said_and_heard(plain, trusting(authority) if secured else None, b"".join(said) + goodbye)
    assert re.findall(rb"receipt-id:(\w+)", heard) == [b"0", b"1", b"2", *([b"bye"] if goodbye else [])]


async def test_the_end_of_what_is_said_comes_behind_what_waits_for_its_turn(authority: Authority) -> None:
    """As of a socket that is not read meanwhile."""
    told: list[object] = []
    loop = asyncio.get_running_loop()

    class Above(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            told.append(data)
            self.transport.pause_reading()
            loop.call_later(0.02, self.go_on, "done")

        def go_on(self, what: str) -> None:
            told.append(what)
            self.transport.resume_reading()
            if what == "done":  # and waits again, within the same turn
                self.transport.pause_reading()
                loop.call_later(0.02, self.go_on, "answered")

        def eof_received(self) -> None:
            told.append("end")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("turns"))
    server = await loop.create_server(lambda: TlsTransport(Above(), context), "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname(), 20) as plain:
        assert await asyncio.to_thread(said_and_heard, plain, trusting(authority), b"x") == b""
    server.close()
    assert told == [b"x", "done", "answered", "end"]


async def refused(url: str, why: str) -> None:
    with pytest.raises(homing.ConnectError, match=why) as refusal:
        await homing.connect(url)
    assert refusal.value.code == "certificate-refused"


@pytest.mark.timeout(240)
async def test_new_certificates_under_load_lose_nothing(server: Server, authority: Authority) -> None:
    """Good ones, one that has ended, another host's, and one whose key is another's: what cannot be used changes nothing."""
    file, log = server.directory / "server.pem", server.log_path
    sent, received = 0, 0
    begun, enough = asyncio.Event(), asyncio.Event()

    async def send() -> None:
        nonlocal sent
        async with homing.connect(url(server, authority)) as connection, connection.session() as session:
            producer = session.producer("load")
            while not enough.is_set():
                await producer.send(b"x")
                sent += 1
                begun.set()

    async def replace(new: bytes, says: str) -> None:
        before = log.read_text().count(says)
        file.write_bytes(new)
        os.kill(server.pid, signal.SIGHUP)
        await asyncio.to_thread(wait_until, says, lambda: log.read_text().count(says) > before, 60)

    sending = asyncio.create_task(send())
    await begun.wait()
    good, other = authority.issue("good").read_bytes(), authority.issue("other").read_bytes()
    await replace(authority.issue("ended", days=-1).read_bytes(), "ended on")
    await refused(url(server, authority), "certificate has expired")
    await replace(authority.issue("elsewhere", alternatives=[x509.DNSName("elsewhere")]).read_bytes(), "was taken up anew")
    await refused(url(server, authority), "IP address mismatch")
    await refused(url(server, Authority(server.directory, "foreign")), "unable to get local issuer")
    await replace(authority.issue("soon", days=7).read_bytes(), "in 6 days")
    await replace(good, "was taken up anew")
    key = other.index(b"-----BEGIN PRIVATE")
    await replace(good[: good.index(b"-----BEGIN PRIVATE")] + other[key:], "is not that of the certificate")
    async with homing.connect(url(server, authority)) as connection, connection.session(AckMode.DUPS_OK) as session:
        enough.set()
        await sending
        consumer = session.consumer("load")
        while received < sent and await consumer.receive(20_000) is not None:
            received += 1
        assert received == sent
        assert await consumer.receive(0) is None


async def test_a_change_of_the_files_is_seen_by_itself(server: Server, authority: Authority) -> None:
    before = server.log_path.read_text().count("was taken up anew")
    (server.directory / "server.pem").write_bytes(authority.issue("seen").read_bytes())
    wait_until("it is taken up", lambda: server.log_path.read_text().count("was taken up anew") > before)
    async with homing.connect(url(server, authority)):
        pass


def test_who_gives_new_keys_again_and_again_is_hung_up_on(server: Server) -> None:
    assert flood(place(server, "native-tls"), 100_000) < 100_000
    server.logged("bytes of tls carried nothing")


def test_a_handshake_has_a_slot_and_the_time_of_a_login(tmp_path: Path, authority: Authority) -> None:
    file = str(authority.issue("slow"))
    config = {
        "native": {"port": 0, "tls-port": 0},
        "tls": {"certificate": file, "key": file},
        "limits": {"max-handshakes-per-peer": 2, "login-timeout": "400ms"},
    }
    with closing(Server(tmp_path / "slow", config).start()) as server:
        silent = [socket.create_connection(place(server, "native-tls"), 20) for _ in range(3)]
        for each in silent:
            with each:
                assert each.recv(1) == b"", "nobody who says nothing is waited for"
        server.logged("gave way to another")


def certified(authority: Authority, file: Path) -> ssl.SSLContext:
    context = trusting(authority)
    context.load_cert_chain(file)
    return context


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Server]:
    """It asks clients for certificates and knows the user ann."""
    directory = tmp_path_factory.mktemp("asking")
    file = str(authority.issue("asking"))
    config = {
        "native": {"port": 0, "tls-port": 0},
        "amqp": {"port": 0, "tls-port": 0},
        "tls": {"certificate": file, "key": file, "client-ca": str(authority.file)},
        "users": {"ann": hash_password("secret")},
    }
    with closing(Server(directory, config)) as server:
        yield server.start()


@pytest.mark.timeout(240)
def test_a_message_goes_its_way_whoever_sends_it(asking: Server, authority: Authority) -> None:
    port, amqp_port = (place(asking, name)[1] for name in ("native-tls", "amqp-tls"))
    broker = Broker("localhost", port, amqp_port, str(authority.file), "ann", "secret", directory="")
    for player in (native, blocking_facade, with_pika, with_aio_pika):
        assert player(broker) == SENT


async def test_a_certificate_logs_its_user_in(asking: Server, authority: Authority) -> None:
    ann, eve = authority.issue("ann", to="ann"), authority.issue("eve", to="eve")
    where = url(asking, authority)
    async with homing.connect(where, certfile=str(ann)) as connection:
        (found,) = await connection.listing("connections")
        assert found["user"] == "ann"
    async with homing.connect(where, user="ann", password="secret"):
        pass
    with pytest.raises(homing.ConnectError, match="the certificate is eve's, and there is no such user"):
        await homing.connect(where, certfile=str(eve))
    with pytest.raises(homing.ConnectError, match="wants a user and a password"):
        await homing.connect(where)
    foreign = Authority(asking.directory, "foreign").issue("of-another", to="ann")
    with pytest.raises(homing.ConnectError, match="unknown ca") as refusal:
        await homing.connect(where, certfile=str(foreign))
    assert refusal.value.code == "tls-failed"


def test_amqp_offers_external_to_whom_a_certificate_names(asking: Server, authority: Authority) -> None:
    def external(context: ssl.SSLContext) -> pika.ConnectionParameters:
        options = pika.SSLOptions(context, "localhost")
        return pika.ConnectionParameters(
            *place(asking, "amqp-tls"), ssl_options=options, credentials=pika.credentials.ExternalCredentials()
        )

    with closing(pika.BlockingConnection(external(certified(authority, authority.issue("ann", to="ann"))))) as opened:
        opened.channel().queue_declare("hers")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(external(trusting(authority)))
