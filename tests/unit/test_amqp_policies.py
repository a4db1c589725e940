"""Policies: what they say, which one holds, and what it comes to beside a declaration."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.core.amqp.policy import Policy, PolicyError, best, read_pattern, read_policy
from homing.broker.core.patterns import TooSlow
from homing.broker.core.settings.address_settings import AddressSettings, AddressSettingsRepository
from homing.broker.core.settings.units import MAX_DURATION_MS
from homing.broker.topology.amqp.arguments import options_for
from homing.broker.topology.amqp.policies import with_policy
from homing.broker.topology.resources import settings_for
from tests import inside
from tests.model.world import World


def policy(name: str = "p", pattern: str = ".*", apply_to: str = "queues", priority: int = 0, **definition: Any) -> Policy:
    written = {key.replace("_", "-"): value for key, value in definition.items()} or {"max-length": 1}
    return read_policy(name, pattern, written, apply_to, priority)


# -- what can be written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        {},
        "text",
        {"max-priority": 5},
        {"ha-mode": "all"},
        {"message-ttl": -1},
        {"message-ttl": 1.5},
        {"expires": 0},
        {"max-length": True},
        {"max-length": "many"},
        {"overflow": "block"},
        {"dead-letter-exchange": 7},
        {"dead-letter-routing-key": "x" * 256},
        {"delivery-limit": -2},
    ],
)
def test_what_a_definition_cannot_say(written: Any) -> None:
    with pytest.raises(PolicyError):
        read_policy("p", ".*", written)


def test_times_and_sizes_may_have_a_unit() -> None:
    read = read_policy("p", ".*", {"message-ttl": "1m", "expires": 5000, "max-length-bytes": "1KiB"})
    assert read.definition == {"message-ttl": 60_000, "expires": 5000, "max-length-bytes": 1024}


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("", ".*", {"max-length": 1}), "use 1 to 255"),
        (("p", "(", {"max-length": 1}), "write a regular expression"),
        (("p", ".*", {"max-length": 1}, "streams"), "use queues, exchanges, all"),
        (("p", ".*", {"max-length": 1}, "all", True), "use a whole number"),
    ],
)
def test_what_a_policy_cannot_be(arguments: tuple[Any, ...], fix: str) -> None:
    with pytest.raises(PolicyError) as refused:
        read_policy(*arguments)
    assert refused.value.fix.startswith(fix)


# -- patterns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["(", "a**", "[", "x" * 257, "(?!x)((((a{99}){99}){99}){99})"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(PolicyError):
        read_pattern(pattern)


#: With what is slow for a matcher that tries one way after the other.
SLOW = ["(a+)+$", "(a|a)*b", "((ab)*)*c", "(a?){40}b", "(a|a)" * 30 + "b", ".*a.*a.*a.*b", r"(a+)\1+b", "(?!x)(a+)+c", "(?<!x)(a|a|aa)*c"]


@pytest.mark.parametrize("pattern", SLOW)
def test_no_name_takes_long_whatever_the_pattern(pattern: str) -> None:
    """Of 20,000 names none takes a hundredth of a second, but for those that show that a pattern is slow."""
    compiled = read_pattern(pattern)
    for number in range(2000):
        with suppress(TooSlow):
            compiled.search("a" * 240 + str(number))
    # As often as it takes to see what it is.
    assert compiled.slow is compiled.given_up


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^orders\.", "orders.eu", "my.orders.eu"),
        ("orders", "my.orders", "order"),
        (r"^(?!amq\.).*", "orders", "amq.gen-1"),
        (r"^(eu|us)\.orders\.[a-z]+$", "eu.orders.new", "eu.orders.1"),
        (r"^(?!(amq\.)|(foo)).*$", "bar", "foobar"),
        ("(?i)^ORDERS$", "orders", "order"),
        ("^[]a]{2,}$", "]a", "b"),
        ("(?:^|\\.)dead$", "orders.dead", "deadly"),
        (r"(a)\1", "baab", "aba"),
        (r"^orders\Z", "orders", "orders.eu"),
        ("(?<=eu)\\.", "eu.orders", "us.orders"),
    ],
)
def test_patterns_are_searched_for(pattern: str, matching: str, other: str) -> None:
    compiled = read_pattern(pattern)
    assert compiled.search(matching)
    assert not compiled.search(other)


# -- which one holds ---------------------------------------------------------------------------------------------------


def test_the_highest_priority_alone_holds() -> None:
    policies = [policy("low", max_length=1), policy("high", priority=2, message_ttl=5), policy("other", "^x", priority=9)]
    found = best(policies, "/", "orders", "queues")
    assert found is not None
    assert found.name == "high"
    assert dict(found.definition) == {"message-ttl": 5}


def test_of_equal_priorities_the_first_name_holds() -> None:
    for policies in ([policy("b"), policy("a")], [policy("a"), policy("b")]):
        found = best(policies, "/", "orders", "queues")
        assert found is not None
        assert found.name == "a"


@pytest.mark.parametrize(
    ("apply_to", "kind", "holds"),
    [("queues", "queues", True), ("queues", "exchanges", False), ("exchanges", "queues", False), ("all", "exchanges", True)],
)
def test_what_a_policy_applies_to(apply_to: str, kind: str, holds: bool) -> None:
    assert (best([policy(apply_to=apply_to)], "/", "any", kind) is not None) is holds
    assert best([policy(apply_to=apply_to)], "shop", "any", kind) is None


def test_what_holds_is_found_again_when_policies_come_and_go() -> None:
    """Whatever order policies are set, replaced and cleared in, each queue has the one that all of them together would give it."""
    world = World({})
    broker, rng = world.broker, Random(7)
    for name in ("a", "ab", "b", "ba", "c"):
        inside.resources(broker).declare(BROKER, {"queue": name})
    living: dict[str, Policy] = {}
    for _ in range(300):
        name = rng.choice("pqrst")
        if name in living and rng.random() < 0.4:
            inside.clear_policy(broker, "/", name)
            del living[name]
        else:
            living[name] = policy(name, rng.choice(["a", "^b", "b", "c$", ""]), priority=rng.randrange(3), max_length=rng.randrange(9))
            inside.set_policy(broker, living[name])
        for queue in inside.queues(broker).values():
            wanted = best(living.values(), "/", queue.name, "queues")
            assert queue.policy == wanted
            assert queue.settings.max_length == (wanted.definition["max-length"] if wanted is not None else None)


# -- what it comes to --------------------------------------------------------------------------------------------------


def in_force(arguments: dict[str, Any], **definition: Any) -> AddressSettings:
    """Of a queue declared over AMQP."""
    options = options_for("q", arguments, True, False, False)
    return settings_for(AddressSettingsRepository({}), "q", options, policy(**definition))


@pytest.mark.parametrize(
    ("argument", "key", "field"),
    [
        ("x-message-ttl", "message_ttl", "message_ttl_ms"),
        ("x-expires", "expires", "expires_ms"),
        ("x-consumer-timeout", "consumer_timeout", "consumer_timeout_ms"),
        ("x-max-length", "max_length", "max_length"),
        ("x-max-length-bytes", "max_length_bytes", "max_length_bytes"),
    ],
)
def test_of_limits_the_smaller_one_holds(argument: str, key: str, field: str) -> None:
    assert getattr(in_force({}, **{key: 5}), field) == 5
    assert getattr(in_force({argument: 3}, **{key: 5}), field) == 3
    assert getattr(in_force({argument: 7}, **{key: 5}), field) == 5


@pytest.mark.parametrize(
    ("arguments", "limit", "attempts"),
    [({}, 2, 3), ({"x-delivery-limit": 5}, 2, 3), ({"x-delivery-limit": 1}, 2, 2), ({"x-delivery-limit": 4}, -1, 5), ({}, -1, -1)],
)
def test_of_delivery_limits_the_smaller_one_holds(arguments: dict[str, Any], limit: int, attempts: int) -> None:
    assert in_force(arguments, delivery_limit=limit).max_delivery_attempts == attempts


@pytest.mark.parametrize(
    ("arguments", "definition", "retries"),
    [
        ({}, {"delayed_retry_type": "all", "delayed_retry_min": 5}, ("all", 5, 5)),
        ({}, {"delayed_retry_type": "all"}, (None, 1000, 3_600_000)),
        ({"x-delayed-retry-min": 7}, {"delayed_retry_type": "failed", "delayed_retry_min": 5, "delayed_retry_max": 9}, ("failed", 7, 9)),
        ({"x-delayed-retry-type": "disabled"}, {"delayed_retry_type": "all", "delayed_retry_min": 5}, (None, 1000, 3_600_000)),
        ({}, {"delayed_retry_min": 5, "delayed_retry_multiplier": 2}, ("all", 5, MAX_DURATION_MS)),
    ],
)
def test_declared_delayed_retries_go_before_a_policys(
    arguments: dict[str, Any], definition: dict[str, Any], retries: tuple[str | None, int, int]
) -> None:
    found = in_force(arguments, **definition)
    assert (found.delayed_retry_type, found.redelivery_delay_ms, found.max_redelivery_delay_ms) == retries


@pytest.mark.parametrize(
    ("arguments", "definition", "overflow"),
    [
        ({}, {"max_length": 1}, "drop-head"),
        ({"x-max-length": 1}, {"overflow": "reject-publish"}, "reject-publish"),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, "drop-head"),
        ({"x-overflow": "reject-publish"}, {"max_length": 1}, "reject-publish"),
    ],
)
def test_a_declared_overflow_goes_before_a_policys(arguments: dict[str, Any], definition: dict[str, Any], overflow: str) -> None:
    assert in_force(arguments, **definition).overflow == overflow


def test_a_queue_of_another_protocol_keeps_its_own_overflow() -> None:
    settings = with_policy(AddressSettings(overflow="block"), {}, policy(max_length=5))
    assert (settings.max_length, settings.overflow) == (5, "block")
