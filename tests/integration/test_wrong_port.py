"""Whoever comes to the wrong port is told, and so is the log."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import Callable

import pika
import pytest
from pika.exceptions import IncompatibleProtocolError

import homing
from homing.broker.config.config import default_config, parse
from homing.broker.config.models import StompSection
from homing.broker.errors import Refused
from homing.broker.process.listeners import listen
from homing.broker.protocols.codec_spoken import NAMES
from tests.process import HomingCommand, Server, wait_until

#: What no port is for -> the first that such a client sends, and how it is answered, from where to where.
FOREIGN = (
    ("MQTT", b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x3c\x00\x01a", (b"\x20\x02\x00\x03", b"\x03")),
    ("MQTT 5", b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a", (b"\x20", b", 5672 as shipped")),
    ("MQTT", b"\x10\x8d\x01\x00\x04MQTT\x04\x02\x00\x3c\x00\x81" + 129 * b"a", (b"\x20\x02\x00\x03", b"\x03")),
    ("AMQP 1.0", b"AMQP\x00\x01\x00\x00", (b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x00\x09\x01")),
    ("AMQP 1.0", b"AMQP\x03\x01\x00\x00", (b"AMQP\x00\x00\x09\x01", b"AMQP\x00\x00\x09\x01")),
)


def place(server: Server, name: str) -> tuple[str, int]:
    host, _, port = server.ready[name].rpartition(":")
    return host, int(port)


def test_every_protocol_is_recognised_on_every_port(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    server = start_server({"amqp": {"port": 0}, "stomp": {"port": 0}, "http": {"port": 0}})
    for ours in ("native", "amqp", "stomp", "http"):
        host, port = place(server, ours)
        with (
            socket.create_connection((host, port), 20) as plain,
            pytest.raises(ssl.SSLError, match=r"WRONG_VERSION_NUMBER|wrong version number"),
        ):
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
        if ours != "http":
            web = http.client.HTTPConnection(host, port, timeout=20)
            web.request("GET", "/")
            answer = web.getresponse()
            said = f"this port speaks {NAMES[ours]}, not HTTP; use the port of http: in broker.yaml, 7172 as shipped\n"
            assert (answer.status, answer.read().decode()) == (400, said)
            web.close()
        if ours != "amqp":
            with pytest.raises(IncompatibleProtocolError):
                pika.BlockingConnection(pika.ConnectionParameters(host, port))
        if ours != "stomp":
            with socket.create_connection((host, port), 20) as stranger:
                stranger.sendall(b"STOMP\r\naccept-version:1.2\r\n\r\n\0")
                told = b"".join(iter(lambda: stranger.recv(4096), b""))
            assert told.startswith(b"ERROR\nmessage:this port speaks ")
            assert told.endswith(b" use the port of stomp: in broker.yaml, 61613 as shipped\n\0\n")
        if ours != "native":
            wrong = homing("queues", "--json", url=f"homing://{server.ready[ours]}")
            reported = {"code": "wrong-protocol", "message": f"this port speaks {NAMES[ours]}, not the native protocol", "exit_code": 3}
            assert wrong.returncode == 3
            assert json.loads(wrong.stderr) == {**reported, "fix": "use the port of native: in broker.yaml, 7171 as shipped"}
        for theirs in {"native", "amqp", "stomp", "http", "tls"} - {ours}:
            words = f"speaks {NAMES[theirs]} on a port for {NAMES[ours]}: "
            wait_until(words, lambda words=words: words in server.log_path.read_text())


def test_who_speaks_what_no_port_is_for_is_answered_in_it(start_server: Callable[..., Server]) -> None:
    server = start_server({"amqp": {"port": 0}, "http": {"port": 0}})
    # The log leaves out what is beyond twenty lines of a kind.
    for ours, foreign in (("native", FOREIGN), ("amqp", FOREIGN[::2]), ("http", FOREIGN[::2])):
        for theirs, first, (beginning, end) in foreign:
            with socket.create_connection(place(server, ours), 20) as stranger:
                stranger.sendall(first)
                answer = b"".join(iter(lambda: stranger.recv(4096), b""))
            assert answer.startswith(beginning), (ours, theirs, answer)
            assert answer.endswith(end), (ours, theirs, answer)
        came = [theirs for theirs, _, _ in foreign]
        for theirs in set(came):
            words = f" speaks {theirs} on a port for {NAMES[ours]}: use AMQP 0-9-1, at the port of amqp: in broker.yaml, 5672 as shipped\n"
            number = came.count(theirs)
            wait_until(words, lambda words=words, number=number: server.log_path.read_text().count(words) == number)


@pytest.mark.parametrize(
    ("answer", "spoken"),
    [(b"AMQP\0\0\x09\x01", "AMQP"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"), (b"\x15\x03\x01\0\x02\x02\x46", "TLS")],
)
async def test_the_client_recognises_what_answers(answer: bytes, spoken: str) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as somebody:
        port = somebody.sockets[0].getsockname()[1]
        with pytest.raises(homing.ConnectError, match=f"what answers there speaks {spoken}, not the native protocol") as refused:
            await homing.connect(f"homing://127.0.0.1:{port}")
        assert (refused.value.code, refused.value.fix) == (
            "wrong-protocol",
            "name the port of native: in the broker's broker.yaml, 7171 as shipped",
        )


async def test_a_port_that_is_taken_stops_a_start_only_where_somebody_asked_for_it(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        section = StompSection(port=taken.getsockname()[1])
        with pytest.raises(Refused, match="stomp cannot listen on "):
            await listen("stomp", section, asyncio.Protocol, None)
        assert await listen("stomp", section, asyncio.Protocol, None, needed=False) == {}
    assert "not-listening: stomp cannot listen on " in caplog.text
    assert [default_config().names("stomp"), parse("stomp: {port: 0}").names("stomp")] == [False, True]
