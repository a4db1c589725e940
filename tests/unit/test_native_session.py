"""A native session against a whole broker in memory: frames that a client must be able to read, and what wakes it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from homing.broker.core.memory import Kind
from homing.broker.core.message import largest_message
from homing.broker.management.calls import Calls
from homing.broker.process.making import make_broker
from homing.broker.protocols.native.codec import FrameDecoder, Op, ProtocolError, encode
from homing.broker.protocols.native.session import NativeOptions, NativeSession
from tests import inside
from tests.model.world import DictJournal
from tests.session_support import FrameTransport, NoProcess

MAX_FRAME = 1024 * 1024


class House:
    def __init__(self, limits: dict[str, int] | None = None, **settings: Any) -> None:
        self.journal = DictJournal()
        self.now_ms = 1_800_000_000_000
        config = inside.configured({"#": settings}, **(limits or {}))
        self.broker = make_broker(self.journal, config, lambda: self.now_ms, Random(1), lambda: None)
        self.loop = inside.turn_of(self.broker, config)
        self.calls = Calls(self.broker, NoProcess())

    def session(self, client_id: str, limit: int = MAX_FRAME, **more: Any) -> tuple[NativeSession, FrameTransport]:
        socket = FrameTransport(limit)
        options = NativeOptions("id", "test", max_frame_bytes=limit)
        session = NativeSession(self.broker, socket, options, lambda user, password, done: done(""), self.calls.run)
        session.receive([[Op.HELLO, "homing", 1, {"client_id": client_id, **more}]])
        return session, socket

    def turn(self) -> None:
        for _ in range(5):
            self.loop.drain()
            self.journal.commit()


def _say(session: NativeSession, *frames: list[Any]) -> None:
    session.receive([each for frame in frames for each in FrameDecoder().feed(encode(frame))])


def test_small_messages_in_front_of_a_large_one_do_not_make_a_frame_that_no_client_takes() -> None:
    house = House()
    session, socket = house.session("one")
    _say(session, [Op.PRODUCER, 1, 1, "a"])
    large = b"x" * largest_message(MAX_FRAME)
    _say(session, [Op.SEND, 1, 1, [[b"x" * 1000]] * 200], [Op.SEND, 1, 201, [[large]]], [Op.SUBSCRIBE, 2, 1, "a", {}])
    house.turn()
    assert sum(len(frame[3]) for frame in socket.of(Op.DELIVER)) == 201


def _handed_over(socket: FrameTransport) -> list[tuple[Any, ...]]:
    """(tag, everything DELIVER says of the message, with its defaults), whichever frame it came in."""
    found: list[tuple[Any, ...]] = []
    for frame in socket.frames:
        if frame[0] == Op.DELIVER:
            for tag, fields in enumerate(frame[3], frame[2]):
                found.append((tag, *fields, *(True,) * (9 - len(fields))))
        elif frame[0] == Op.DELIVER_BODIES:
            _, _, first, number, count, address, priority, sent_at_ms, durable, bodies = frame
            assert len(bodies) > 1
            for at, body in enumerate(bodies):
                found.append((first + at, number + at, count, address, body, None, priority, sent_at_ms, 0, durable))
    return found


_KINDS: list[Any] = [
    *[[b"body"]] * 8,
    [b"body", {"k": 1}],
    [b"body", None, 7],
    [b"body", None, 4, False],
    [b"body", None, 4, True, 60_000],
    [b"x" * 200_000],
]


@pytest.mark.parametrize("said", [[], [7], [2, False], [4, True, 60_000], [4, True, 0, 5_000]])
def test_bodies_are_the_messages_that_they_stand_for(said: list[Any]) -> None:
    stored = []
    for frame in ([Op.SEND, 1, 1, [[b"one", None, *said], [b"two", None, *said]]], [Op.SEND_BODIES, 1, 1, said, [b"one", b"two"]]):
        house = House()
        session, socket = house.session("one")
        _say(session, [Op.PRODUCER, 1, 1, "a"], frame)
        house.turn()
        assert socket.of(Op.CONFIRM) == [[Op.CONFIRM, 1, 2]]
        stored.append((house.journal.references, inside.memory(house.broker).charged))
    assert stored[0] == stored[1]


def test_bodies_that_are_refused_are_refused_as_the_first_of_them() -> None:
    house = House()
    session, socket = house.session("one")
    _say(session, [Op.PRODUCER, 1, 1, "a"], [Op.SEND_BODIES, 1, 1, [10], [b"one", b"two"]])
    house.turn()
    ((_, _, up_to, refused),) = socket.of(Op.CONFIRM)
    assert (up_to, refused[:2]) == (0, [1, "invalid-message"])


@pytest.mark.parametrize(
    "fields", [[[], [[b"one"]]], [[], ["one"]], [[4, True, 0, 0, "id"], [b"one"]], [{}, [b"one"]], [["4"], []], [[{"k": "v"}], []]]
)
def test_what_are_no_bodies(fields: list[Any]) -> None:
    house = House()
    session, _ = house.session("one")
    _say(session, [Op.PRODUCER, 1, 1, "a"])
    with pytest.raises(ProtocolError) as caught:
        _say(session, [Op.SEND_BODIES, 1, 1, *fields])
    assert caught.value.code == "malformed-frame"


def _conversation(seed: int, joins: bool) -> FrameTransport:
    """What a consumer is sent that fails some of what it got, while messages of many kinds come."""
    rng, house = Random(seed), House()
    session, socket = house.session("one", joins_bodies=joins)
    _say(session, [Op.PRODUCER, 1, 1, "a"], [Op.SUBSCRIBE, 2, 1, "a", {"prefetch": 500}])
    number, settled = 1, 0
    for _ in range(12):
        messages = [rng.choice(_KINDS)] * rng.randint(1, 30) if rng.random() < 0.6 else rng.choices(_KINDS, k=rng.randint(1, 12))
        _say(session, [Op.SEND, 1, number, messages])
        number += len(messages)
        house.now_ms += rng.randint(0, 1)
        house.turn()
        given, failed = len(_handed_over(socket)), settled + rng.randint(1, 9)
        if given > failed:
            _say(session, [Op.GIVEN, 1, given], [Op.ACK, 1, 3, [settled + 1, failed], {"delay_ms": 0}])
            _say(session, [Op.ACK, 1, 4, [failed + 1, given]])
            settled = given
    assert len(_handed_over(socket)) > number
    return socket


def test_who_joins_bodies_is_told_the_same() -> None:
    first, again = 0, 0
    for seed in range(20):
        plain, joining = _conversation(seed, False), _conversation(seed, True)
        assert _handed_over(plain) == _handed_over(joining)
        assert not plain.of(Op.DELIVER_BODIES)
        for frame in joining.of(Op.DELIVER_BODIES):
            first, again = first + (frame[4] == 1), again + (frame[4] > 1)
    assert first, "some came as bodies"
    assert again, "some of what came again did"


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize(
    ("limit", "bodies"),
    [(64 * 1024, [1000] * 200), (MAX_FRAME, [80_000] * 3 + [808_320]), (MAX_FRAME, [260_000] * 9), (64 * 1024, [20, 61_000, 20] * 3)],
)
def test_no_delivery_is_larger_than_what_the_client_takes(limit: int, bodies: list[int], joins: bool) -> None:
    house = House()
    session, socket = house.session("one", limit, joins_bodies=joins)
    _say(session, [Op.PRODUCER, 1, 1, "ü" * 400], [Op.SUBSCRIBE, 2, 1, "ü" * 400, {}])
    session.receive([[Op.SEND, 1, 1, [[b"x" * size] for size in bodies]]])
    house.turn()
    assert len(_handed_over(socket)) == len(bodies)


def test_a_page_of_peek_fits_into_a_frame() -> None:
    house = House()
    session, socket = house.session("one")
    _say(session, [Op.PRODUCER, 1, 1, "a"])
    large = b"x" * largest_message(MAX_FRAME)
    _say(session, [Op.SEND, 1, 1, [[b"x" * 1000]] * 200], [Op.SEND, 1, 201, [[large]]], [Op.SEND, 1, 202, [[b"x"]]])
    house.turn()
    seen, after, request = 0, None, 10
    while seen < 202:
        _say(session, [Op.CALL, request, "peek", {"queue": "a", "limit": 1000, "after": after}])
        (page,) = [frame[2] for frame in socket.of(Op.RESULT) if frame[1] == request]
        seen, after, request = seen + len(page["messages"]), page["next"], request + 1
        assert page["messages"]
    assert after is None


def test_what_is_sent_without_credit_while_memory_is_at_its_limit_is_refused_and_may_be_sent_again() -> None:
    house = House({"memory_limit_bytes": 1024 * 1024})
    session, socket = house.session("one")
    for number in range(1, 5):
        _say(session, [Op.PRODUCER, number, number, "a"])
    house.turn()
    message = [b"x" * 300_000, None, 4, False]
    for number in range(1, 5):
        _say(session, [Op.SEND, number, 1, [message, message, message]])
    house.turn()
    memory = inside.memory(house.broker)
    memory.charge(Kind.CONNECTIONS, memory.limit)
    house.turn()
    assert [frame[1] for frame in socket.of(Op.CREDIT) if frame[2:4] == [0, 0]], "somebody was told to wait"
    held = memory.bytes
    for number in range(1, 5):
        # Repeats are confirmed all the same; what follows a refused one is ignored.
        _say(session, [Op.SEND, number, 3, [message, message]], [Op.SEND, number, 5, [message]])
    house.turn()
    refused = {frame[1]: (frame[2], *frame[3][:2]) for frame in socket.of(Op.CONFIRM) if len(frame) > 3}
    assert {each[2] for each in refused.values()} == {"credit-exceeded"}
    number = next(number for number, each in refused.items() if each[:2] == (3, 4))
    _say(session, [Op.SEND, number, 0, [message], 7], [Op.COMMIT, 2, 7, "id", 1])
    house.turn()
    assert [frame[2] for frame in socket.of(Op.REFUSED)] == ["credit-exceeded"]
    assert memory.bytes - held < 4 * 310_000, "what was refused takes no memory"
    memory.charge(Kind.CONNECTIONS, -memory.limit)
    _say(session, [Op.CALL, 3, "purge", {"queue": "a"}])
    house.turn()
    assert [frame[4] for frame in socket.of(Op.CREDIT) if frame[1] == number][-1] is None, "granted again"
    _say(session, [Op.SEND, number, 4, [message, message]])
    house.turn()
    assert [frame[2:] for frame in socket.of(Op.CONFIRM) if frame[1] == number][-1] == [5]
    with pytest.raises(ProtocolError) as caught:
        _say(session, *([Op.SEND, number, each, [message] * 3] for each in range(6, 600, 3)))
    assert caught.value.code == "credit-exceeded"


def test_what_is_not_durable_and_only_put_back_is_written_at_its_third_failure() -> None:
    """The client says how it came back, which alone is no report."""
    house = House(None, **{"redelivery-delay": 0, "max-delivery-attempts": -1})
    session, socket = house.session("one")
    _say(session, [Op.PRODUCER, 1, 1, "a"], [Op.SEND, 1, 1, [[b"body", None, 4, False]]], [Op.SUBSCRIBE, 2, 1, "a", {}])
    written = []
    for number in range(1, 4):
        house.turn()
        assert len(_handed_over(socket)) == number
        _say(session, [Op.GIVEN, 1, number], [Op.ACK, 1, 3, [number, number], {"outcome": "nack"}])
        house.journal.commit()
        written.append(len(house.journal.rows()))
    assert written == [0, 0, 1]
