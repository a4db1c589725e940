"""Whose connection a node passes on: believed of whoever knows the cell's secret, and of nobody else."""

from __future__ import annotations

import asyncio
import random

import pytest

from homing.broker.protocols.codec_proxy import NotPassed, Peer, header, read_header
from homing.broker.protocols.passed import MaybePassed

SECRET = b"0123456789abcdef0123456789abcdef"
#: As its specification has it: signature, version 2 and PROXY, TCP over IPv4, length; addresses, ports; fields.
HEAD = bytes.fromhex("0d0a0d0a000d0a515549540a")
V4 = HEAD + bytes.fromhex("2111 002f c0000207 0a000001 d431 1c03 e00020") + SECRET
V6 = HEAD + bytes.fromhex("2121 0047 20010db8000000000000000000000007 fe800000000000000000000000000001 d431 1c03 e00020") + SECRET


def test_a_header_is_as_the_specification_has_it_and_is_read_wherever_it_is_cut() -> None:
    for said, peer, here in (
        (V4, Peer("192.0.2.7", 54_321), Peer("10.0.0.1", 7_171)),
        (V6, Peer("2001:db8::7", 54_321), Peer("fe80::1%eth0", 7_171)),
    ):
        assert header(peer, here, SECRET) == said
        assert read_header(said + b"HELLO", SECRET) == (peer, b"HELLO")
        assert [read_header(said[:size], SECRET) for size in range(len(said))] == [None] * len(said)
    noted = HEAD + bytes.fromhex("2111 0034 c0000207 0a000001 d431 1c03 0400020000 e00020") + SECRET
    assert read_header(noted, SECRET) == (Peer("192.0.2.7", 54_321), b"")


@pytest.mark.parametrize(
    "first",
    [
        V4[:-1] + b"x",
        V4[:-35].replace(b"\x00\x2f", b"\x00\x0c"),  # without the secret
        V4[:-33] + b"\x00" + SECRET,  # of no bytes
        V4.replace(b"\x21\x11", b"\x20\x11"),  # LOCAL
        V4.replace(b"\x21\x11", b"\x21\x31"),  # UNIX
        V4.replace(b"\x00\x2f", b"\x00\x0b"),
        V4.replace(b"\x00\x2f", b"\xff\xff"),
        b"PROXY TCP4 192.0.2.7 10.0.0.1 54321 7171\r\n",
        b"\r\nCONNECT\n\n\x00",
    ],
)
def test_nobody_else_is_believed(first: bytes) -> None:
    with pytest.raises(NotPassed):
        read_header(first, SECRET)


def test_whatever_comes_is_a_header_or_none() -> None:
    chance = random.Random(50)
    for _ in range(5_000):
        first = bytearray(chance.choice((V4, V6)))
        for _ in range(chance.randrange(1, 4)):
            first[chance.randrange(len(HEAD), len(first) - 32)] = chance.randrange(256)
        cut = bytes(first[: chance.randrange(len(first) + 1)])
        try:
            found = read_header(cut + chance.randbytes(chance.randrange(20)), SECRET)
        except NotPassed:
            continue
        assert found is None or found[0].port < 65_536


class Above(asyncio.Protocol):
    def __init__(self) -> None:
        self.told: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def came_from(self, peer: Peer) -> None:
        self.told.append(peer)

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> None:
        self.told.append("end")


class Socket(asyncio.Transport):
    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def comes(self, *chunks: bytes) -> None:
        for each in chunks:
            self.protocol.data_received(each)


def test_what_follows_goes_to_the_protocol_of_the_port_and_nothing_of_it_is_lost() -> None:
    peer = Peer("192.0.2.7", 54_321)
    for chunks, told in (
        ((V4, b"HELLO", b"more"), ["made", peer, b"HELLO", b"more"]),
        ((V4[:9], V4[9:] + b"HELLO"), ["made", peer, b"HELLO"]),
        ((b"HELLO", V4), ["made", b"HELLO", V4]),
        ((b"\r\n", b"CONNECT"), ["made", b"\r\nCONNECT"]),
        ((V4[:-1], b"x", b"y"), ["made", V4[:-1] + b"x", b"y"]),
    ):
        above = Above()
        Socket(MaybePassed(above, SECRET)).comes(*chunks)
        assert above.told == told
    above = Above()
    socket = Socket(MaybePassed(above, SECRET))
    socket.comes(b"\r\n")
    socket.protocol.eof_received()
    assert above.told == ["made", b"\r\n", "end"]
