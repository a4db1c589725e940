"""Stopping: nothing more is handed out; beside a disk that does not come back in time clients are told all the same."""

from __future__ import annotations

import asyncio
import logging
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.process import shutdown
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer
from tests.unit.test_expiries import bodies, publish


class SlowJournal:
    async def flush(self) -> None:
        await asyncio.sleep(60)


async def test_a_slow_disk_does_not_break_an_orderly_stop(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(shutdown, "_ANSWERS_S", 0.01)
    reported: list[bool] = []
    broker = SimpleNamespace(dispatcher=SimpleNamespace(stopping=False))

    async def nothing(began_s: float) -> None: ...

    said = {"stop_clients": lambda: reported.append(broker.dispatcher.stopping), "sockets": dict}
    server = SimpleNamespace(broker=broker, **said, keep_messages=nothing)
    # What came out of here would end the process with another exit code.
    await shutdown.drain(cast(Any, server), cast(Any, SlowJournal()))
    (warning,) = caplog.records
    assert warning.getMessage() == "disk-slow: the disk is slow: clients are left without answers to what they did last"
    assert reported == [True]


def test_a_broker_that_stops_hands_out_nothing_more() -> None:
    world = World({})
    peer = Peer(world)
    peer.log_in()
    peer.call(1, "channel.open", "")
    peer.call(1, "queue.declare", 0, "q", False, False, False, False, False, {})
    peer.call(1, "basic.consume", 0, "q", "tag", False, False, False, False, {})
    publish(peer, b"first")
    assert bodies(peer) == [b"first"]
    inside.dispatcher(world.broker).stopping = True
    publish(peer, b"second")
    assert bodies(peer) == []
    assert [name for name, _ in peer.call(1, "basic.get", 0, "q", True)] == ["basic.get-empty"]
    assert inside.queues(world.broker)["q"].ready == 1


@pytest.mark.parametrize(("waits_s", "code"), [(60.0, "disk-hangs"), (0.0, "log-away")])
async def test_a_stop_that_nobody_answers_says_who_does_not(
    waits_s: float, code: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def close() -> None:
        await asyncio.get_running_loop().create_future()

    ended: list[int] = []
    monkeypatch.setattr(shutdown, "_CLOSE_S", 0)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    await shutdown.close_in_time(cast(Any, SimpleNamespace(close=close, waits_s=waits_s)))
    assert ended == [70]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [code]
