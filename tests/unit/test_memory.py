"""What the account charges is what things take: weights against tracemalloc."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.connection import Connection
from homing.broker.core.amqp.exchange import Destination
from homing.broker.core.consumer import ConsumerOptions
from homing.broker.core.fault import FaultGroup
from homing.broker.core.memory import Kind, Memory, Owner
from homing.broker.core.message import HOP_BYTES, Hop, Message, MessageReference
from homing.broker.core.queue import Queue
from homing.broker.core.routing import RoutingTypes
from homing.broker.core.settings.address_settings import AddressSettings
from homing.broker.entries.fault_groups import FaultGroups
from homing.broker.errors import Refused
from homing.broker.properties import measured
from homing.broker.protocols.amqp091 import codec, message_mapping
from homing.broker.protocols.amqp091.codec import FrameReader, PublishEvent, content_frames
from homing.broker.protocols.amqp091.codec_cache import SHARED
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, short_string, write_arguments
from homing.broker.protocols.native.answers import result_frame
from homing.broker.protocols.native.codec import PROPERTY_OVERHEAD_BYTES, FrameDecoder, properties_cost
from homing.broker.steps import at_once
from homing.broker.topology.amqp.exchanges import Exchanges
from homing.journal.commit.batch import WriteBatch
from homing.journal.properties import weight_of
from tests import inside
from tests.model.world import ANYBODY, World
from tests.transitions import COMPILED
from tests.unit.test_amqp_session import Peer

MANY = 3000


def taken(make: Callable[[], object]) -> float:
    """Bytes that what is made takes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        after, _ = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize(
    ("properties", "most"),
    [
        pytest.param(lambda number: {f"n{number}": f"value {number}"}, 1.5, id="text"),
        pytest.param(lambda number: {f"n{number}": number + 10_000, f"m{number}": number + 20_000}, 1.5, id="whole numbers"),
        pytest.param(lambda number: {f"{at}n{number}": number / 7 for at in range(20)}, 1.7, id="floats"),
        pytest.param(lambda number: {f"{at}n{number}": b"x" * at for at in range(20)}, 1.7, id="binary"),
        pytest.param(lambda number: {f"{at}n{number}": f"{number}{at}" for at in range(20)}, 1.7, id="texts"),
        pytest.param(lambda number: {f"n{number}": f"\N{BALLOON}{number}" + "x" * 300}, 1.5, id="wide text"),
        pytest.param(lambda number: {f"n{number}": f"{number}" + "x" * 2000}, 1.5, id="long text"),
        pytest.param(lambda number: {"a": True, "b": None, "c": False}, 5.0, id="names that all share"),
    ],
)
def test_properties_are_charged_what_they_take(properties: Callable[[int], dict[str, Any]], most: float) -> None:
    size = taken(lambda: [properties(number) for number in range(500)])
    charged = sum(weight_of(properties(number)) for number in range(500))
    assert size * 0.8 <= charged <= size * most or (COMPILED and charged > size), f"{charged / 500} B are charged for {size / 500}"


def fits(charged: float, size: float) -> bool:
    """Whether what takes ``size`` is charged about that. Compiled, most things take less, but a number in two tables is two objects."""
    return size * (0.7 if COMPILED else 0.8) <= charged <= size * (1000 if COMPILED else 1.5)


@pytest.mark.parametrize("how", ["consume", "get"])
def test_messages_are_charged_what_they_take_waiting_and_held(how: str) -> None:
    world = World({})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, False, False, False, False, {})
    queue = inside.queues(world.broker)["q"]

    def arrive() -> None:
        for start in range(0, MANY, 100):
            messages = [Message(0, "q", b"body %04d" % number, None, 4, False) for number in range(start, start + 100)]
            inside.arrive(world.broker, messages, queue)

    def consume() -> None:
        if how == "consume":
            peer.call(1, "basic.consume", 0, "q", "", False, False, False, False, {})
        for _ in range(MANY if how == "get" else 0):
            peer.call(1, "basic.get", 0, "q", False)
        while queue.pending.count:
            world.loop.drain()
            peer.out = b""

    waiting = taken(arrive)
    charged = queue.memory_bytes
    assert charged == inside.memory(world.broker).by_kind[Kind.QUEUES]
    assert fits(charged, waiting), f"{charged / MANY:.0f} B are charged for {waiting / MANY:.0f} B"
    held = waiting + taken(consume)
    assert queue.delivering == MANY
    assert fits(charged, held), f"{charged / MANY:.0f} B are charged for {held / MANY:.0f} B"


