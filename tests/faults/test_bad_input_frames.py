"""Bytes that are no frames, or frames that cost more than they look: an ERROR with a code ends that connection, and no other notices."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from homing.broker.protocols.native.codec import MAX_FRAME_BYTES, Op, encode
from tests.faults.hostile import Raw, ends_well, good_client, memory_mib, reset_peak
from tests.pauses import tried_again
from tests.process import Server

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("frames") / "broker")
    yield server.start()
    ends_well(server)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that does not wait long for a login."""
    server = Server(tmp_path_factory.mktemp("hurried") / "broker", {"limits": {"login-timeout": "700ms"}})
    yield server.start()
    ends_well(server)


def array(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def nest(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


#: What follows a login -> the code that ends the connection. Payloads; their length is true.
PAYLOADS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "malformed-frame"),
    "not an array": (b"\x01", "malformed-frame"),
    "empty array": (b"\x90", "malformed-frame"),
    "op is text": (msgpack.packb(["SEND", 1]), "malformed-frame"),
    "op is true": (msgpack.packb([True]), "malformed-frame"),
    "op is a float": (msgpack.packb([12.0]), "malformed-frame"),
    "never used byte": (b"\x91\xc1", "malformed-frame"),
    "cut short": (msgpack.packb([8, 1, "queues", {}])[:-3], "malformed-frame"),
    "two values": (msgpack.packb([3]) + msgpack.packb([3]), "malformed-frame"),
    "array longer than the frame": (b"\xdd\xff\xff\xff\xff", "malformed-frame"),
    "map longer than the frame": (b"\x92\x08\xdf\xff\xff\xff\xff", "malformed-frame"),
    "text that is no utf-8": (b"\x94\x08\x01\xa2\xff\xfe\x80", "malformed-frame"),
    "lone surrogate": (b"\x94\x08\x01\xa3\xed\xa0\x80\x80", "malformed-frame"),
    "extension": (msgpack.packb([8, 1, "queues", {"a": msgpack.ExtType(5, b"x")}]), "malformed-frame"),
    "timestamp": (msgpack.packb([8, 1, "queues", {"a": msgpack.Timestamp(1, 2)}]), "malformed-frame"),
    "map with a number as key": (msgpack.packb([8, 1, "queues", {1: 2}]), "malformed-frame"),
    "1,000 levels": (b"\x94\x08\x01\xa6queues" + b"\x91" * 1000 + b"\x90", "malformed-frame"),
    "2,000 levels": (b"\x94\x08\x01\xa6queues" + b"\x91" * 2000 + b"\x90", "malformed-frame"),
    "17 levels": (msgpack.packb([8, 1, "queues", {"a": nest(15)}]), "nested-too-deep"),
    "900 levels in a map": (b"\x94\x08\x01\xa6queues\x81\xa1a" + b"\x91" * 900 + b"\x90", "nested-too-deep"),
    "900 levels of ranges": (b"\x93\x1b\x01" + b"\x91" * 900 + b"\x90", "malformed-frame"),
    "900 levels of messages": (b"\x94\x0c\x01\x01" + b"\x91" * 900 + b"\x90", "malformed-frame"),
    "unknown op": (msgpack.packb([99]), "unknown-op"),
    "op of the broker": (msgpack.packb([2, 1, {}]), "unknown-op"),
    "huge op": (msgpack.packb([2**64 - 1]), "unknown-op"),
    "negative op": (msgpack.packb([-1]), "unknown-op"),
    "second HELLO": (msgpack.packb([1, "homing", 1, {}]), "second-hello"),
    "heartbeat with a field": (msgpack.packb([3, 1]), "malformed-frame"),
}


async def test_every_malformed_frame_ends_its_connection_with_a_code(server: Server) -> None:
    def attack() -> None:
        for name, (payload, code) in PAYLOADS.items():
            with Raw(server.url) as raw:
                raw.framed(payload)
                assert raw.error(name)[1] == code, name

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_sixteen_levels_are_taken(server: Server) -> None:
    def ask() -> None:
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 7, "queues", {"a": nest(14)})
            assert raw.refusal(7)[2] == "invalid-argument"
            raw.alive()

    await asyncio.to_thread(ask)


async def test_a_repeated_key_means_its_last_value(server: Server) -> None:
    """msgpack allows it; nobody is hurt by it."""

    def send() -> None:
        with Raw(server.url) as raw:
            raw.producer("twice")
            raw.framed(b"\x94\x0c\x01\x01\x91\x92\xc4\x01x\x82\xa1k\x01\xa1k\x02")
            assert raw.until(Op.CONFIRM)[2] == 1
            raw.send(Op.CALL, 5, "peek", {"queue": "twice"})
            assert raw.until(Op.RESULT)[2]["messages"][0]["properties"] == {"k": 2}

    await asyncio.to_thread(send)


