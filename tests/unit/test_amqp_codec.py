"""AMQP 0-9-1 on the wire: tables, methods, properties, frames; whole, in pieces, and as nonsense."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.broker.protocols.amqp091 import death_headers
from homing.broker.protocols.amqp091.codec import (
    AckEvent,
    ErrorEvent,
    Event,
    FrameReader,
    HeartbeatEvent,
    MethodEvent,
    NackEvent,
    PublishEvent,
    PublishRun,
    content_frames,
    method_frame,
)
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, read_arguments, write_arguments
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, read_properties, write_properties
from homing.broker.protocols.amqp091.codec_tables import (
    TableError,
    Timestamp,
    join_table,
    read_table,
    read_value,
    split_table,
    write_table,
    write_value,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.integers(0, 1 << 40).map(Timestamp),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(st.text(max_size=20), VALUES, max_size=6)


# -- tables ------------------------------------------------------------------------------------------------------------


@given(TABLES)
def test_tables_come_back_as_they_went(table: dict[str, Any]) -> None:
    raw = write_table(table)
    assert read_table(raw, 0, len(raw)) == (table, len(raw))
    assert join_table(split_table(raw[4:])) == raw[4:]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"t\x01", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 4294967295),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, (1 << 64) - 1),
        (b"f" + struct.pack(">f", 1.5), 1.5),
        (b"d" + struct.pack(">d", 1.1), 1.1),
        (b"D\x02\x00\x00\x01\x3b", Decimal("3.15")),
        (b"S\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
        (b"x\x00\x00\x00\x01a", b"a"),
        (b"T" + (7).to_bytes(8, "big"), 7),
        (b"V", None),
        (b"A\x00\x00\x00\x04t\x01t\x00", [True, False]),
        (b"F\x00\x00\x00\x04\x01at\x01", {"a": True}),
    ],
)
def test_every_type_of_rabbitmqs_clients_is_read(raw: bytes, value: Any) -> None:
    content = b"\x01k" + raw
    table = len(content).to_bytes(4, "big") + content
    assert read_table(table, 0, len(table))[0] == {"k": value}
    assert split_table(content) == {"k": raw}


def test_tables_nested_without_end_are_refused() -> None:
    inner = b"V"
    for _ in range(100):
        inner = b"A" + len(inner).to_bytes(4, "big") + inner
    content = b"\x01k" + inner
    with pytest.raises(TableError):
        read_table(len(content).to_bytes(4, "big") + content, 0, len(content) + 4)


@given(st.binary(max_size=60))
def test_nonsense_is_a_table_error_or_a_table(raw: bytes) -> None:
    for read in (lambda: read_table(raw, 0, len(raw)), lambda: split_table(raw), lambda: read_properties(raw)):
        try:
            read()
        except TableError:
            continue


# -- methods and properties --------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "o": st.integers(0, 255),
    "h": st.integers(0, 65535),
    "l": st.integers(0, (1 << 32) - 1),
    "q": st.integers(0, (1 << 64) - 1),
    "b": st.booleans(),
    "s": st.text(max_size=60),
    "k": st.text(max_size=60) | st.binary(max_size=60).map(lambda key: key.decode("utf-8", "surrogateescape")),
    "S": st.binary(max_size=60),
    "t": TABLES,
}


@pytest.mark.parametrize("name", sorted(NUMBER))
@settings(max_examples=10)
@given(data=st.data())
def test_methods_come_back_as_they_went(name: str, data: st.DataObject) -> None:
    method = METHODS[NUMBER[name]]
    values = [data.draw(ARGUMENTS[kind]) for kind in method.arguments]
    raw = write_arguments(method, tuple(values))
    assert read_arguments(method, raw, 4, len(raw)) == values


TEXT = st.none() | st.text(max_size=9)
PROPERTIES = st.builds(
    ContentProperties,
    content_type=TEXT,
    content_encoding=TEXT,
    headers=st.none() | TABLES.map(lambda table: write_table(table)[4:]),
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=TEXT,
    reply_to=TEXT,
    expiration=TEXT,
    message_id=TEXT,
    timestamp=st.none() | st.integers(0, 1 << 63),
    type=TEXT,
    user_id=TEXT,
    app_id=TEXT,
    cluster_id=TEXT,
)


@given(PROPERTIES)
def test_properties_come_back_as_they_went(properties: ContentProperties) -> None:
    assert read_properties(write_properties(properties)) == properties


# -- frames ------------------------------------------------------------------------------------------------------------


def reader(*channels: int, frame_max: int = 131_072, most: int = 1 << 20) -> FrameReader:
    made = FrameReader(set(channels), most)
    made.frame_max = frame_max
    return made


def one_by_one(events: list[Event]) -> list[Event]:
    """The same without runs: how many make one depends on the cut."""
    return [each for event in events for each in (event.each() if isinstance(event, PublishRun) else [event])]


def publish(channel: int, body: bytes, properties: bytes = b"\x10\x00\x02", frame_max: int = 131_072, key: str = "key") -> bytes:
    payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "exchange", key, True, False))
    return b"".join(content_frames(channel, payload, properties, body, frame_max))


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50), st.sampled_from([16, 64, 131_072]))
def test_any_cut_of_the_stream_gives_the_same_events(bodies: list[bytes], piece: int, frame_max: int) -> None:
    stream = b"".join(publish(1, body, frame_max=frame_max) for body in bodies)
    stream += method_frame(1, "basic.ack", 7, True) + method_frame(1, "queue.purge", 0, "q", False) + b"\x08\x00\x00\x00\x00\x00\x00\xce"
    whole = reader(1)
    expected = one_by_one(whole.feed(stream))
    pieces = reader(1)
    events: list[Event] = []
    for at in range(0, len(stream), piece):
        events += one_by_one(pieces.feed(stream[at : at + piece]))
    assert events == expected
    assert [event.body for event in events if isinstance(event, PublishEvent)] == bodies
    assert events[-3:] == [AckEvent(1, [7], True), MethodEvent(1, NUMBER["queue.purge"], [0, "q", False]), HeartbeatEvent()]


@given(
    st.lists(
        st.tuples(st.sampled_from(["basic.ack", "basic.nack", "basic.reject"]), st.integers(1, 2), st.integers(0, 3), st.integers(1, 50)),
        max_size=6,
    ),
    st.integers(1, 700),
)
def test_acknowledgements_are_told_one_by_one_however_many_come_together(runs: list[tuple[str, int, int, int]], piece: int) -> None:
    stream, tag = b"", 0
    expected: list[tuple[Any, ...]] = []
    for name, channel, bits, times in runs:
        said = [bits & 1 == 1, bits & 2 == 2][: 2 if name == "basic.nack" else 1]  # multiple, requeue; or one of them
        for _ in range(times):
            tag += 1
            stream += method_frame(channel, name, tag, *said)
            expected.append((name, channel, tag, *said))
    made = reader(1, 2)
    reported: list[tuple[Any, ...]] = []
    for at in range(0, len(stream), piece):
        for event in made.feed(stream[at : at + piece]):
            if isinstance(event, AckEvent):
                reported += [("basic.ack", event.channel, each, event.multiple) for each in event.tags]
            elif isinstance(event, NackEvent):
                name = METHODS[event.number].name
                reported += [(name, event.channel, each, *([False] if name == "basic.nack" else []), event.requeue) for each in event.tags]
            elif isinstance(event, MethodEvent):
                reported.append((METHODS[event.number].name, event.channel, *event.values))
    assert reported == expected


def test_a_broken_frame_among_many_acknowledgements_ends_them_there() -> None:
    stream = bytearray(b"".join(method_frame(1, "basic.ack", tag, False) for tag in range(1, 101)))
    stream[21 * 40 + 20] = 0
    first, last = reader(1).feed(bytes(stream))
    assert first == AckEvent(1, list(range(1, 41)), False)
    assert isinstance(last, ErrorEvent)
    assert last.error.code == 501


def frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


PUBLISH = frame(1, 1, write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", "k", False, False)))
HEADER = frame(2, 1, struct.pack(">HHQH", 60, 0, 3, 0))


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (frame(1, 1, b"x" * 5000), 501),
        (frame(1, 1, b"\x00\x0a\x00\x0a", end=b"\x00"), 501),
        (frame(9, 0, b""), 501),
        (frame(8, 1, b""), 501),
        (frame(8, 0, b"x"), 501),
        (frame(1, 1, b"\x00"), 501),
        (frame(1, 1, b"\x00\x63\x00\x63"), 503),
        (frame(1, 1, b"\x00\x32\x00\x0a\x00"), 501),
        (frame(1, 1, b"\x00\x3c\x00\x28\x00"), 501),
        (method_frame(1, "queue.purge", 0, "q", False)[:-1] + b"x", 501),
        (HEADER, 505),
        (frame(3, 1, b"abc"), 505),
        (frame(3, 0, b"abc"), 505),
        (PUBLISH + PUBLISH, 505),
        (PUBLISH + frame(3, 1, b"abc"), 505),
        (PUBLISH + HEADER + HEADER, 505),
        (PUBLISH + HEADER + frame(3, 1, b"abcd"), 505),
        (PUBLISH + frame(2, 1, b"\x00\x3c"), 501),
        (PUBLISH + frame(2, 1, struct.pack(">HHQH", 50, 0, 3, 0)), 505),
    ],
)
def test_malformed_frames_have_their_codes(stream: bytes, code: int) -> None:
    made = reader(1, frame_max=4096)
    events = made.feed(stream + method_frame(1, "tx.select"))
    last = events[-1]
    assert isinstance(last, ErrorEvent)
    assert (last.error.code, last.error.hard) == (code, True)
    assert made.feed(method_frame(1, "tx.select")) == [], "nothing is read after an error"


def test_a_body_that_is_too_large_is_let_go_and_what_follows_is_read() -> None:
    made = reader(1, most=100)
    events = made.feed(publish(1, b"x" * 101, frame_max=64) + publish(1, b"small"))
    assert [(event.body, event.size) for event in events if isinstance(event, PublishEvent)] == [(None, 101), (b"small", 5)]


def test_before_a_channel_is_open_nothing_of_its_content_is_kept() -> None:
    made = reader()
    events = made.feed(publish(3, b"x" * 3000, frame_max=4096))
    assert [type(event) for event in events] == [MethodEvent]
    assert not made._content


def test_random_bytes_never_break_the_reader() -> None:
    rng = random.Random(7)
    good = PUBLISH + HEADER + frame(3, 1, b"abc") + method_frame(1, "queue.declare", 0, "q", False, True, False, False, False, {"x": [1]})
    for _ in range(3000):
        stream = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            stream[rng.randrange(len(stream))] = rng.randrange(256)
        made = reader(1, frame_max=4096)
        cut = rng.randrange(len(stream))
        for part in (bytes(stream[:cut]), bytes(stream[cut:])):
            for event in made.feed(part):
                assert not isinstance(event, ErrorEvent) or 501 <= event.error.code <= 505


def test_half_sent_bodies_have_a_bound_over_all_channels() -> None:
    made = reader(*range(1, 100), frame_max=4096, most=10_000)
    # Two body frames of 4,088 and 3,912 bytes; the second does not come.
    half = [publish(channel, b"x" * 8000, frame_max=4096)[:-3920] for channel in range(1, 100)]
    errors = [event for part in half for event in made.feed(part) if isinstance(event, ErrorEvent)]
    assert [event.error.code for event in errors] == [506]


def test_whole_and_forgotten_bodies_make_room_again() -> None:
    made = reader(1, frame_max=4096, most=10_000)
    for _ in range(50):
        assert [type(event) for event in made.feed(publish(1, b"x" * 9000, frame_max=4096))] == [PublishEvent]
        cut = publish(1, b"x" * 9000, frame_max=4096)
        assert made.feed(cut[: 4096 + 60]) == []
        made.forget(1)
        made._rest = b""
    assert made._gathered == 0


def test_messages_alike_are_read_the_same_however_the_bytes_are_cut() -> None:
    method = NUMBER["basic.publish"].to_bytes(4, "big") + b"\x00\x00" + b"\x00" + b"\x01q" + b"\x00"
    bodies = [b"aaaa", b"bbbb", b"\xce\xce\xce\xce", b"longer", b"cccc", b"dddd"]
    kinds = [b"\x10\x00\x02"] * 4 + [b"\x10\x00\x01"] * 2
    data = b"".join(b"".join(content_frames(1, method, kind, body, 4096)) for kind, body in zip(kinds, bodies, strict=True))
    for cut in range(len(data) + 1):
        reader = FrameReader({1}, 1 << 20)
        events = one_by_one(reader.feed(data[:cut]) + reader.feed(data[cut:]))
        assert [(event.properties, event.body) for event in events if isinstance(event, PublishEvent)] == list(
            zip(kinds, bodies, strict=True)
        )


def test_a_message_alike_that_does_not_end_as_a_frame_is_an_error() -> None:
    method = NUMBER["basic.publish"].to_bytes(4, "big") + b"\x00\x00" + b"\x00" + b"\x01q" + b"\x00"
    one = b"".join(content_frames(1, method, b"\x10\x00\x02", b"body", 4096))
    *whole, last = FrameReader({1}, 1 << 20).feed(one + one + one[:-1] + b"\x00")
    assert [type(event) for event in whole] == [PublishRun]
    assert [type(event) for event in one_by_one(whole)] == [PublishEvent, PublishEvent]
    assert isinstance(last, ErrorEvent)
    assert last.error.code == 501


def test_what_does_not_fit_of_very_many_deaths_is_left_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    size_of = death_headers._size

    def counted(fields: dict[str, bytes]) -> int:
        looks.append(1)
        return size_of(fields)

    monkeypatch.setattr(death_headers, "_size", counted)
    entries = [write_value({"queue": f"q{number}"}) for number in range(1_000)]
    content = b"".join(entries)
    added = {death_headers.X_DEATH: b"A" + len(content).to_bytes(4, "big") + content}
    found = death_headers.as_fits(added, 5_000)
    left, _ = read_value(found[death_headers.LEFT_OUT], 0, len(found[death_headers.LEFT_OUT]))
    assert found[death_headers.X_DEATH][5:] == b"".join(entries[: 1_000 - left])
    assert 5_000 - len(entries[-1]) <= size_of(found) <= 5_000
    assert len(looks) < 10