def test_hops_are_charged_what_they_take() -> None:
    assert fits(HOP_BYTES * MANY, taken(lambda: [[Hop(number + 10_000, died(number))] for number in range(MANY)]))


def test_transactions_are_charged_what_they_take() -> None:
    world = World({}, max_transaction_operations=10 * MANY)
    broker, connection = world.broker, inside.connections(world.broker).connect("", "", Anybody())
    channel = inside.transactions(broker).begin(connection, 2, lambda: None)

    def native() -> None:
        for start in range(0, MANY, 100):
            messages = [Message(0, "q", b"body %04d" % number) for number in range(start, start + 100)]
            inside.transactions(broker).hold_sends(connection, 1, messages, None)

    def amqp() -> None:
        for number in range(MANY):
            event = PublishEvent(1, "", f"q{number}", False, False, b"\x00\x00%d" % number, b"body %04d" % number, 9)
            inside.transactions(broker).hold(channel, [event], event.size + len(event.properties))

    for send in (native, amqp):
        before = inside.memory(broker).by_kind[Kind.SESSIONS]
        size = taken(send)
        charged = inside.memory(broker).by_kind[Kind.SESSIONS] - before
        assert fits(charged, size), f"{send.__name__}: {charged / MANY:.0f} B are charged for {size / MANY:.0f} B"


