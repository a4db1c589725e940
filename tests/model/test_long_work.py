"""Long work waits for the disk once so much of it is on the way there: whoever wants a confirm waits for that commit, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from homing.broker.long_work import LoopTurns, Work, changes
from homing.broker.management import settings as settings_calls
from homing.broker.protocols.native.codec import Op
from homing.broker.steps import Steps
from tests import inside
from tests.model.crowd import sender
from tests.model.world import ANYBODY, World
from tests.unit.test_amqp_session import Peer

MANY = 3_000
#: What one commit may hold of it: as much as may be on its way, and a step.
A_COMMIT = 600 + 200


def work(world: World) -> Any:
    return inside.queues(world.broker)["work"]


def broken(error: Exception) -> None:
    raise error


def connected(world: World) -> Peer:
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    return peer


def purged(world: World) -> None:
    world.broker.work.begin(world.broker.contents.purge(ANYBODY, work(world)), lambda _: None, broken)


def trimmed(world: World) -> None:
    world.run(settings_calls.set_some(world.broker, ANYBODY, layers={"work": {"max-length": 5, "overflow": "drop-head"}}), commits=False)


def expired(world: World) -> None:
    world.time_ms += 60_000


def returned(world: World) -> None:
    """None of it is durable, and it is to be kept as soon as it stands still."""
    peer = connected(world)
    peer.call(1, "basic.consume", 0, "work", "all", False, False, False, False, {})
    world.turn()
    peer.call(1, "basic.cancel", "all", False)
    peer.call(1, "basic.nack", 0, True, True)
    world.commit()
    assert not world.journal.references
    world.time_ms += 2_000


KINDS: dict[str, Callable[[World], None]] = {"purged": purged, "trimmed": trimmed, "expired": expired, "returned": returned}


@pytest.mark.parametrize("kind", KINDS)
def test_no_commit_holds_more_of_long_work_than_it_may(kind: str) -> None:
    settings = {"#": {"redelivery-delay": 0, "max-delivery-attempts": -1}, "work": {"message-ttl": 30_000} if kind == "expired" else {}}
    world = World(settings)
    client = sender(world, "sends", "work")
    for start in range(0, MANY, 500):
        client.say([Op.SEND, 1, start + 1, [[b"x", None, 4, kind != "returned"] for _ in range(500)]])
    world.commit()
    assert work(world).count == MANY
    KINDS[kind](world)
    held: list[int] = []
    while not held or held[-1]:
        for _ in range(20):
            world.loop.drain()
            if world.loop.next_ms() <= world.time_ms:
                world.loop.tick()
        held.append(changes(world.journal.batch))
        world.journal.commit()
    assert max(held) <= A_COMMIT
    assert sum(held) >= MANY - A_COMMIT
    world.commit()
    world.check_balance()


def test_work_that_waits_is_asked_again_only_once_that_has_come() -> None:
    class Page:
        came = False

    page, steps_done, answers, woken = Page(), list[str](), list[str](), list[str]()

    def steps() -> Steps[str]:
        while not page.came:
            steps_done.append("asked")
            yield page
        return "read"

    class Turns(LoopTurns):
        def wake_later(self) -> None:
            woken.append("later")

    under_way = Work(lambda: woken.append("now"), Turns())
    under_way.begin(steps(), answers.append, broken)
    for _ in range(3):
        under_way.go_on()
    assert steps_done == ["asked"]
    # The page wakes the loop when it comes, nobody before that.
    assert (answers, woken) == ([], [])
    page.came = True
    under_way.go_on()
    assert answers == ["read"]
    assert not under_way.under_way
