"""What an orderly stop writes of messages that are not durable: oldest first, a few at a time, and never into the reserve."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.process.keeping import COMMIT_BYTES, keep_at_stop, temp_limit
from homing.broker.protocols.amqp091.codec import content_frames, method_frame
from homing.broker.protocols.amqp091.codec_methods import METHODS, NUMBER, write_arguments
from homing.broker.protocols.amqp091.codec_properties import ContentProperties, write_properties
from homing.broker.protocols.amqp091.codec_tables import write_fields
from homing.journal.contract import QueueStat
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_methods import published
from tests.unit.test_amqp_session import Peer
from tests.unit.test_expiries import publish

_BODY = bytes(1 << 20)


@pytest.mark.parametrize("ends", ["the room", "the time"])
async def test_it_writes_the_oldest_first_in_small_commits_until_time_or_room_ends(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
        if len(written) < 2:
            return
        if ends == "the room":
            journal.space_low = True
        else:
            monkeypatch.setattr(loop, "time", lambda: until_s)

    journal.flush = flush
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 60
    before = sorted(inside.queues(world.broker)["q"].references)
    found = await keep_at_stop(world.broker, cast(Any, journal), until_s)
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


class Round:
    """A message that is not durable, in a queue of AMQP's, and a program that puts it back."""

    def __init__(self, **settings: Any) -> None:
        self.world = World({"q": settings})
        self.peer = Peer(self.world)
        self.peer.log_in()
        self.peer.call(1, "channel.open", "")
        self.peer.call(1, "queue.declare", 0, "q", False, True, False, False, False, {})
        self.peer.send(published("q"))
        (self.reference,) = inside.queues(self.world.broker)["q"].references.values()
        self.commits = 0

    def put_back(self, times: int = 1, after_ms: int = 1, report: dict[str, Any] | None = None) -> None:
        for _ in range(times):
            self.world.time_ms += after_ms
            self.world.turn()
            self.world.commit()
            ((_, (tag, *_)),) = self.peer.call(1, "basic.get", 0, "q", False)
            if report is not None:
                headers = write_properties(ContentProperties(headers=write_fields({"delivery_tag": tag, **report})))
                payload = write_arguments(METHODS[NUMBER["basic.publish"]], (0, "homing.failure", "", False, False))
                self.peer.session.receive(b"".join(content_frames(1, payload, headers, b"", 8192)))
            self.peer.session.receive(method_frame(1, "basic.nack", tag, False, True))
            self.commits += bool(self.world.journal.batch.changed or self.world.journal.batch.added)

    @property
    def on_disk(self) -> int | None:
        """How many of its failures the disk knows; None: it is not there."""
        journal, sequence = self.world.journal, self.reference.sequence
        row = journal.batch.changed.get(sequence) or journal.rows().get(sequence)
        return None if row is None else row.failed


def test_what_is_put_back_is_written_at_its_third_failure_and_then_once_a_second() -> None:
    going = Round()
    going.put_back(2)
    assert (going.on_disk, going.reference.failed, going.reference.durable) == (None, 2, False)
    going.put_back()
    assert (going.on_disk, going.reference.durable) == (3, True)
    going.put_back(900)
    assert (going.on_disk, going.commits) == (3, 1)
    going.put_back(5000)
    assert going.commits == 1, "nobody waits for those"
    assert (going.on_disk or 0) > 4_900
    # Those that are only counted are so by the minute, too, and so are the first two, of a message that was not durable then.
    going.world.time_ms += 2_000
    going.world.turn()
    going.world.commit()
    assert going.on_disk == 5_903
    (stats,) = going.world.journal.queue_stats.values()
    found = {QueueStat(column): number for column, number in enumerate(stats) if number and column != QueueStat.FAILED_MS}
    assert found == {
        QueueStat.SENT: 1,
        QueueStat.DELIVERED: 5_903,
        QueueStat.FAILED: 5_903,
        QueueStat.FAILED_FIRST: 1,
        QueueStat.TRANSIENT_SENT: 1,
        QueueStat.TRANSIENT_DELIVERED: 2,
        QueueStat.TRANSIENT_FAILED: 2,
        QueueStat.KEPT: 1,
    }
    assert not inside.going_round(going.world.broker).unwritten


def test_what_is_put_back_is_written_once_it_stands_still_or_with_a_report() -> None:
    still, told, limited, unkept = Round(), Round(), Round(**{"max-delivery-attempts": 9}), Round(**{"keep-failed": False})
    still.put_back()
    for going in (still, unkept):
        going.world.time_ms += 900
        going.world.turn()
        assert going.on_disk is None
        going.world.time_ms += 400
        going.world.turn()
    assert still.on_disk == 1
    still.world.commit()
    still.put_back()
    assert still.on_disk == 1
    still.put_back(after_ms=1_000)
    assert still.on_disk == 2
    told.put_back()
    told.put_back(report={"error_type": "KeyError"})
    assert told.on_disk == 2
    limited.put_back()
    assert limited.on_disk == 1
    unkept.put_back(5)
    assert unkept.on_disk is None
    late = Round(**{"consumer-timeout": "1m"})
    late.peer.call(1, "basic.get", 0, "q", False)
    late.world.time_ms += 61_000
    late.world.turn()
    assert late.on_disk == 1, "nobody settled it in time"


def test_no_failure_waits_for_a_full_disk() -> None:
    full = Round()
    full.world.disk_low = True
    full.put_back(4)
    full.put_back(report={"error_type": "KeyError"})
    assert (full.reference.failed, full.on_disk) == (5, None)
    full.world.disk_low = False
    full.put_back()
    assert full.on_disk == 6


async def test_a_stop_writes_what_went_round() -> None:
    going = Round(**{"keep-at-stop": False})
    going.put_back(2)
    journal = SimpleNamespace(space_low=False)
    found = await keep_at_stop(going.world.broker, cast(Any, journal), asyncio.get_running_loop().time() + 60)
    assert (going.on_disk, found.any) == (2, False)
