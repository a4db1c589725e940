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
from homing.broker.protocols.codec_spoken import NAMES
from tests.process import HomingCommand, Server, wait_until


def place(server: Server, name: str) -> tuple[str, int]:
    host, _, port = server.ready[name].rpartition(":")
    return host, int(port)


def test_every_protocol_is_recognised_on_every_port(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    server = start_server({"amqp": {"port": 0}, "http": {"port": 0}})
    for ours in ("native", "amqp", "http"):
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
        if ours != "native":
            wrong = homing("queues", "--json", url=f"homing://{server.ready[ours]}")
            reported = {"code": "wrong-protocol", "message": f"this port speaks {NAMES[ours]}, not the native protocol", "exit_code": 3}
            assert wrong.returncode == 3
            assert json.loads(wrong.stderr) == {**reported, "fix": "use the port of native: in broker.yaml, 7171 as shipped"}
        for theirs in {"native", "amqp", "http", "tls"} - {ours}:
            words = f"speaks {NAMES[theirs]} on a port for {NAMES[ours]}: "
            wait_until(words, lambda words=words: words in server.log_path.read_text())


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
