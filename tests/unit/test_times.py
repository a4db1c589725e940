"""No time that a front end accepts is too long for the journal: it is stored, dies, and is there again after a kill."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from homing.broker.auth.access import BROKER
from homing.broker.config.config import ConfigError, parse
from homing.broker.core.amqp.policy import PolicyError, read_policy
from homing.broker.core.consumer import ConsumerOptions
from homing.broker.core.message import Message
from homing.broker.core.redelivery import MAX_DELAY_MS, ConsumerPolicy, Failure, RedeliveryPolicyError
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from homing.broker.core.settings.units import MAX_DURATION_MS
from homing.broker.core.settings.values import SettingError
from homing.broker.errors import Refused
from homing.broker.management import policies
from homing.broker.process.making import make_broker
from homing.broker.process.recovery import recover
from homing.broker.protocols.amqp091.codec import AmqpError
from homing.broker.protocols.amqp091.codec_properties import ContentProperties
from homing.broker.protocols.amqp091.errors import error_of
from homing.broker.protocols.amqp091.message_mapping import ttl_of
from homing.broker.protocols.failures import checked_report
from homing.broker.protocols.native import fields
from homing.broker.protocols.native.codec import ProtocolError
from homing.broker.topology.amqp.arguments import options_for
from homing.client import validation
from homing.journal.journal import Journal
from tests import inside
from tests.model.world import ANYBODY, Client
from tests.unit.journal_support import NOW_MS, opened

EXTREMES: Final = [
    0,
    1,
    MAX_DURATION_MS - 1,
    MAX_DURATION_MS,
    MAX_DURATION_MS + 1,
    *(2**bits + more for bits in (31, 32, 53, 62, 63, 64) for more in (-1, 0)),
]
REFUSALS: Final = (Refused, PolicyError, RedeliveryPolicyError, AmqpError, SettingError, ProtocolError, ConfigError)
#: Everything that a client or broker.yaml may ask for in time, and how the front end reads it.
FRONT_ENDS: Final[dict[str, Callable[[int], Any]]] = {
    "native ttl": lambda ms: fields.messages([[b"", None, 4, True, ms]], "a", "p", NOW_MS)[2],
    "native delay": lambda ms: fields.messages([[b"", None, 4, True, 0, ms]], "a", "p", NOW_MS)[2],
    "native ttl of bodies": lambda ms: fields.messages_alike([4, True, ms], [b""], "a", "p", NOW_MS)[2],
    "consumer policy, first delay": lambda ms: ConsumerPolicy.from_map({"initial_redelivery_delay_ms": ms}),
    "consumer policy, delay": lambda ms: ConsumerPolicy.from_map({"redelivery_delay_ms": ms}),
    "consumer policy, cap": lambda ms: ConsumerPolicy.from_map({"maximum_redelivery_delay_ms": ms}),
    "AMQP expiration": lambda ms: ttl_of(ContentProperties(expiration=str(ms))),
    "AMQP x-message-ttl": lambda ms: options_for("q", {"x-message-ttl": ms}, True, False, False),
    "AMQP x-expires": lambda ms: options_for("q", {"x-expires": ms}, True, False, False),
    "policy message-ttl": lambda ms: read_policy("p", ".", {"message-ttl": ms}),
    "policy expires": lambda ms: read_policy("p", ".", {"expires": ms}),
    "address setting": lambda ms: AddressSettingsRepository({"#": {"redelivery-delay": ms}}),
    "address setting, list": lambda ms: AddressSettingsRepository({"#": {"redelivery-delays": [ms]}}),
    "broker.yaml": lambda ms: parse(f"journal: {{history-retention: {ms}}}\n"),
    "broker.yaml, unit": lambda ms: parse(f"limits: {{transaction-timeout: {ms // 1000}s}}\n") if ms > 10_000 else None,
}


def accepted(read: Callable[[int], Any], ms: int) -> bool:
    try:
        return not isinstance(read(ms), Refused)
    except REFUSALS:
        return False


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_every_front_end_has_the_same_bound(name: str) -> None:
    assert accepted(FRONT_ENDS[name], MAX_DURATION_MS)
    assert not any(accepted(FRONT_ENDS[name], ms) for ms in EXTREMES if ms > MAX_DURATION_MS + 999)
    assert validation.MAX_DURATION_MS == MAX_DELAY_MS == MAX_DURATION_MS


def test_what_is_too_long_is_refused_in_the_words_of_each_front_end() -> None:
    with pytest.raises(Refused) as refused:
        options_for("q", {"x-message-ttl": 2**53}, True, False, False)
    assert (error_of(refused.value).code, "{value_too_big,9007199254740992}" in refused.value.message) == (406, True)
    with pytest.raises(PolicyError, match="message-ttl cannot be 9007199254740992: is more than 10 years"):
        read_policy("p", ".", {"message-ttl": 2**53})


class Life:
    """A broker on a real journal, fed through what the front ends accept."""

    def __init__(self, journal: Journal) -> None:
        self.time_ms = NOW_MS
        config = inside.configured({"#": {"max-nack-delay": MAX_DURATION_MS}})
        self.broker = make_broker(journal, config, lambda: self.time_ms, Random(0), lambda: None)
        self.loop = inside.turn_of(self.broker, config)

    def standing(self) -> dict[int, tuple[str, int | None, int | None, list[int | None]]]:
        """What is kept of each message's times, hops included."""
        return {
            each.sequence: (
                queue.name,
                each.due_at_ms,
                each.expires_at_ms,
                [hop.detail.get("expires_at_ms") for hop in each.hops or ()],
            )
            for queue in inside.queues(self.broker).values()
            for each in queue.references.values()
        }

    def live(self, times: dict[str, int]) -> None:
        """One queue of each kind; messages come with every time, fail with every delay, and die."""
        broker, client = self.broker, Client(lambda: self.time_ms, lambda delivery: None)
        client.connection = connection = inside.connections(broker).connect("c", "", client)
        for pattern in ("native", "DLQ"):
            definition = {"message-ttl": times["policy"]}
            attempt(policies.set_one, broker, ANYBODY, name=pattern, pattern=f"^{pattern}", definition=definition)
        attempt(
            inside.resources(broker).declare,
            BROKER,
            {"queue": "native", "message_ttl_ms": times["queue"], "redelivery_delay_ms": times["setting"]},
        )
        arguments = {"x-message-ttl": times["argument"], "x-dead-letter-exchange": "amq.fanout"}
        attempt(
            lambda: inside.declared_queues(broker).declare(
                connection, "amqp", durable=True, exclusive=False, auto_delete=False, arguments=arguments
            )
        )
        policy = {"redelivery_policy": {"initial_redelivery_delay_ms": times["policy"], "maximum_redeliveries": 1}}
        for number, name in enumerate(("native", "amqp", "plain"), 1):
            producer = inside.producers(broker).open(connection, number, name)
            options = attempt(fields.consumer_options, policy) or ConsumerOptions()
            consumer = inside.subscriptions(broker).subscribe(connection, number, name, options)
            items: list[list[Any]] = [[b"a", None, 4, True, times["ttl"]], [b"b", None, 4, True, 0, times["delay"]], [b"c"], [b"d"]]
            messages: list[Message] = [m for item in items for m in fields.messages([item], name, producer.key, self.time_ms)[0]]
            assert inside.intake(broker).send(producer, 1, messages, broker.now_ms()) is None
            self.loop.drain()
            held = list(consumer.unsettled.values())
            report = checked_report({"delay_ms": times["nack"]})
            inside.settlement(broker).fail(consumer, held[:1], Failure(delay_ms=report["delay_ms"]), "nack", report)
            inside.settlement(broker).fail(consumer, held[1:2], Failure(retryable=False), "nack", {})


