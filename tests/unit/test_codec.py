"""The native codec by itself: every way a stream can be cut, the count of values, the rules of ranges."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.protocols.native.codec import (
    MAX_FRAME_BYTES,
    MAX_RANGES,
    MAX_VALUES,
    FrameDecoder,
    Op,
    ProtocolError,
    check_ranges,
    encode,
    encode_bodies,
    holds_more_values,
    ranges_of,
)

FRAMES: list[list[Any]] = [[3], [12, 1, 1, [[b"x" * 5000], [b"", {"k": "v"}]]], [23, 1, 4, [1, 7]], [8, 1, "queues", {}]]
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


def values_in(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(values_in(each) for each in value)
    if isinstance(value, dict):
        return 1 + len(value) + sum(values_in(each) for each in value.values())
    return 1


@given(st.lists(scalars, min_size=1, max_size=14), st.lists(st.binary() | st.sampled_from([b"x" * 255, b"x" * 256, b"x" * 70_000])))
def test_a_frame_that_ends_with_bodies_is_the_frame_that_it_stands_for(head: list[Any], bodies: list[bytes]) -> None:
    data = encode_bodies(tuple(head), bodies)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert msgpack.unpackb(data[4:]) == msgpack.unpackb(encode([*head, bodies])[4:])


@given(st.lists(st.integers(1, 6000), max_size=12), st.integers(0, 2**32))
def test_frames_are_the_same_however_the_stream_is_cut(sizes: list[int], seed: int) -> None:
    stream = b"".join(encode(frame) for frame in FRAMES)
    chance = random.Random(seed)
    decoder, found, at = FrameDecoder(), [], 0
    while at < len(stream):
        size = chance.choice(sizes) if sizes else 1 + chance.randrange(9000)
        found += decoder.feed(stream[at : at + size])
        at += size
    assert found == FRAMES
    assert decoder.buffered == 0


def test_a_frame_byte_by_byte_is_kept_in_one_buffer() -> None:
    decoder = FrameDecoder()
    stream = encode([8, 1, "x" * 100_000, {}])
    for at in range(len(stream) - 1):
        assert decoder.feed(stream[at : at + 1]) == []
    assert decoder.buffered == len(stream) - 1
    assert len(decoder._chunks) <= 3
    assert decoder.feed(stream[-1:]) == [[8, 1, "x" * 100_000, {}]]


def test_a_length_over_the_limit_is_refused_before_anything_is_kept() -> None:
    decoder = FrameDecoder(limit=100)
    with pytest.raises(ProtocolError) as caught:
        decoder.feed((101).to_bytes(4, "big"))
    assert caught.value.code == "frame-too-large"
    decoder = FrameDecoder(limit=100)
    assert decoder.feed(encode([8, "x" * 50])) == [[8, "x" * 50]]


@given(values)
def test_values_are_counted_as_they_are_built(value: Any) -> None:
    payload = msgpack.packb(value)
    count = values_in(value)
    assert not holds_more_values(payload, count)
    assert holds_more_values(payload, count - 1)


@given(st.binary(max_size=300), st.integers(1, 50))
def test_counting_ends_on_any_bytes(payload: bytes, limit: int) -> None:
    counted = holds_more_values(payload, limit)
    try:
        value = msgpack.unpackb(payload)
    except Exception:
        return
    if isinstance(value, list | int | str | bytes | float | bool):
        assert counted == (values_in(value) > limit)


@pytest.mark.parametrize("first", range(256))
def test_every_first_byte_is_counted_as_msgpack_reads_it(first: int) -> None:
    payload = bytes([first]) + b"\x00" * 70
    unpacker = msgpack.Unpacker(strict_map_key=False, raw=True)
    unpacker.feed(payload)
    try:
        value = unpacker.unpack()
    except Exception:
        assert first == 0xC1 or 0xC7 <= first <= 0xC9 or 0xD4 <= first <= 0xD8
        return
    if not isinstance(value, dict | msgpack.ExtType | msgpack.Timestamp):
        assert not holds_more_values(payload, values_in(value))
        assert values_in(value) == 1 or holds_more_values(payload, values_in(value) - 1)


def test_a_large_frame_of_too_many_values_is_refused_and_one_of_large_bodies_is_not() -> None:
    for payload in (
        b"\xdd" + (8 << 20).to_bytes(4, "big") + b"\x90" * (8 << 20),
        b"\xdd" + b"\x00\x0f\xff\xff" + b"\x92\x01\x02" * 0xFFFFF,
    ):
        with pytest.raises(ProtocolError) as caught:
            FrameDecoder().feed(len(payload).to_bytes(4, "big") + payload)
        assert caught.value.code == "too-many-values"
    frame = [12, 1, 1, [[b"\x90" * 1_000_000] for _ in range(15)]]
    assert FrameDecoder().feed(encode(frame)) == [frame]
    assert MAX_VALUES * 100 < 128 << 20 > MAX_FRAME_BYTES


@given(st.binary(max_size=200))
def test_nothing_but_a_protocol_error_comes_of_any_bytes(data: bytes) -> None:
    try:
        frames = FrameDecoder().feed(data)
    except ProtocolError as error:
        if error.code and error.message and error.fix:
            return
        raise
    assert all(type(frame) is list and type(frame[0]) is int for frame in frames)


@pytest.mark.parametrize("payload", [b"", b"\x90", b"\xc0", b"\x91\xc3", b"\x91\xa0", b"\x91\xcb" + bytes(8), b"\x81\x01\x02", b"\x91\xc1"])
def test_a_frame_is_an_array_that_begins_with_a_number(payload: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        FrameDecoder().feed(len(payload).to_bytes(4, "big") + payload)
    assert caught.value.code == "malformed-frame"


@given(st.sets(st.integers(1, 500)))
def test_ranges_stand_for_their_tags(tags: set[int]) -> None:
    ranges = ranges_of(sorted(tags))
    assert check_ranges(ranges) == ranges
    assert {tag for at in range(0, len(ranges), 2) for tag in range(ranges[at], ranges[at + 1] + 1)} == tags


@pytest.mark.parametrize(
    "ranges", [None, {}, "1", [1], [2, 1], [0, 0], [-1, 1], [1, 1, 1, 2], [1, 2**63], [1.0, 1.0], [True, 1], [1, None]]
)
def test_what_are_no_ranges(ranges: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_ranges(ranges)
    assert caught.value.code == "malformed-frame"


def test_more_ranges_than_a_window_can_hold() -> None:
    ranges = [tag for n in range(1, MAX_RANGES + 2) for tag in (2 * n, 2 * n)]
    assert check_ranges(ranges[:-2]) == ranges[:-2]
    with pytest.raises(ProtocolError) as caught:
        check_ranges(ranges)
    assert caught.value.code == "too-many-ranges"


def test_op_numbers_are_the_protocol() -> None:
    assert {op.name: int(op) for op in Op} == {
        "HELLO": 1,
        "WELCOME": 2,
        "HEARTBEAT": 3,
        "CLOSE": 4,
        "CLOSED": 5,
        "ERROR": 6,
        "REFUSED": 7,
        "CALL": 8,
        "RESULT": 9,
        "PRODUCER": 10,
        "CREDIT": 11,
        "SEND": 12,
        "CONFIRM": 13,
        "END_PRODUCER": 14,
        "SUBSCRIBE": 20,
        "DELIVER": 21,
        "GIVEN": 22,
        "ACK": 23,
        "NOT_HELD": 24,
        "PULL": 25,
        "PULL_EMPTY": 26,
        "TOUCH": 27,
        "UNSUBSCRIBE": 28,
        "CANCELLED": 29,
        "COMMIT": 30,
        "ROLLBACK": 31,
        "SESSION_ENDED": 32,
        "DELIVER_BODIES": 33,
        "SEND_BODIES": 34,
    }
