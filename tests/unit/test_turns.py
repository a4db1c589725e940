"""Whose input is acted on in which turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from homing.broker.protocols.amqp091.codec import FrameReader, method_frame
from homing.broker.protocols.amqp091.options import AmqpOptions
from homing.broker.protocols.amqp091.session import AmqpSession
from homing.broker.protocols.amqp091.transport import AmqpTransport
from homing.broker.protocols.gathering import Gathering
from homing.broker.protocols.handshakes import Admission, AdmissionLimits
from homing.broker.protocols.output import Outgoing
from homing.broker.protocols.transport import TransportContext, TransportLimits
from homing.broker.protocols.turns import TURN_S, Turns
from tests import inside
from tests.model.world import World
from tests.unit.test_goodbyes import LOGIN

ACKNOWLEDGED: Final = b"".join([method_frame(1, "basic.ack", tag, False) for tag in range(1, 300)])
#: Turns that pass for each turn's time that one took.
REST: Final[list[list[str]]] = [[], [], []]
REFUSED: Final = method_frame(1, "basic.nack", 7, False, True)


class Loop:
    """Calls what it was told to when ``turn`` says so; work takes as long as it is said to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: list[Callable[[], None]] = []
        self.turns = Turns(self._soon.append, lambda: self.now_s)
        self.outgoing = Outgoing(self._soon.append)
        self.done: list[str] = []

    def work(self, name: str, lasts: float) -> None:
        """``lasts``: in turns."""
        self.done.append(name)
        self.now_s += lasts * TURN_S

    def turn(self) -> list[str]:
        """What was done in it by those in line."""
        self.done.clear()
        soon, self._soon[:] = list(self._soon), []
        for call in soon:
            call()
        return list(self.done)

    @property
    def idle(self) -> bool:
        return not self._soon


def test_a_turn_that_has_taken_long_enough_is_full() -> None:
    loop = Loop()
    assert not loop.turns.full()
    loop.work("a", 0.9)
    assert not loop.turns.full(), "there is time for more"
    loop.work("b", 0.9)
    assert loop.turns.full()
    assert [loop.turn() for _ in REST] == REST
    assert not loop.turns.full()


def test_those_in_line_go_on_one_after_the_other() -> None:
    loop = Loop()
    loop.turns.full()
    loop.work("first", 1)
    assert loop.turns.full()
    for name in "bcd":
        loop.turns.wait(lambda name=name: loop.work(name, 0.6))  # type: ignore[misc]
    assert [loop.turn() for _ in REST] == REST, "the turn before was long"
    assert loop.turn() == ["b", "c"]
    assert loop.turns.full(), "who comes now comes behind d"
    assert [loop.turn() for _ in range(4)] == [*REST, ["d"]]
    assert not loop.turns.full()
    loop.turn()
    assert loop.idle


def test_others_have_turns_for_each_that_somebody_took() -> None:
    loop = Loop()
    loop.turns.full()
    loop.work("long", 3.5)
    assert loop.turns.full()
    loop.turns.wait(lambda: loop.work("again", 1))
    assert [loop.turn() for _ in range(10)] == [*REST * 3, ["again"]]


def test_who_waits_again_comes_behind_the_others() -> None:
    loop = Loop()

    def go_on() -> None:
        loop.work("a", 1)
        if loop.now_s < 3 * TURN_S:
            loop.turns.wait(go_on)

    loop.turns.wait(go_on)
    loop.turns.wait(lambda: loop.work("b", 0.1))
    assert [loop.turn() for _ in range(9)] == [["a"], *REST, ["b", "a"], *REST, ["a"]]


def test_who_waits_in_a_turn_that_nobody_asked_about_owes_nothing_for_the_time_before() -> None:
    loop = Loop()
    loop.now_s = 1000.0
    loop.turns.wait(lambda: loop.work("a", 0.1))
    assert not loop.turns.late()
    assert loop.turn() == ["a"]


def test_the_brokers_long_work_and_those_in_line_take_turns() -> None:
    loop = Loop()

    def long_work() -> None:
        loop.work("broker", 1)
        loop.turns.have_next(long_work)

    for name in "abc":
        loop.turns.wait(lambda name=name: loop.work(name, 1))  # type: ignore[misc]
    loop.turns.have_next(long_work)
    assert [each for _ in range(20) for each in loop.turn()] == ["a", "broker", "b", "broker", "c", "broker"]


class Socket:
    """The peer's side of a connection: what was written to it."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...


def test_acknowledgements_alone_are_seen_as_such() -> None:
    reader = FrameReader({1, 2}, 1 << 20)
    assert reader.acknowledges_only(ACKNOWLEDGED)
    assert not reader.acknowledges_only(ACKNOWLEDGED[:-1])
    assert not reader.acknowledges_only(ACKNOWLEDGED[:-21] + REFUSED)
    reader.feed(ACKNOWLEDGED[:10])
    assert not reader.acknowledges_only(ACKNOWLEDGED), "that is in the middle of a frame"


@pytest.mark.parametrize(("behind", "at_once"), [(b"", True), (REFUSED, False)], ids=["alone", "with something else"])
async def test_acknowledgements_wait_for_no_turn(behind: bytes, at_once: bool) -> None:
    loop, socket, world = Loop(), Socket(), World({})

    def make(output: Any) -> AmqpSession:
        return AmqpSession(world.broker, output, AmqpOptions("RabbitMQ", "3.13.7"), lambda user, password, done: done(user))

    gathering = Gathering(inside.memory(world.broker), lambda: loop.now_s)
    context = TransportContext(TransportLimits(), set(), Admission(AdmissionLimits()), gathering, loop.turns, loop.outgoing)
    transport = AmqpTransport(make, context)
    transport.connection_made(socket)  # type: ignore[arg-type]
    transport.data_received(LOGIN + method_frame(1, "channel.open", ""))
    assert not loop.turns.full()
    loop.work("something else", 2)
    transport.data_received(ACKNOWLEDGED + behind)
    transport.flush()
    assert (b"unknown delivery tag" in socket.written) is at_once
    transport.connection_lost(None)


class Full(Socket):
    """Cannot be written to."""

    aborted = False

    def write(self, data: bytes) -> None:
        raise OSError("no buffer space available")

    def abort(self) -> None:
        self.aborted = True


async def test_what_was_written_leaves_together_and_whose_cannot_keeps_nobodys() -> None:
    loop, world, full = Loop(), World({}), Full()
    sockets = [full, Socket()]

    def make(output: Any) -> AmqpSession:
        return AmqpSession(world.broker, output, AmqpOptions("RabbitMQ", "3.13.7"), lambda user, password, done: done(user))

    gathering = Gathering(inside.memory(world.broker), lambda: loop.now_s)
    context = TransportContext(TransportLimits(), set(), Admission(AdmissionLimits()), gathering, loop.turns, loop.outgoing)
    transports = [AmqpTransport(make, context) for _ in sockets]
    for transport, socket in zip(transports, sockets, strict=True):
        transport.connection_made(socket)  # type: ignore[arg-type]
        transport.write(b"one, ")
        transport.write(b"two")
    loop.outgoing.leave()
    assert sockets[1].written == b"one, two"
    assert full.aborted
    loop.turn()
    assert sockets[1].written == b"one, two", "it has left"
    transports[1].write(b", three")
    loop.turn()
    assert sockets[1].written == b"one, two, three", "by itself, in the loop's next turn"
    for transport in transports:
        transport.connection_lost(None)
