"""Redrive jobs: a rate is kept where it waited for something else, too; what they sent is seen through."""

from __future__ import annotations

from homing.broker.auth.access import BROKER
from homing.broker.core.redrive_job import DONE, RedriveJob
from homing.broker.entries.redrive_tally import content_of
from tests import inside
from tests.model.life import Life
from tests.model.world import ANYBODY


def sent_by(job: RedriveJob, *looks_ms: int) -> list[int]:
    """How many it sends at each look, all that it may."""
    found = []
    for now_ms in looks_ms:
        found.append(job.allowance(now_ms))
        job.sent += found[-1]
    return found


def test_a_rate_holds_after_a_restart_and_is_not_made_up_for() -> None:
    job = RedriveJob(1, "DLQ.orders", "", rate=10)
    job.begin_rate(5_000)
    assert sent_by(job, 5_000, 5_050, 5_100, 5_500, 6_000) == [1, 0, 1, 4, 5]
    # It had to wait for room.
    assert sent_by(job, 60_000, 60_100, 60_500) == [1, 1, 4]
    restarted = RedriveJob(**content_of(job))
    assert sent_by(restarted, 70_000, 70_000, 70_100, 70_500) == [1, 0, 1, 4]


def test_a_rate_holds_after_the_canary() -> None:
    job = RedriveJob(1, "DLQ.orders", "", rate=2, canary=3)
    job.begin_rate(0)
    assert sent_by(job, 0, 1_000, 2_000, 3_000) == [1, 2, 0, 0]
    job.judged = job.succeeded = 3
    assert sent_by(job, 600_500, 601_000, 601_500) == [1, 1, 1]


def test_a_slow_rate() -> None:
    job = RedriveJob(1, "DLQ.orders", "", rate=1)
    job.begin_rate(0)
    assert sent_by(job, 0, 500, 999, 1_000, 1_900, 2_050) == [1, 0, 0, 1, 0, 1]


def test_a_job_sees_what_it_sent_through_also_what_was_no_dead_letter() -> None:
    life = Life()
    client, broker = life.client(), life.world.broker
    life.send(client, "a", "one", "two", "three")
    inside.resources(broker).declare(BROKER, {"queue": "b"})
    job = inside.redriving(broker).start(ANYBODY, life.queue("a"), life.queue("b"), RedriveJob(0, "a", "", target="b", canary=1))
    consumer = life.subscribe(client, "b", prefetch=10)
    for _ in range(2):
        life.world.commit()
        inside.settlement(broker).acknowledge(consumer, list(consumer.unsettled.values()))
    life.world.commit()
    assert (job.state, job.sent, job.succeeded, job.waiting) == (DONE, 3, 3, 0)


def test_nobody_is_woken_for_a_job_that_was_cancelled_while_it_waited_for_its_rate() -> None:
    life = Life()
    client, broker = life.client(), life.world.broker
    life.send(client, "a", "one", "two", "three")
    inside.resources(broker).declare(BROKER, {"queue": "b"})
    job = inside.redriving(broker).start(ANYBODY, life.queue("a"), life.queue("b"), RedriveJob(0, "a", "", target="b", rate=1))
    life.world.commit()
    assert (job.ended_ms is None, job.sent) == (True, 1)
    inside.redriving(broker).cancel(ANYBODY, job)
    life.world.time_ms += 5_000
    life.world.turn()
    assert life.world.loop.next_ms() > life.world.time_ms
