"""Connection strings, destinations, layers of options, policies by pattern."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from homing.broker.core.redelivery import ConsumerPolicy, RedeliveryPolicyError
from homing.broker.protocols.native.codec import Op, encode
from homing.client import AckMode, RedeliveryPolicy, UsageError, connect
from homing.client.failure import MAX_FAULT_TEXT_CHARACTERS, failure_map, fitted
from homing.client.options import CONNECTION, CONSUMER, PRODUCER, consumer_options, given, parse, policies_of, policy_of
from homing.client.policy import PolicyMap
from homing.client.url import parse_destination, parse_url
from homing.client.waiting import Waiters
from tests.unit.client_fake import connected, on_both_loops


def test_the_parts_of_a_connection_string() -> None:
    url = parse_url("homing://ann:p%40ss@broker.example:7000/?prefetch=100&redeliveryPolicy.maximumRedeliveries=6")
    assert (url.hosts, url.user, url.password) == ((("broker.example", 7000),), "ann", "p@ss")
    assert url.options == {"prefetch": 100, "redelivery_policy.maximum_redeliveries": 6}
    assert "p@ss" not in repr(url)
    assert parse_url("homing://127.0.0.1").hosts == (("127.0.0.1", 7171),)
    several = parse_url("homing://ann:a,b@one,[::1]:7000,two:7001/?prefetch=1")
    assert (several.hosts, several.password) == ((("one", 7171), ("::1", 7000), ("two", 7001)), "a,b")
    assert repr(several) == "homing://ann@one:7171,[::1]:7000,two:7001"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1", "invalid-url"),
        ("homing://", "invalid-url"),
        ("homing://h:99999", "invalid-url"),
        ("homing://h/queue", "invalid-url"),
        ("homing://h,", "invalid-url"),
        (7, "invalid-url"),
        ("homing://h?prefech=1", "unknown-option"),
        ("homing://h?redeliveryPolicy.maximum=1", "unknown-option"),
        ("homing://h?priority=10", "invalid-option"),
        ("homing://h?consumer.priority=3000000000", "invalid-option"),
        ("homing://h?consumer.prefetchSize=1&prefetch=2", "invalid-option"),
        ("homing://h?prefetch=many", "invalid-option"),
        ("homing://h?prefetch=-1", "invalid-option"),
        ("homing://h?prefetch=1&prefetch=2", "invalid-option"),
        ("homing://h?prefetch", "invalid-option"),
        ("homing://h?optimizeAcknowledge=maybe", "invalid-option"),
        ("homing://h?redeliveryPolicy.backOffMultiplier=nan", "invalid-option"),
    ],
)
def test_what_a_connection_string_may_not_be(url: Any, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(url)
    assert caught.value.code == code
    assert caught.value.fix


def test_the_nearer_option_wins() -> None:
    layers = (given(prefetch=1), parse("prefetch=2", CONSUMER), given(prefetch=3), parse_destination("orders?prefetch=4", CONSUMER)[1])
    assert [consumer_options(layers[:count]).prefetch for count in range(5)] == [1000, 1, 2, 3, 4]


def test_single_policy_fields_override_a_farther_policy() -> None:
    far = given(redelivery_policy=RedeliveryPolicy(maximum_redeliveries=9, redelivery_delay_ms=7))
    near = parse("redeliveryPolicy.redeliveryDelay=50&redelivery_policy.use-exponential-back-off=true", CONSUMER)
    assert policy_of((far, near)) == RedeliveryPolicy(maximum_redeliveries=9, redelivery_delay_ms=50, use_exponential_back_off=True)
    assert policy_of(({},)) is None
    assert policy_of((near,), RedeliveryPolicy(maximum_redeliveries=1)) == RedeliveryPolicy(
        maximum_redeliveries=1, redelivery_delay_ms=50, use_exponential_back_off=True
    )


def test_a_connection_string_has_policies_by_pattern() -> None:
    policies = {"a.#": RedeliveryPolicy(maximum_redeliveries=9), "b": RedeliveryPolicy(maximum_redeliveries=1)}
    query = (
        "redeliveryPolicy.redeliveryDelay=7&jms.redeliveryPolicyMap.a.>.redeliveryDelay=5&redelivery_policies.New.*.maximumRedeliveries=2"
    )
    assert policies_of((parse(query, CONNECTION, CONSUMER),), policies) == {
        "a.#": RedeliveryPolicy(maximum_redeliveries=9, redelivery_delay_ms=5),
        "b": policies["b"],
        "New.*": RedeliveryPolicy(maximum_redeliveries=2, redelivery_delay_ms=7),
    }
    for wrong in ("homing://h?redeliveryPolicyMap.a.maxRedeliveries=1", "homing://h?redeliveryPolicyMap.a.redeliveryDelay=-1"):
        with pytest.raises(UsageError):
            connect(wrong)
    with pytest.raises(UsageError):
        parse("redeliveryPolicyMap.a.redeliveryDelay=1", CONSUMER)


def test_options_have_the_names_that_activemq_gives_them() -> None:
    assert parse("consumer.prefetchSize=3&consumer.priority=10", CONSUMER) == {"prefetch": 3, "consumer_priority": 10}
    assert parse("jms.prefetchPolicy.all=4&jms.redeliveryPolicy.maximumRedeliveries=2", CONSUMER, PRODUCER) == {
        "prefetch": 4,
        "redelivery_policy.maximum_redeliveries": 2,
    }
    with pytest.raises(UsageError) as caught:
        parse("redeliveryPolicy.maxRedeliveries=2", CONSUMER)
    assert caught.value.fix == "did you mean redelivery_policy.maximum_redeliveries?"


def test_destinations_take_only_options_of_their_kind() -> None:
    assert parse_destination("address::queue?selector=k%20%3D%201", CONSUMER) == ("address::queue", {"selector": "k = 1"})
    for destination, place in (("orders?prefetch=1", PRODUCER), ("orders?priority=1", CONSUMER), ("orders?heartbeatMs=1", CONSUMER)):
        with pytest.raises(UsageError) as caught:
            parse_destination(destination, place)
        assert caught.value.code == "unknown-option"
    with pytest.raises(UsageError):
        parse_destination("?prefetch=1", CONSUMER)


@pytest.mark.parametrize(
    ("name", "winner"),
    [
        ("orders.eu.paid", 3),
        ("orders.us.paid", 2),
        ("orders.us", 1),
        ("orders", 1),
        ("stock", 0),
    ],
)
def test_the_most_specific_pattern_wins(name: str, winner: int) -> None:
    patterns = ["#", "orders.#", "orders.*.paid", "orders.eu.#"]
    policies = PolicyMap({pattern: RedeliveryPolicy(maximum_redeliveries=number) for number, pattern in enumerate(patterns)})
    match = policies.match(name)
    assert match is not None
    assert match.maximum_redeliveries == winner
    assert PolicyMap({"a.*": RedeliveryPolicy()}).match("b.c") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"maximum_redeliveries": -2},
        {"maximum_redeliveries": True},
        {"redelivery_delay_ms": -1},
        {"back_off_multiplier": float("inf")},
        {"collision_avoidance_factor": 1.5},
        {"use_exponential_back_off": 1},
    ],
)
def test_policies_are_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        RedeliveryPolicy(**fields)
    assert caught.value.code == "invalid-redelivery-policy"


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("maximum_redeliveries", -1, 2**63 - 1),
        ("initial_redelivery_delay_ms", 0, 10 * 365 * 86_400_000),
        ("redelivery_delay_ms", 0, 10 * 365 * 86_400_000),
        ("maximum_redelivery_delay_ms", -1, 10 * 365 * 86_400_000),
        ("back_off_multiplier", 0, 1e9),
        ("collision_avoidance_factor", 0, 1),
    ],
)
def test_client_and_broker_take_and_refuse_the_same_policies(name: str, low: Any, high: Any) -> None:
    for value in (low, high):
        assert ConsumerPolicy.from_map(RedeliveryPolicy(**{name: value}).to_wire()) == ConsumerPolicy.from_map({name: value})
    for value in (low - 1, high * 2):
        with pytest.raises(UsageError):
            RedeliveryPolicy(**{name: value})
        with pytest.raises(RedeliveryPolicyError):
            ConsumerPolicy.from_map({name: value})


def test_defaults_are_activemqs() -> None:
    assert RedeliveryPolicy().to_wire() == {
        "maximum_redeliveries": 6,
        "initial_redelivery_delay_ms": 1000,
        "redelivery_delay_ms": 1000,
        "use_exponential_back_off": False,
        "back_off_multiplier": 5.0,
        "maximum_redelivery_delay_ms": -1,
        "use_collision_avoidance": False,
        "collision_avoidance_factor": 0.15,
    }


@on_both_loops
async def test_a_destination_refines_the_connections_policy() -> None:
    policies = {"orders.#": RedeliveryPolicy(maximum_redeliveries=3)}
    async with connected(redelivery_policies=policies, prefetch=5) as (broker, connection), connection.session(AckMode.AUTO) as session:
        await session.consumer("orders.eu").ready()
        await session.consumer("orders.eu?redeliveryPolicy.redeliveryDelay=9").ready()
        plain, refined = (frame[4] for frame in broker.of(Op.SUBSCRIBE))
        assert plain == {"prefetch": 5}  # the broker knows the map from HELLO
        assert refined["redelivery_policy"] == RedeliveryPolicy(maximum_redeliveries=3, redelivery_delay_ms=9).to_wire()


def test_failures_are_cut_and_cleaned() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    failure = failure_map("listener", error=Mute())
    assert failure["error_text"] == "(no text: ValueError in __str__)"
    long = failure_map("nack", error=ValueError("x" * 100_000 + "\ud800"))
    assert len(long["error_text"]) <= MAX_FAULT_TEXT_CHARACTERS
    assert long["error_text"].endswith("\\ud800")
    odd = type("é" * 20_000, (Exception,), {})
    assert len(failure_map("nack", error=odd())["error_type"]) <= MAX_FAULT_TEXT_CHARACTERS
    assert failure_map("nack", error="plain words") == {"outcome": "nack", "error_text": "plain words"}
    with pytest.raises(UsageError):
        failure_map("nack", retryable=False, count=False)


def test_a_failure_fits_into_the_smallest_frame() -> None:
    short = failure_map("nack", "why", error=ValueError("x"))
    assert fitted(short, 65_536) is short
    cut = fitted(failure_map("nack", "\U0001f600" * 90_000, error=ValueError("\U0001f600" * 90_000)), 65_536 - 32)
    assert len(encode([int(Op.ACK), 1, 3, [1, 1000], cut])) < 65_536 * 3 // 4
    assert cut["error_type"] == "ValueError"
    assert all("characters left out" in cut[name] for name in ("reason", "error_text", "traceback"))


@on_both_loops
async def test_a_wake_up_that_meets_a_cancellation_is_passed_on() -> None:
    waiters = Waiters(asyncio.get_running_loop())
    first, second = (asyncio.create_task(waiters.wait()) for _ in range(2))
    await asyncio.sleep(0)
    waiters.wake()
    first.cancel()
    assert await second is True
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await waiters.wait(asyncio.get_running_loop().time()) is False
    assert len(waiters) == 0
