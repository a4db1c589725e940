"""What an orderly stop writes of messages that are not durable: oldest first, a few at a time, and never into the reserve."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from homing.broker.process.keeping import COMMIT_BYTES, keep_at_stop, temp_limit
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer
from tests.unit.test_expiries import publish

_BODY = bytes(1 << 20)


async def test_it_writes_the_oldest_first_in_small_commits_and_leaves_the_reserve() -> None:
    world = World({})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, True, False, False, False, {})
    for _ in range(10):
        publish(peer, _BODY)
    written: list[tuple[int, int]] = []
    journal = SimpleNamespace(space_low=False)

    async def flush() -> None:
        batch = world.journal.batch
        written.append((len(batch.added), batch.size))
        world.commit()
        journal.space_low = len(written) == 2

    journal.flush = flush
    before = sorted(inside.queues(world.broker)["q"].references)
    found = await keep_at_stop(world.broker, cast(Any, journal), asyncio.get_running_loop().time() + 60)
    assert (found.kept, found.not_kept) == ({"q": 6}, {"q": 4})
    assert [number for number, _ in written] == [3, 3]
    assert all(size <= COMMIT_BYTES for _, size in written)
    assert sorted(world.journal.references) == before[:6]


def test_the_limit_on_disk_follows_the_disk_where_nothing_else_is_said() -> None:
    disk = SimpleNamespace(disk_free_bytes=500)
    config = SimpleNamespace(broker=SimpleNamespace(temp_limit_bytes=None), journal=SimpleNamespace(disk_reserve_bytes=1000))
    limit = temp_limit(cast(Any, config), cast(Any, SimpleNamespace(statistics=disk)))
    allowed = []
    # Full at the start; then there is room; then what is on disk so takes some of it.
    for disk.disk_free_bytes in (500, 11_000, 3_000, 21_000):
        allowed.append(limit())
    assert allowed == [0, 1000, 1000, 2000]
    config.broker.temp_limit_bytes = 7
    assert temp_limit(cast(Any, config), cast(Any, SimpleNamespace(statistics=disk)))() == 7