def test_what_is_half_here_or_unread_is_charged_what_it_takes() -> None:
    native, amqp = FrameDecoder(), FrameReader({1}, 8 << 20)
    amqp.frame_max = 131_072

    def begin_frame() -> None:
        native.feed((4 << 20).to_bytes(4, "big"))
        for _ in range(15):
            native.feed(bytes(200_000))

    def begin_content() -> None:
        payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "", "q", False, False))
        frames = content_frames(1, payload, b"\x00\x00", bytes(4 << 20), 131_072)
        for part in frames[: len(frames) // 2]:
            amqp.feed(part)

    for begin, reader in ((begin_frame, native), (begin_content, amqp)):
        size = taken(begin)
        assert fits(reader.buffered, size)
    # As many bytes as wait for the peer to read them (transport.py).
    answers: list[bytes] = []
    found = [{"name": f"q{number}"} for number in range(100)]
    size = taken(lambda: answers.extend(result_frame(number, "queues", found, 1 << 20) for number in range(MANY)))
    assert fits(sum(map(len, answers)), size)


def test_fault_groups_are_charged_what_they_take_and_folded_at_their_share() -> None:
    reference = MessageReference(Message(1, "q", b""), Queue(1, "q", "q", "anycast", AddressSettings(), created_at_ms=0), 1, 0)

    def group(number: int) -> FaultGroup:
        made = FaultGroup(number + 1000, f"2-{number:032x}", f"queue.{number}", f"Error{number}", f"text {number}", 10**12 + number, 10**12)
        made.message_ids = [10**9 + 10 * number + each for each in range(10)]
        made.dead = {(reference.queue, number % 7 + 1): 10**6 + number}
        programs = [(f"{number}-{each:030}", f"host{number}", f"{each}.{number}") for each in range(number % 10)]
        made.programs = dict.fromkeys(programs, (10**12 + number, 10**12 + number + 1))
        return made

    groups: list[FaultGroup] = []
    size = taken(lambda: groups.extend(group(number) for number in range(MANY)))
    assert fits(sum([each.weight for each in groups]), size)

    memory = Memory(8 << 20)
    known = FaultGroups(cast(Any, SimpleNamespace(batch=WriteBatch())), lambda: 1_000, memory)
    for kind in range(1000):
        reference.cause = 0
        known.failed("q", [reference], (f"2-{kind}", f"Error{kind}", "text", ""), {"client_id": f"{kind}"}, 1_000)
        assert memory.by_kind[Kind.FAULTS] <= memory.limit // 16 + 3_000
    assert memory.by_kind[Kind.FAULTS] == sum([each.weight for each in known.by_id.values()])


def died(number: int) -> Any:
    return {**_DIED, "at_ms": number + 10_000}


_DIED: dict[str, Any] = {
    "reason": "poison",
    "queue": "q",
    "address": "q",
    "routing_type": "anycast",
    "at_ms": 0,
    "attempts": 1,
    "delivery_count": 1,
    "expires_at_ms": None,
}


def test_credit_is_reckoned_alike_on_both_sides() -> None:
    properties: dict[str, Any] = {"text": "ä", "binary": b"12", "number": 5, "none": None}
    size, extra = measured(properties)
    assert properties_cost(properties) == size + PROPERTY_OVERHEAD_BYTES * len(properties)
    assert size + extra == weight_of(properties)


def test_owners_give_back_what_they_hold() -> None:
    memory = Memory(1000, lambda: 7)
    first, second = Owner(memory, Kind.CONNECTIONS), Owner(memory, Kind.CACHES)
    first.charge(100)
    second.hold(450)
    memory.charged += 400
    assert (memory.bytes, memory.room(), memory.full) == (957, -50, False)
    second.hold(50)
    kinds = {"queues": 400, "connections": 100, "sessions": 0, "caches": 50, "declarations": 0, "faults": 0, "journal": 7}
    assert (memory.describe(), memory.bytes) == (kinds, 557)
    first.close()
    second.close()
    assert (memory.charged, memory.room()) == (400, 500)


class Anybody:
    """A front end that is told and does nothing."""

    writable = True

    def __getattr__(self, name: str) -> Any:
        return lambda *reported: None


def declare_queue(world: World, connection: Connection, number: int) -> None:
    inside.resources(world.broker).declare(BROKER, {"queue": f"queue.{number}"})


def subscribe(world: World, connection: Connection, number: int) -> None:
    inside.subscriptions(world.broker).subscribe(connection, number, f"queue.{number}", ConsumerOptions(10))


def subscribe_with_selector(world: World, connection: Connection, number: int) -> None:
    selector = f"number = {number} AND kind LIKE 'a%' AND region IN ('eu', 'us') OR price BETWEEN 1 AND 2"
    inside.subscriptions(world.broker).subscribe(connection, 10 * MANY + number, f"queue.{number}", ConsumerOptions(10, selector))


def open_producer(world: World, connection: Connection, number: int) -> None:
    inside.producers(world.broker).open(connection, number, f"queue.{number}")


def leave_mark(world: World, connection: Connection, number: int) -> None:
    inside.high_watermarks(world.broker).keep(f"{number:032x}", 1, number + 1000, number + 10**12)


def leave_mark_of_one_client(world: World, connection: Connection, number: int) -> None:
    for at in range(1, 60):
        inside.high_watermarks(world.broker).keep("one", number * 100 + at, number + 1000, number + 10**12)


def exchanges(world: World, connection: Connection) -> Exchanges:
    return inside.virtual_hosts(world.broker).exchanges_of(connection)


def declare_exchange(world: World, connection: Connection, number: int) -> None:
    exchanges(world, connection).declare(connection, f"x.{number}", "topic", durable=False, auto_delete=False, internal=False, arguments={})


def bind(world: World, connection: Connection, number: int) -> None:
    exchanges(world, connection).bind(connection, f"x.{number}", Destination(f"queue.{number}", True), f"key.{number}", {})


def bind_once_more(world: World, connection: Connection, number: int) -> None:
    exchanges(world, connection).bind(connection, "amq.topic", Destination("queue.1", True), f"{number:0200d}", {})


def bind_a_long_pattern(world: World, connection: Connection, number: int) -> None:
    exchanges(world, connection).bind(connection, "amq.topic", Destination("queue.1", True), f"{number}." + "#.a." * 40 + "b", {})


def send_with_duplicate_id(world: World, connection: Connection, number: int) -> None:
    message = Message(0, "queue.1", b"", None, 4, False, duplicate_id=f"{number:036d}")
    assert not inside.intake(world.broker).duplicate_ids.known(message)
    inside.storing(world.broker).store(message, [])


def add_virtual_host(world: World, connection: Connection, number: int) -> None:
    if number < 100:
        inside.virtual_hosts(world.broker).add(BROKER, f"host {number}")


def test_what_is_declared_is_charged_what_it_takes_and_refused_past_half_of_the_limit() -> None:
    world = World({})
    broker = world.broker
    connection = inside.connections(broker).connect("", "", Anybody())
    many = 300
    inside.resources(broker).read_selector("the = 'grammar'")

    def each(declare: Callable[[World, Connection, int], None]) -> None:
        for number in range(1, many):
            declare(world, connection, number)
        world.commit()

    found, most = [], 1000 if COMPILED else 1.8
    for declare in (
        *(declare_queue, subscribe, subscribe_with_selector, open_producer, leave_mark, leave_mark_of_one_client, declare_exchange),
        *(bind, bind_once_more, bind_a_long_pattern, send_with_duplicate_id, add_virtual_host),
    ):
        before = inside.memory(broker).by_kind[Kind.DECLARATIONS]
        size = taken(partial(each, declare))
        world.housekeeping.weigh_declared()
        found.append((declare.__name__, round((inside.memory(broker).by_kind[Kind.DECLARATIONS] - before) / size, 2)))
    assert [name for name, part in found if not 0.8 <= part <= most] == [], f"charged, of what it takes: {found}"
    inside.memory(broker).limit = 2 * inside.memory(broker).by_kind[Kind.DECLARATIONS] - 1
    for what, refused in REFUSED.items():
        with pytest.raises(Refused, match=f"no more {what}: what is declared takes"):
            refused(world, connection, 5000)
    # What is there may be declared again.
    declare_queue(world, connection, 1)
    bind(world, connection, 1)
    inside.connections(broker).disconnect(connection, lost=False)
    inside.high_watermarks(broker).forget(10**13, ())
    for name in inside.virtual_hosts(broker).names():
        if name != "/":
            at_once(inside.removal(broker).delete_virtual_host(ANYBODY, name))
    for queue in list(inside.queues(broker).values()):
        inside.deletion(broker).delete_queue(queue)
    for address in list(inside.addresses(broker).values()):
        inside.deletion(broker).remove_address(address)
    for number in range(1, many):
        inside.virtual_hosts(broker).exchanges_of(connection).delete(connection, f"x.{number}", False)
    world.housekeeping.weigh_declared()
    assert inside.memory(broker).bytes == inside.memory(broker).by_kind[Kind.CACHES] == 0


#: By what it is called; the queue, when something is sent to where there is none.
REFUSED: dict[str, Callable[[World, Connection, int], object]] = {
    "queues": declare_queue,
    "addresses": lambda world, connection, number: inside.resources(world.broker).declare_address("new", RoutingTypes.ANYCAST),
    "consumers": subscribe,
    "producers": open_producer,
    "exchanges": declare_exchange,
    "bindings": bind_once_more,
    "duplicate ids": send_with_duplicate_id,
    "virtual hosts": lambda world, connection, number: inside.virtual_hosts(world.broker).add(BROKER, "new"),
}


def test_what_all_amqp_connections_remember_together_is_charged_what_it_takes_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = {number: f"{number:0255d}" for number in range(1000)}

    def target(number: int) -> bytes:
        return short_string(text[number]) * 2

    remembered: dict[str, Callable[[int], object]] = {
        "_target": lambda number: codec._target(b"\0\0" + target(number) + b"\0"),
        "known_shape": lambda number: codec.known_shape(1, short_string(text[number]), target(number), text[number].encode() * 2),
        "_plain_wire": lambda number: message_mapping._plain_wire(text[number], True, 4, 0),
        "_counted": lambda number: message_mapping._counted(target(number), b"\0\x80" + short_string(text[number]), 1),
        "_wire_of_origin": lambda number: message_mapping._wire_of_origin(short_string(text[number]) + bytes(256)),
    }
    modules = [vars(module).items() for module in (codec, message_mapping)]
    caches = {name: found for each in modules for name, found in each if hasattr(found, "cache_clear")}
    assert caches.keys() == remembered.keys()

    def fill() -> None:
        for remember in remembered.values():
            for number in text:
                remember(number)

    SHARED.clear()
    monkeypatch.setattr(SHARED, "most_bytes", 1 << 30)
    size = taken(fill)
    assert size > 2 * (2 << 20), "twice what is let in below"
    # What two of them share is charged to both.
    assert size * 0.8 <= SHARED.bytes <= size * 2, f"{SHARED.bytes} B are charged for {size} B"
    SHARED.clear()
    monkeypatch.setattr(SHARED, "most_bytes", 2 << 20)
    assert taken(fill) <= 2.5 * (1 << 20)
    assert 0 < SHARED.bytes <= 2 << 20
    SHARED.clear()
    assert SHARED.bytes == 0