def attempt(act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    try:
        return act(*arguments, **named)
    except REFUSALS:
        return None


async def lives_on(directory: Path, times: dict[str, int]) -> None:
    async with opened(directory / "first") as (journal, recovered):
        life = Life(journal)
        recover(life.broker, recovered)
        life.live(times)
        await journal.flush()
        before = life.standing()
        # What a kill leaves behind.
        shutil.copytree(directory / "first", directory / "killed")
    async with opened(directory / "killed") as (journal, recovered):
        again = Life(journal)
        recover(again.broker, recovered)
        assert again.standing() == before
        assert len(before) > 3


NAMES: Final = ("policy", "queue", "setting", "argument", "ttl", "delay", "nack")


@settings(max_examples=12, deadline=None)
@example(dict.fromkeys(NAMES, 2**53))
@example(dict.fromkeys(NAMES, MAX_DURATION_MS))
@given(st.fixed_dictionaries({name: st.sampled_from(EXTREMES[:-1]).filter(lambda ms: ms < 2**63) for name in NAMES}))
def test_every_time_that_is_accepted_is_there_after_a_kill(times: dict[str, int]) -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(lives_on(Path(directory), times))


async def test_longer_times_that_an_earlier_version_took_hold_as_ten_years(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, recovered):
        life = Life(journal)
        recover(life.broker, recovered)
        queue = inside.resources(life.broker).declare(BROKER, {"queue": "native", "message_ttl_ms": 5})
        journal.batch.queue(journal.batch.queues[queue.queue_id]._replace(options={"message_ttl_ms": 2**53}))
        inside.set_policy(life.broker, read_policy("p", "^native", {"expires": 5}))
        (record,) = [each for each in journal.batch.declarations.values() if each is not None and each.kind == "policy"]
        journal.batch.declare(record._replace(content={**record.content, "definition": {"expires": 2**53}}))
    async with opened(tmp_path) as (journal, recovered):
        life = Life(journal)
        recover(life.broker, recovered)
        found = inside.queues(life.broker)["native"].settings
        assert (found.message_ttl_ms, found.expires_ms) == (MAX_DURATION_MS, MAX_DURATION_MS)
