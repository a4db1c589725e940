"""What is asked before a queue may send its dead letters through an exchange, and how a refusal reads to the client."""

from __future__ import annotations

from random import Random

import pytest

from homing.broker.auth.permissions import Action
from homing.broker.broker import Broker
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from tests.model.world import World
from tests.unit.test_amqp_session import Peer

Asked = tuple[str, Action, str, str, str]
READ: Asked = ("guest", Action.READ, "queue", "/", "work")
WRITE: Asked = ("guest", Action.WRITE, "exchange", "/", "dlx")


class Guard:
    """Refuses what it is told to, and remembers what it was asked."""

    def __init__(self, *refused: Asked) -> None:
        self.refused = refused
        self.asked: list[Asked] = []

    def __call__(self, *question: str) -> bool:
        self.asked.append(question)  # type: ignore[arg-type]
        return question not in self.refused


def declare(guard: Guard, arguments: dict[str, str]) -> list[str]:
    """What a client is told that declares the queue ``work``."""
    world = World({})
    world.broker = Broker(world.journal, AddressSettingsRepository({}), world.now_ms, Random(0), lambda: None, permitted=guard)
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    answers = peer.call(1, "queue.declare", 0, "work", False, True, False, False, False, arguments)
    assert ("work" in world.broker.state.post_office.queues) is (answers[0][0] == "queue.declare-ok")
    return [f"{values[0]} {values[1]}" if name == "channel.close" else name for name, values in answers]


def test_reading_the_queue_and_writing_to_the_exchange_are_asked_for() -> None:
    guard = Guard()
    assert declare(guard, {"x-dead-letter-exchange": "dlx"}) == ["queue.declare-ok"]
    assert guard.asked == [READ, WRITE]


def test_nothing_is_asked_without_a_dead_letter_exchange() -> None:
    guard = Guard(READ, WRITE)
    assert declare(guard, {}) == ["queue.declare-ok"]
    assert guard.asked == []


@pytest.mark.parametrize(
    ("refused", "sentence"),
    [
        (READ, "403 ACCESS_REFUSED - read access to queue 'work' in vhost '/' refused for user 'guest'"),
        (WRITE, "403 ACCESS_REFUSED - write access to exchange 'dlx' in vhost '/' refused for user 'guest'"),
    ],
)
def test_a_refusal_closes_the_channel(refused: Asked, sentence: str) -> None:
    assert declare(Guard(refused), {"x-dead-letter-exchange": "dlx"}) == [sentence]
