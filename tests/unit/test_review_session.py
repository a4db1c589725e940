"""A native session against a whole broker in memory: frames that a client must be able to read, and what wakes it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.broker import Broker, BrokerLimits
from broker.core.address_settings import AddressSettingsRepository
from broker.errors import Refused
from broker.management.calls import Calls
from broker.protocols.native.codec import FrameDecoder, Op, ProtocolError, encode
from broker.protocols.native.fields import largest_message
from broker.protocols.native.session import NativeOptions, NativeSession
from tests.model.world import DictJournal

MAX_FRAME = 1024 * 1024


class Socket:
    def __init__(self) -> None:
        self.decoder = FrameDecoder(MAX_FRAME)  # refuses what a client would refuse
        self.frames: list[list[Any]] = []
        self.writable = True

    def write(self, data: bytes) -> None:
        self.frames += self.decoder.feed(data)

    def end(self) -> None: ...

    def opened(self, heartbeat_ms: int) -> None: ...

    def of(self, op: Op) -> list[list[Any]]:
        return [frame for frame in self.frames if frame[0] == op]


class NoHost:
    def history(self, message_id: int) -> dict[str, Any] | None:
        return None

    def committed(self, transaction_id: str) -> bool:
        return False

    def statistics(self) -> dict[str, Any]:
        return {}

    def settings_in_force(self) -> dict[str, Any]:
        return {}

    def reload(self) -> list[dict[str, Any]]:
        raise Refused("no-config-file", "there is none", "none is needed")


class House:
    def __init__(self, limits: BrokerLimits | None = None) -> None:
        self.journal = DictJournal()
        self.now_ms = 1_800_000_000_000
        self.broker = Broker(self.journal, AddressSettingsRepository({}), lambda: self.now_ms, Random(1), lambda: None, limits)
        self.calls = Calls(self.broker, NoHost())

    def session(self, client_id: str) -> tuple[NativeSession, Socket]:
        socket = Socket()
        options = NativeOptions("id", "test", max_frame_bytes=MAX_FRAME)
        session = NativeSession(self.broker, socket, options, lambda user, password, done: done(""), self.calls.run)
        session.receive([[Op.HELLO, "homing", 1, {"client_id": client_id}]])
        return session, socket

    def turn(self) -> None:
        for _ in range(5):
            self.broker.drain()
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


def test_who_sends_without_credit_is_cut_off_at_once_while_memory_is_at_its_limit() -> None:
    house = House(BrokerLimits(memory_bytes=1024 * 1024))
    session, socket = house.session("one")
    for number in range(1, 5):
        _say(session, [Op.PRODUCER, number, number, "a"])
    house.turn()
    # Not durable: those have no other place than memory.
    message = [b"x" * 300_000, None, 4, False]
    for number in range(1, 5):
        _say(session, [Op.SEND, number, 1, [message, message, message]])
    house.turn()
    assert house.broker.state.memory_bytes > 1024 * 1024
    assert [frame[1] for frame in socket.of(Op.CREDIT) if frame[2:4] == [0, 0]], "somebody was told to wait"
    with pytest.raises(ProtocolError) as caught:
        _say(session, *([Op.SEND, number, 4, [message]] for number in range(1, 5)))
    assert caught.value.code == "credit-exceeded"