async def test_oversize_frames_are_refused_by_their_length(server: Server) -> None:
    def attack() -> None:
        for length in (MAX_FRAME_BYTES + 1, 64 * MIB, 2**31, 2**32 - 1):
            with Raw(server.url) as raw:
                raw.raw(length.to_bytes(4, "big") + b"x" * 100_000)
                assert raw.error()[1] == "frame-too-large", length
        # The sender goes on writing: it must still be able to read why.
        with Raw(server.url) as raw:
            raw.framed(b"x" * (64 * MIB))
            assert raw.error()[1] == "frame-too-large"
        with Raw(server.url, hello=False) as raw:
            raw.raw((8 * 1024 + 1).to_bytes(4, "big"))
            assert raw.error()[1] == "frame-too-large"
        with Raw(server.url, hello=False) as raw:
            raw.raw(b"".join(encode([Op.HEARTBEAT, "x" * 100]) for _ in range(100)))
            assert raw.error()[1] in ("login-expected", "hello-expected")

    reset_peak(server.pid)
    before = memory_mib(server.pid)
    async with good_client(server.url):
        await asyncio.to_thread(attack)
    assert memory_mib(server.pid, "VmHWM") - before < 64


FLOODS = {
    "empty arrays": b"\x94\x0c\x01\x01" + array(MAX_FRAME_BYTES - 64, b"\x90"),
    "empty maps": b"\x94\x08\x01\xa1q" + array(MAX_FRAME_BYTES - 64, b"\x80"),
    "arrays of arrays": b"\x94\x0c\x01\x01" + array(160, array(100_000, b"\x90")),
    "tiny messages": b"\x94\x0c\x01\x01" + array(5_000_000, b"\x91\xc4\x00"),
    "short texts": b"\x94\x08\x01\xa1q" + array(5_000_000, b"\xa2\xc4\x80"),
    "numbers": b"\x96\x17\x01\x02" + array(1_800_000, b"\xcf" + b"\x01" * 8) + b"\xc0\x01",
    "as many as are counted, and a body": b"\x94\x08\x01\xa1q" + array(450_000, b"\x80") + b"\xc6" + (15 * MIB).to_bytes(4, "big"),
    "under the size that is counted": b"\x94\x0c\x01\x01" + array(MIB - 64, b"\x90"),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_frame_of_very_many_values_costs_neither_memory_nor_time(server: Server, flood: str) -> None:
    payload = FLOODS[flood]

    def attack() -> None:
        with Raw(server.url) as raw:
            raw.producer("x")
            raw.framed(payload)
            assert raw.error()[1] in ("too-many-values", "malformed-frame", "credit-exceeded")

    reset_peak(server.pid)
    async with good_client(server.url):
        await asyncio.to_thread(attack)
    assert memory_mib(server.pid, "VmHWM") < 400


async def test_garbage(server: Server) -> None:
    chance = random.Random(1)
    pieces = [chance.randbytes(chance.randrange(1, 3000)) for _ in range(60)]
    # Where they come first, these are answered in their own words (tests/integration/test_wrong_port.py).
    foreign = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"CONNECT\naccept-version:1.2\n\n\x00", b"\x16\x03\x01" * 50]

    def attack() -> None:
        for number, piece in enumerate([*pieces, *foreign]):
            with Raw(server.url, hello=number % 2 == 1 or piece in foreign) as raw:
                # Garbage may begin like a short frame's head and wait for more; the end of the stream decides.
                raw.raw(piece)
                raw.socket.shutdown(socket.SHUT_WR)
                while (frame := raw.next()) is not None:
                    assert frame[0] in (Op.ERROR, Op.HEARTBEAT), frame

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_frames_cut_off_anywhere_are_as_if_never_sent(server: Server) -> None:
    send = encode([Op.SEND, 1, 1, [[b"cut", {"k": "v"}], [b"off"]]])

    def attack() -> None:
        for cut in range(1, len(send), 3):
            with Raw(server.url) as raw:
                raw.producer("cut")
                raw.raw(send[:cut])
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 1, "queues", {})
            assert "cut" not in [queue["name"] for queue in raw.until(Op.RESULT)[2]]

    async with good_client(server.url):
        await asyncio.to_thread(attack)


