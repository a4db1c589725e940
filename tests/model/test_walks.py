"""The walks of docs/architecture.md are those that messages make in a broker that serves: each function that it names is called, in that
order, and no walk goes further than it says. Its figures may only fall: who makes a walk longer says there why.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from homing.client import AckMode
from homing.testing import Broker
from tests.walks import Walk, Walker, walked

PAGE = (Path(__file__).parent.parent.parent / "docs" / "architecture.md").read_text().partition("## Four walks")[2].partition("\n## ")[0]
SETTINGS = {"address-settings": {"#": {"redelivery-delay": "1h"}, "fragile": {"max-delivery-attempts": 1}}}
#: Messages of the longer redrive.
MORE = 20
#: What happens by time, once a second, may fall into a walk: the shortest of so many counts.
ROUNDS = 4


def walk_of(title: str) -> list[str]:
    """The first name of each line of code in the walk's list."""
    steps = PAGE.partition(f"**{title}**")[2].partition("\n**")[0]
    return [name for line in re.findall(r"^\d+\. (.*)$", steps, re.MULTILINE) for name in re.findall(r"`([\w.]+)`", line.partition(":")[0])]


async def walks(broker: Broker) -> dict[str, Walk]:
    """One of each."""
    found: dict[str, Walk] = {}

    async def walk(operation: Callable[[], Awaitable[object]]) -> Walker:
        async def until_all_is_done() -> None:
            await operation()
            await broker.settled()

        return await walked(until_all_is_done)

    async with broker.connect() as connection, connection.session(AckMode.INDIVIDUAL) as session:
        orders, fragile = session.producer("orders"), session.producer("fragile")
        async with session.consumer("orders", prefetch=1) as consumer:
            # What a program fails with first is a little further: it is told of.
            for way in ("acknowledge", "fail", "fail"):
                sent = await walk(lambda: orders.send(b"1"))
                found["send"], found["deliver"] = sent.walk, sent.turns
                message = await consumer.receive(timeout_ms=30_000)
                assert message is not None
                await broker.settled()
                settled = await walk(message.acknowledge if way == "acknowledge" else partial(message.nack, reason="busy"))
                found[way] = settled.walk
                if way == "acknowledge":
                    found["an empty turn"] = settled.turns
        async with session.consumer("fragile", prefetch=1) as consumer:
            for _ in range(1 + MORE):
                await fragile.send(b"1")
                message = await consumer.receive(timeout_ms=30_000)
                assert message is not None
                await broker.settled()
                found["fail, dead"] = (await walk(partial(message.nack, reason="busy"))).walk
        for number in (1, MORE):
            dead = [each["message_id"] for each in await broker.dead_letters("fragile")][:number]
            await broker.settled()
            walker = await walked(partial(connection.call, "redrive", queue="DLQ.fragile", message_ids=dead))
            found["redrive of one" if number == 1 else "redrive of many"] = Walk(moves=walker.walk.moves + walker.turns.moves)
    return found


@pytest.fixture(scope="module")
def rounds() -> list[dict[str, Walk]]:
    async def several() -> list[dict[str, Walk]]:
        async with Broker(SETTINGS) as broker:
            return [await walks(broker) for _ in range(ROUNDS)]

    return asyncio.run(several())


@pytest.mark.plain
def test_messages_walk_where_the_page_says(rounds: list[dict[str, Walk]]) -> None:
    for title, walk in {"Send": "send", "Receive": "deliver", "Acknowledge": "acknowledge", "Fail": "fail"}.items():
        steps, names = walk_of(title), iter(rounds[-1][walk].names)
        assert len(steps) > 5
        for step in steps:
            assert step in names, f"{title}: {step} is not called, or not after the one before it"


@pytest.mark.plain
def test_walks_are_as_long_as_the_page_says(rounds: list[dict[str, Walk]]) -> None:
    said = {walk: int(moves) for walk, moves in re.findall(r"^\| ([a-z][^|]+) \| (\d+) \|", PAGE, re.MULTILINE)}
    found = {walk: min(each[walk].moves for each in rounds) for walk in rounds[0]}
    one, further = found.pop("redrive of one"), found.pop("redrive of many")
    assert {walk: said[walk] for walk in found} == found, "where one has become shorter, the page says so; where longer, why"
    # From its call to its answer: the disk says whether a turn more is taken, of some seven.
    assert 0.95 * said["redrive of one"] < one < 1.1 * said["redrive of one"]
    assert (further - one) / (MORE - 1) < 1.5 * said["each further message of a redrive"]
