"""Brokers killed at random moments under four producers and four consumers in every ack mode: every promise is kept.

``scripts/check-faults`` does the same at length, with another seed each time. HOMING_SEED sets it here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import homing
from homing.client import AckMode, ReconnectPolicy, SettleError
from tests.faults.kill_loop.fanning import Fanning
from tests.faults.kill_loop.loop import KillLoop, Options
from tests.faults.kill_loop.stomping import Stomping
from tests.process import Server

ROUNDS = 6
#: One kill while starting, and one stop in order.
SEED = int(os.environ.get("HOMING_SEED", "5"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_brokers_killed_and_every_promise_kept(tmp_path: Path) -> None:
    options = Options(rounds=ROUNDS, seed=SEED)
    print(options)
    result = KillLoop(tmp_path, options).run()
    print(result.figures)
    assert not result.violations, "\n".join(map(str, result.violations[:20]))
    assert result.account is not None
    assert result.moment is not None
    # Whether it did anything at all; how much is the machine's.
    assert result.moment.facts > 20
    assert result.moment.account.exported["here"] > 0
    assert result.figures["sends confirmed"] > 20 * ROUNDS
    assert result.figures["dead letters"] > 0
    assert result.account.exported["redriven"] > 0
    assert result.figures["transactions committed"] > 2 * ROUNDS
    assert result.figures["stops in order"] > 0
    assert result.figures["of these not durable"] > 0
    for mode in AckMode:
        assert result.figures[f"deliveries in {mode.name}"] > 0, mode


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("module", ["tests.faults.leaves_rows", pytest.param("homing", marks=pytest.mark.campaign)])
def test_the_same_with_every_queue_read_back_from_disk_all_the_time(tmp_path: Path, module: str) -> None:
    """Also where the rows of all that leaves are removed later."""
    options = Options(rounds=3, seed=SEED, paged=True, module=module)
    print(options)
    result = KillLoop(tmp_path, options).run()
    print(result.figures)
    assert not result.violations, "\n".join(map(str, result.violations[:20]))
    assert result.figures["sends confirmed"] > 60
    assert result.figures["redeliveries"] > 0
    assert result.figures["of these not durable"] > 0
    assert result.account is not None


@pytest.mark.timeout(120)
def test_killed_while_messages_go_to_many_queues_each_is_in_all_or_in_none(tmp_path: Path) -> None:
    fanning = Fanning(tmp_path, SEED, queues=30, burst=200)
    print(fanning)
    fanning.run(2)
    assert not fanning.violations, "\n".join(fanning.violations[:20])
    assert fanning.kills == 2


@pytest.mark.timeout(120)
def test_killed_under_a_stomp_client_receipts_hold_and_transactions_are_whole(tmp_path: Path) -> None:
    stomping = Stomping(tmp_path, SEED)
    stomping.run(2)
    assert not stomping.violations, "\n".join(stomping.violations[:20])
    assert stomping.kills == 2
    assert stomping.confirmed


@pytest.mark.parametrize("whole_session", [True, False])
async def test_a_confirmed_acknowledgement_tells_that_a_lost_connection_took_the_messages(
    start_server: Callable[..., Server], whole_session: bool
) -> None:
    """The loop found it: it returned, as if the messages were settled, when there was nothing left to settle."""
    server = start_server()
    quickly = ReconnectPolicy(initial_delay_ms=10, maximum_delay_ms=100)
    async with homing.connect(server.url, reconnect=quickly) as connection, connection.session(AckMode.CLIENT) as session:
        await session.producer("orders").send(b"one")
        consumer = session.consumer("orders", prefetch=10)
        assert await consumer.receive(timeout_ms=20_000) is not None
        server.kill()
        server.start()
        again = await consumer.receive(timeout_ms=20_000)  # which it gets on a new connection
        assert again is not None
        acknowledge = session.acknowledge if whole_session else consumer.acknowledge
        with pytest.raises(SettleError) as reported:
            await acknowledge(confirm=True)
        assert (reported.value.code, reported.value.connection_lost) == ("not-held", True)
        await acknowledge(confirm=True)  # told once; the message that was held is settled
        assert await consumer.receive(timeout_ms=100) is None
        queues = await connection.call("queues")
        assert [queue["messages"] for queue in queues if queue["name"] == "orders"] == [0]