@tried_again
async def test_a_login_byte_by_byte_is_ended_when_its_time_is_over(hurried: Server) -> None:
    def drip() -> float:
        began = time.monotonic()
        with Raw(hurried.url, hello=False) as raw:
            for byte in encode([Op.HELLO, "homing", 1, {"product": "x" * 4000}]):
                raw.raw(bytes([byte]))
                time.sleep(0.01)
                if time.monotonic() - began > 1.2:
                    break
            assert raw.error()[1] == "login-timeout"
            return time.monotonic() - began

    async with good_client(hurried.url):
        took = await asyncio.gather(*(asyncio.to_thread(drip) for _ in range(4)))
    assert min(took) >= 0.65


@tried_again
async def test_silence_before_login_is_ended_too(hurried: Server) -> None:
    def wait() -> None:
        with Raw(hurried.url, hello=False) as raw:
            assert raw.error()[1] == "login-timeout"

    async with good_client(hurried.url):
        await asyncio.gather(*(asyncio.to_thread(wait) for _ in range(4)))


async def test_a_frame_byte_by_byte_costs_no_more_than_its_size(server: Server) -> None:
    frame = encode([Op.CALL, 1, "queues", {"x": "y" * 30_000}])

    def drip() -> None:
        with Raw(server.url) as raw:
            raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in frame[:-1]:
                raw.raw(bytes([byte]))
            raw.raw(frame[-1:])
            assert raw.refusal(1)[2] == "invalid-argument"
            raw.alive()

    async with good_client(server.url):
        await asyncio.to_thread(drip)


HELLOS: dict[str, tuple[list[Any], str]] = {
    "other protocol": ([1, "amqp", 1, {}], "hello-expected"),
    "magic is binary": ([1, b"homing", 1, {}], "malformed-frame"),
    "later version": ([1, "homing", 2, {}], "unsupported-version"),
    "version is text": ([1, "homing", "1", {}], "malformed-frame"),
    "huge version": ([1, "homing", 2**64 - 1, {}], "unsupported-version"),
    "options are a list": ([1, "homing", 1, []], "malformed-frame"),
    "no options": ([1, "homing", 1], "malformed-frame"),
    "another op first": ([8, 1, "queues", {}], "hello-expected"),
    "client_id is a number": ([1, "homing", 1, {"client_id": 5}], "malformed-frame"),
    "client_id is long": ([1, "homing", 1, {"client_id": "x" * 257}], "malformed-frame"),
    "client_id has a line end": ([1, "homing", 1, {"client_id": "a\nb"}], "malformed-frame"),
    "heartbeat is negative": ([1, "homing", 1, {"heartbeat_ms": -1}], "malformed-frame"),
    "heartbeat is huge": ([1, "homing", 1, {"heartbeat_ms": 2**64 - 1}], "malformed-frame"),
    "heartbeat is NaN": ([1, "homing", 1, {"heartbeat_ms": float("nan")}], "malformed-frame"),
    "joins_bodies is a number": ([1, "homing", 1, {"joins_bodies": 1}], "malformed-frame"),
    "user is a list": ([1, "homing", 1, {"user": ["a"]}], "malformed-frame"),
    "policies are a list": ([1, "homing", 1, {"redelivery_policies": [1]}], "invalid-redelivery-policy"),
    "policy with NaN": (
        [1, "homing", 1, {"redelivery_policies": {"#": {"back_off_multiplier": float("nan")}}}],
        "invalid-redelivery-policy",
    ),
    "policy with infinity": (
        [1, "homing", 1, {"redelivery_policies": {"#": {"back_off_multiplier": float("inf")}}}],
        "invalid-redelivery-policy",
    ),
    "policy with 2^64-1": (
        [1, "homing", 1, {"redelivery_policies": {"#": {"redelivery_delay_ms": 2**64 - 1}}}],
        "invalid-redelivery-policy",
    ),
    "policy for no pattern": ([1, "homing", 1, {"redelivery_policies": {"a..b": {}}}], "invalid-redelivery-policy"),
    "policy of words": ([1, "homing", 1, {"redelivery_policies": {"#": {"maximum_redeliveries": "six"}}}], "invalid-redelivery-policy"),
    "deep options": ([1, "homing", 1, {"x": nest(20)}], "nested-too-deep"),
}


async def test_every_wrong_hello_is_answered_with_a_code(server: Server) -> None:
    def attack() -> None:
        for name, (frame, code) in HELLOS.items():
            with Raw(server.url, hello=False) as raw:
                raw.send(*frame)
                assert raw.error()[1] == code, name

    async with good_client(server.url):
        await asyncio.to_thread(attack)
