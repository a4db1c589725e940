"""Queues that come and go leave nothing behind in memory: no object of the process names one that is gone."""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from secrets import token_hex

from homing.broker.core.consumer import ConsumerOptions
from homing.broker.core.message import Message
from homing.broker.core.redelivery import Failure
from tests import inside
from tests.model.world import DictJournal, World
from tests.unit.test_amqp_methods import published
from tests.unit.test_amqp_session import Peer

HOUR_MS = 3_600_000


def holders(mark: str) -> set[str]:
    """What holds a text that begins with ``mark`` and goes on, by type and text."""
    gc.collect()
    found = set()
    for each in gc.get_objects():
        # The collector passes over keys that are texts.
        for text in (*gc.get_referents(each), *(each if type(each) is dict else ())):
            if type(text) is str and text.startswith(mark) and text != mark:
                found.add(f"{type(each).__qualname__}: {text}")
    return found


def native(world: World, name: str) -> None:
    """A queue that makes itself, a message that fails once, a connection that is lost."""
    client = world.client(name, lambda delivery: None)
    assert client.connection is not None
    producer = inside.producers(world.broker).open(client.connection, 1, name)
    world.send(producer, [Message(0, name, b"x", duplicate_id=name)])
    consumer = inside.subscriptions(world.broker).subscribe(client.connection, 1, name, ConsumerOptions(1))
    world.commit()
    inside.settlement(world.broker).fail(consumer, list(consumer.unsettled.values()), Failure(), "nack", {"reason": "once"})
    world.commit()
    inside.settlement(world.broker).acknowledge(consumer, list(consumer.unsettled.values()))
    inside.connections(world.broker).disconnect(client.connection, lost=True)


def amqp(world: World, name: str) -> None:
    """A queue that is exclusive, a message that is given back once."""
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, name, False, False, True, False, False, {})
    peer.send(published(name, b"x"))
    for settle in ("basic.reject", "basic.ack"):
        ((_, values), *_) = peer.call(1, "basic.get", 0, name, False)
        peer.call(1, settle, values[0], settle == "basic.reject")
    peer.session.lost()


def what_is_held(mark: str) -> tuple[set[str], set[str]]:
    """While queues of names that begin with ``mark`` come and go, and once they are gone."""
    world = World({"#": {"redelivery-delay": 0}}, history_retention_ms=HOUR_MS, marks_retention_ms=HOUR_MS)
    for number in range(3):
        native(world, f"{mark}n{number}")
        amqp(world, f"{mark}a{number}")
    world.commit()
    before = holders(mark)
    # The latest fault's number, and what routes are, stay until there are others.
    native(world, "the latest")
    amqp(world, "the last")
    for _ in range(3):
        world.time_ms += HOUR_MS
        world.turn()
        world.commit()
    # What is on disk is none of the broker's memory.
    vars(world.journal).update(vars(DictJournal()))
    return before, holders(mark)


def test_of_queues_that_come_and_go_nothing_is_kept() -> None:
    # In a process of its own: what other tests loaded, as Spark's libraries, is not to be walked through.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        before, after = process.submit(what_is_held, token_hex(8)).result()
    assert before
    assert after == set()
