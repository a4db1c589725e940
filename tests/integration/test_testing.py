"""homing.testing, as its users have it: the plugin in a pytest of its own, and the broker in the event loop of a test."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import aio_pika
import pytest
import uvloop

from homing.broker.config.config import ConfigError, load
from homing.client import AckMode, CallError, Message
from homing.testing import Broker
from tests.process import ROOT

RETRIES = {"address-settings": {"#": {"redelivery-delay": "1m", "redelivery-delay-multiplier": 2, "max-delivery-attempts": 5}}}
PLUGIN = "import sys, homing.testing.plugin; print(sorted(name for name in sys.modules if name.startswith('homing')))"


def test_the_programs_of_the_page_run_under_a_pytest_of_their_own(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_orders.py").write_text(program)
    (tmp_path / "broker.yaml").write_text((ROOT / "broker.yaml").read_text())
    options = ("-q", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.count("1 passed")) == (0, 1), done.stdout + done.stderr


def test_the_plugin_imports_nothing_until_a_fixture_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", PLUGIN], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "['homing', 'homing.testing', 'homing.testing.plugin']"


@pytest.fixture
def homing_config() -> object:
    return RETRIES


@pytest.mark.asyncio
async def test_each_retry_comes_at_its_time_and_what_handlers_wait_for_passes_too(homing_broker: Broker) -> None:
    broker, tries = homing_broker, []

    async def handler(message: Message) -> None:
        tries.append(broker.now)
        await asyncio.sleep(30)
        raise ValueError("no stock")

    async with broker.connect() as connection, connection.session(AckMode.AUTO) as session:
        await session.listen("orders", handler)
        await session.producer("orders").send(b"a loaf of bread")
        await broker.advance("1h")
    gaps = [round((later - earlier) / timedelta(seconds=1)) for earlier, later in pairwise(tries)]
    assert gaps == [90, 150, 270, 510]
    (dead,) = await broker.assert_dead_lettered("orders", reason="delivery_limit")
    assert (dead["body"], dead["hops"][0]["attempts"]) == (b"a loaf of bread", 5)


@pytest.mark.asyncio
async def test_what_is_not_dead_yet_is_told_with_its_state(homing_broker: Broker) -> None:
    async with homing_broker.connect() as connection, connection.session(AckMode.INDIVIDUAL) as session:
        await session.producer("orders").send(b"a loaf of bread")
        message = await session.consumer("orders").receive(timeout_ms=60_000)
        assert message is not None
        await message.nack(reason="no stock")
        with pytest.raises(AssertionError) as error:
            await homing_broker.assert_dead_lettered("orders", reason="poison")
    said = "expected 1 dead letter of orders for poison, found 0\n  still scheduled, failed 1 time, due in "
    assert str(error.value).startswith(said)
    with pytest.raises(AssertionError, match="there is no such queue"):
        await homing_broker.assert_dead_lettered("parcels")
    with pytest.raises(CallError):
        await homing_broker.messages("parcels")


@pytest.mark.asyncio
async def test_clients_of_rabbitmq_find_it_where_the_file_has_a_section_for_them() -> None:
    async with Broker({"amqp": None, **RETRIES}) as none, Broker({"amqp": {"port": 5672}}, seed=7) as broker:
        assert none.amqp_url is None
        assert broker.amqp_url is not None
        connection = await aio_pika.connect(broker.amqp_url)
        async with connection:
            channel = await connection.channel()
            await channel.declare_queue("parcels", durable=True, arguments={"x-message-ttl": 3_600_000})
            await channel.default_exchange.publish(aio_pika.Message(b"late"), "parcels")
            await broker.advance(timedelta(minutes=59))
            assert [each["body"] for each in await broker.messages("parcels")] == [b"late"]
            await broker.advance("2m")
            assert await broker.messages("parcels") == []


def test_in_another_loop_it_says_what_is_needed() -> None:
    async def start() -> None:
        async with Broker():
            pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, pytest.raises(TypeError, match="asyncio's own event loop"):
        runner.run(start())


async def die(broker: Broker, queue: str, number: int) -> None:
    """So many messages, the bodies 0, 1, …, are dead letters of it."""
    async with broker.connect() as connection, connection.session(AckMode.INDIVIDUAL) as session:
        producer, consumer = session.producer(queue), session.consumer(queue)
        for each in range(number):
            await producer.send(str(each).encode())
            message = await consumer.receive(timeout_ms=60_000)
            assert message is not None
            await message.nack(retryable=False)


async def left(broker: Broker, queue: str) -> list[bytes]:
    return sorted([each["body"] for each in await broker.dead_letters(queue)])


@pytest.mark.asyncio
async def test_dead_letters_that_are_too_old_or_too_many_go_at_the_end_of_an_advance() -> None:
    both = {"dead-letter-retention": "1h", "dead-letter-quota": 2, "dead-letter-archive": False}
    async with Broker({"address-settings": {"#": both}}) as broker, Broker({"address-settings": {"#": both}}) as other:
        await die(broker, "orders", 1)
        await broker.advance("59m")
        await die(broker, "orders", 4)
        await die(other, "parcels", 3)
        await broker.settled()
        assert (len(await left(broker, "orders")), len(await left(other, "parcels"))) == (5, 3)
        await broker.advance("2m")
        assert (await left(broker, "orders"), await left(other, "parcels")) == ([b"2", b"3"], [b"1", b"2"])
        await broker.advance("1h")
        assert (await left(broker, "orders"), await left(other, "parcels")) == ([], [])


@pytest.mark.asyncio
async def test_archives_go_with_the_test(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "archive"
    given = {"address-settings": {"#": {"dead-letter-retention": "1h"}}, "journal": {"archive-directory": str(place)}}
    async with Broker(given) as broker:
        await die(broker, "orders", 1)
        await broker.advance("61m")
        assert await left(broker, "orders") == []
        (archive,) = [Path(each) for each in re.findall(r"archived in (\S+)", caplog.text)]
        assert (archive / "_homing_export.json").exists()
    assert not archive.exists()
    assert not place.exists()


@pytest.mark.asyncio
async def test_time_does_not_go_back(homing_broker: Broker) -> None:
    for duration in ("-5s", timedelta(days=-1), timedelta(microseconds=-1)):
        with pytest.raises(ValueError, match="a duration such as 250ms"):
            await homing_broker.advance(duration)
    with pytest.raises(ValueError, match="must not be negative"):
        await homing_broker.advance(timedelta(days=-1))


def test_a_section_that_does_not_exist_is_refused_as_the_broker_refuses_it(tmp_path: Path) -> None:
    wrong = tmp_path / "broker.yaml"
    wrong.write_text('http: {port: 1}\naddress-setings:\n  "#": {max-delivery-attempts: 1}\n')
    with pytest.raises(ConfigError) as by_broker:
        load(wrong)
    with pytest.raises(ConfigError) as by_file:
        Broker(wrong)
    assert str(by_file.value) == str(by_broker.value) == f"{wrong}: line 2, address-setings: there is no such setting"
    assert by_file.value.__notes__ == [by_broker.value.fix] == ["did you mean address-settings or addresses?"]
    with pytest.raises(ConfigError, match="zzz: there is no such setting"):
        Broker({"zzz": 1})
    Broker({"http": {"port": 1}, "users": {"ann": 5}, "data-directory": 5})


@pytest.mark.parametrize(("given", "error"), [(5, TypeError), (b"broker.yaml", TypeError), ("", ValueError), (Path(), ValueError)])
def test_what_is_no_configuration_is_told_what_is_wanted(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"expected the path of a broker\.yaml, its sections as a dict, or None for the defaults, got "):
        Broker(given)
