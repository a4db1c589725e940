"""What one producer, one connection and one purge come to, whatever clients do."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import Any

from homing.broker.auth.access import BROKER
from homing.broker.core.memory import Kind
from homing.broker.core.message import REFERENCE_BYTES, Message
from homing.broker.core.producer import Producer
from homing.broker.delivery.flow_control import FIRST_WINDOW_BYTES
from homing.broker.protocols.gathering import Gathering
from homing.broker.protocols.handshakes import Admission, AdmissionLimits
from homing.broker.protocols.native.codec import Op
from homing.broker.protocols.native.session import NativeOptions, NativeSession
from homing.broker.protocols.native.transport import NativeTransport
from homing.broker.protocols.output import Outgoing
from homing.broker.protocols.transport import TransportContext, TransportLimits
from homing.broker.protocols.turns import Turns
from homing.broker.steps import at_once
from tests import inside
from tests.model.crowd import Client, crowd, sender
from tests.model.world import World

MIB = 1 << 20


class Silent:
    """Where credit goes."""

    def grant(self, producer: Producer, messages: int, size: int, reason: str | None) -> None: ...


def test_windows_of_producers_that_open_before_they_send_come_to_little() -> None:
    flow = inside.flow(World({}, memory_limit_bytes=64 * MIB).broker)
    producers = [Producer("c", number, "orders", 0, Silent()) for number in range(200)]
    for producer in producers:
        flow.open(producer)
    assert all(0 < producer.credit_bytes <= FIRST_WINDOW_BYTES for producer in producers)
    for _ in range(3):
        for producer in producers:
            flow.charge(producer, 10, producer.credit_bytes)
            flow.top_up(producer)
    # A quarter of the limit may be on its way to the disk, and half of that is for windows.
    assert sum(producer.credit_bytes for producer in producers) <= 64 * MIB // 8


def test_credit_is_granted_by_half_windows_however_many_share_what_there_is() -> None:
    world = World({})
    clients = [sender(world, f"client {number}", "q") for number in range(4)]
    for number in range(1, 501):
        for client in clients:
            client.say([Op.SEND, 1, number, [[b"x" * 1024]]])
        world.commit()
    granted = [len(client.of(Op.CREDIT)) for client in clients]
    assert max(granted) <= 3, "a first window, a whole one, and the next when half of that is used"


def test_a_frame_far_beyond_its_credit_is_taken_only_as_far_as_that_goes_where_memory_is_full() -> None:
    world = World({}, memory_limit_bytes=2 * MIB)
    clients = [sender(world, f"client {number}", "q") for number in range(200)]
    message = [b"x" * 4096, None, 4, False]
    for client in clients:
        client.say([Op.SEND, 1, 1, [message] * 100])
        world.loop.drain()
    # Each had credit for one message at least, and none for all.
    assert 2 * MIB <= inside.memory(world.broker).bytes < 8 * MIB
    world.commit()
    refused = [frame[3][:2] for client in clients for frame in client.of(Op.CONFIRM) if len(frame) > 3]
    assert len(refused) > 150
    assert all(2 <= number <= 20 and code == "credit-exceeded" for number, code in refused)


def test_what_was_purged_where_nobody_reads_keeps_no_memory() -> None:
    world = World({})
    queue = inside.resources(world.broker).declare(BROKER, {"queue": "q"})
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            bodies = [bytes(2000) for _ in range(100)]
            inside.arrive(world.broker, [Message(0, "q", body, None, 4, False) for body in bodies], queue)
        inside.arrive(world.broker, [Message(0, "q", b"", None, 4, False, expires_at_ms=world.time_ms + 9**9)], queue)
        held, _ = tracemalloc.get_traced_memory()
        at_once(inside.contents(world.broker).purge(BROKER, queue))
        del bodies
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inside.memory(world.broker).charged == queue.memory_bytes == 0
    assert held - before > 2000 * 2000
    assert left - before < (held - before) // 20


def test_what_waits_for_its_turn_is_charged_meanwhile() -> None:
    world = World({})
    crowd(world)
    client = sender(world, "one")
    body = b"x" * 1000
    for number in range(4):
        client.say([Op.SEND, 1, 1 + number * 100, [[body]] * 100])
    waiting = inside.memory(world.broker).by_kind[Kind.CONNECTIONS]
    assert waiting >= 3 * 100 * (len(body) + REFERENCE_BYTES)
    while not (confirms := client.of(Op.CONFIRM)) or confirms[-1][2] < 400:
        world.commit()
    assert inside.memory(world.broker).by_kind[Kind.CONNECTIONS] == 0


def test_who_has_not_got_an_answer_is_not_asked_for_the_next() -> None:
    asked: list[tuple[str, Callable[[Any], None]]] = []

    def call(connection: Any, verb: str, arguments: Any, answer: Callable[[Any], None]) -> bool:
        asked.append((verb, answer))
        return True

    class Asking(Client):
        reads = True

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = not self.session.full

    world = World({})
    client = Asking(world, "one")
    client.session = NativeSession(world.broker, client, NativeOptions("id", "test"), lambda user, password, done: done(""), call)
    client.say([Op.HELLO, "homing", 1, {"client_id": "two"}], [Op.CALL, 1, "queues", {}], [Op.PRODUCER, 9, 1, "q"])
    world.commit()
    assert [frame[1] for frame in client.of(Op.RESULT)] == [9], "what is no call goes on"
    client.say([Op.CALL, 2, "consumers", {}], [Op.CALL, 3, "users", {}])
    assert ([verb for verb, _ in asked], client.reads) == (["queues"], False)
    asked[0][1]([])
    assert ([verb for verb, _ in asked], client.reads) == (["queues", "consumers"], False)
    asked[1][1]([])
    assert ([verb for verb, _ in asked], client.reads) == (["queues", "consumers", "users"], True)
    assert [frame[1] for frame in client.of(Op.RESULT)] == [9, 1, 2]


class Socket:
    """What a transport writes to: nobody reads from it."""

    unsent, high = 0, -1

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.unsent += len(data)

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4000) if name == "peername" else None

    def is_closing(self) -> bool:
        return False


async def test_who_does_not_read_gets_nothing_more_where_only_messages_have_room() -> None:
    world, socket = World({}, memory_limit_bytes=MIB), Socket()
    memory = inside.memory(world.broker)

    def make(output: Any) -> NativeSession:
        return NativeSession(world.broker, output, NativeOptions("b", "test"), lambda user, password, done: done(""), lambda *call: False)

    limits = TransportLimits(max_unread_bytes=100_000)
    loop = asyncio.get_running_loop()
    gathering, turns = Gathering(memory, loop.time), Turns(loop.call_soon, loop.time)
    outgoing = Outgoing(loop.call_soon)
    transport = NativeTransport(make, TransportContext(limits, set(), Admission(AdmissionLimits()), gathering, turns, outgoing))
    transport.connection_made(socket)  # type: ignore[arg-type]
    assert socket.high == 100_000
    before = memory.by_kind[Kind.CONNECTIONS]
    transport.write(bytes(50_000))
    transport.flush()
    assert memory.by_kind[Kind.CONNECTIONS] - before == 50_000
    assert socket.high == 100_000
    memory.charge(Kind.SESSIONS, MIB // 2)
    transport.write(b"more")
    transport.flush()
    assert socket.high == 0, "whatever waits is too much now"
    socket.unsent = 0
    transport.resume_writing()
    assert socket.high == 100_000
    memory.charge(Kind.SESSIONS, -MIB // 2)
    transport.connection_lost(None)
    assert memory.charged == 0
