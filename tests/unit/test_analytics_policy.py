"""The simulation's policies are the broker's: the same file, the same addresses, the same delays, the same limit."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.analytics.truth import settings_of
from homing.analytics.errors import AnalyticsError
from homing.analytics.what_if.policy import DEFAULTS, OTHERS, Policy, load_policies, parse_policies, regex_of
from homing.broker.core.redelivery import ConsumerPolicy, attempts_allowed, schedule
from homing.broker.core.settings.address_settings import FIELD_OF_KEY, AddressSettings
from homing.broker.core.settings.wildcard import pattern_matches, specificity

WORDS = ("a", "b", "*", "#")
PATTERNS = [".".join(words) for length in (1, 2, 3) for words in itertools.product(WORDS, repeat=length)]
NAMES = [".".join(words) for length in (1, 2, 3, 4) for words in itertools.product(("a", "b", "c"), repeat=length)]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_the_broker_says(pattern: str) -> None:
    assert [bool(re.search(regex_of(pattern), f"{name}.")) for name in NAMES] == [pattern_matches(pattern, name) for name in NAMES]


def test_the_more_specific_pattern_wins() -> None:
    layers = parse_policies({pattern: {} for pattern in PATTERNS}).layers
    assert [specificity(pattern) for pattern, _ in layers] == sorted(specificity(pattern) for pattern in PATTERNS)


def test_every_setting_of_the_broker_is_known_and_no_other() -> None:
    names = {each.name.removesuffix("_ms").replace("_", "-") for each in fields(AddressSettings) if each.metadata}
    assert (OTHERS | set(DEFAULTS)) - {"redelivery-policy"} == names
    ours = {key: getattr(AddressSettings(), FIELD_OF_KEY[key]) for key in DEFAULTS if key != "redelivery-policy"}
    assert ours | {"redelivery-delays": list(ours["redelivery-delays"]), "redelivery-policy": None} == DEFAULTS
    with pytest.raises(AnalyticsError) as raised:
        parse_policies({"#": {"max-delivery-attempt": 3}})
    assert (raised.value.message, raised.value.fix) == ("max-delivery-attempt of '#' is no setting.", "Did you mean max-delivery-attempts?")


def test_what_the_file_does_not_name_stays_as_in_force() -> None:
    schedule = {"redelivery_delay_ms": 50, "redelivery_delay_multiplier": 2.0, "max_redelivery_delay_ms": None}
    brought = {"consumer_policy": {"maximum_redeliveries": 2, "initial_redelivery_delay_ms": 7, "redelivery_delay_ms": 9}}

    def delays(named: dict[str, Any], in_force: dict[str, Any]) -> list[float]:
        policy = parse_policies({"#": named}).of(frozenset("#"), json.dumps(in_force))
        return [] if policy is None else list(policy.delays_ms)

    now = schedule | {"max_delivery_attempts": 4}
    assert delays({}, now) == [50, 100, 200]
    assert delays({"max-delivery-attempts": 3}, now) == [50, 100]
    assert delays({"redelivery-delay": "1s"}, now) == [1_000, 1_000, 1_000]
    assert delays({"redelivery-delay": "1s"}, now | brought) == [7, 9]  # what a consumer brings decides


def test_a_queue_that_amqp_declared_goes_its_own_way() -> None:
    """Its limit is its own, and what AMQP clients return comes back at once, unless a pattern of its own says otherwise."""
    declared = json.dumps({"amqp": {"arguments": {"x-delivery-limit": 3}}, "max_delivery_attempts": 4})
    without = json.dumps({"amqp": {"arguments": {}}})
    at_once = json.dumps({"max_delivery_attempts": 4, "redelivery_delay_ms": 0, "redelivery_delay_multiplier": 1.0})
    named = {"max-delivery-attempts": 2, "redelivery-delay": "1s"}

    def delays(pattern: str, in_force: str, options: str) -> list[float]:
        policy = parse_policies({pattern: named}).of(frozenset({pattern}), in_force, options)
        return [] if policy is None else list(policy.delays_ms)

    assert delays("#", at_once, declared) == delays("#", at_once, without) == [0, 0, 0]
    assert delays("orders", at_once, declared) == [1_000] * 3
    assert delays("orders", at_once, without) == delays("#", at_once, "{}") == [1_000]
    # A native consumer fails it: then the delays of # are for it, too.
    assert delays("#", json.dumps({"max_delivery_attempts": 4, "redelivery_delay_ms": 5}), without) == [1_000] * 3


SETTINGS = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "redelivery-delay": st.integers(0, 10**7),
            "redelivery-delay-multiplier": st.floats(0.1, 20),
            "redelivery-back-off": st.sampled_from(["exponential", "linear", "full-jitter"]),
            "redelivery-collision-avoidance-factor": st.floats(0, 1),
            "max-delivery-attempts": st.integers(1, 30),
            "max-redelivery-delay": st.integers(0, 10**8),
        },
    ),
    st.fixed_dictionaries(
        {"redelivery-delays": st.lists(st.integers(0, 10**7), min_size=1, max_size=5), "max-delivery-attempts": st.integers(1, 30)},
        optional={"max-redelivery-delay": st.integers(0, 10**8)},
    ),
)


def bounds(policy: Policy, failed: int) -> tuple[int, int]:
    base = policy.delays_ms[failed - 1]
    factor = 0.0 if policy.first_exact and failed == 1 else policy.factor
    least = 0.0 if policy.full_jitter else base * (1 - factor)
    return max(0, min(round(least), policy.cap_ms)), max(0, min(round(base * (1 + factor)), policy.cap_ms))


@example({})
@given(SETTINGS)
def test_delays_and_limit_are_the_brokers(values: dict[str, Any]) -> None:
    policy = parse_policies({"#": values}).of(frozenset({"#"}))
    assert policy is not None
    settings = settings_of(values)
    assert policy.attempts == attempts_allowed(settings, None)
    rows = schedule(settings, None, 40)[1:]
    assert [bounds(policy, number) for number in range(1, policy.attempts)] == [(row.min_delay_ms, row.max_delay_ms) for row in rows]


@given(
    st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 10**6), st.booleans(), st.floats(0, 10), st.integers(-1, 10**7), st.booleans()
)
def test_a_consumers_policy_too(
    limit: int, initial_ms: int, delay_ms: int, grows: bool, multiplier: float, most_ms: int, jitter: bool
) -> None:
    brought = ConsumerPolicy(limit, initial_ms, delay_ms, grows, multiplier, most_ms, jitter)
    values = {
        "maximum-redeliveries": limit,
        "initial-redelivery-delay": initial_ms,
        "redelivery-delay": f"{delay_ms}ms",
        "use-exponential-back-off": grows,
        "back-off-multiplier": multiplier,
        "maximum-redelivery-delay": most_ms,
        "use-collision-avoidance": jitter,
    }
    policy = parse_policies({"#": {"redelivery-policy": values}}).of(frozenset({"#"}))
    assert policy is not None
    rows = schedule(settings_of({}), brought, 40)[1:]
    assert [bounds(policy, number) for number in range(1, policy.attempts)] == [(row.min_delay_ms, row.max_delay_ms) for row in rows]


def test_layers_are_merged_key_by_key() -> None:
    policies = parse_policies({"#": {"redelivery-delay": "5s", "max-delivery-attempts": 4}, "orders.*": {"max-delivery-attempts": 2}})
    assert [policy.delays_ms for policy in (policies.of(frozenset({"#", "orders.*"})),) if policy] == [(5_000,)]
    assert policies.of(frozenset()) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-policy"),
        ("a: [", "bad-policy"),
        ("address-settings: 5", "bad-policy"),
        ("'#': {redelivery-delay: soon}", "bad-policy"),
        ("'#': {redelivery-back-off: cubic}", "bad-policy"),
        ("'#': {max-delivery-attempts: many}", "bad-policy"),
        ("'#': {redelivery-delays: [1s], redelivery-delay: 1s}", "bad-policy"),
        ("'#': {redelivery-policy: {maximum: 3}}", "bad-policy"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "new.yaml").write_text(text)
    with pytest.raises(AnalyticsError) as raised:
        load_policies(tmp_path / "new.yaml")
    assert raised.value.code == code
    assert raised.value.fix


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(AnalyticsError) as raised:
        load_policies(tmp_path / "new.yaml")
    assert raised.value.code == "no-policy"


def test_the_shipped_configuration_is_a_policy() -> None:
    policies = load_policies(Path(__file__).parents[2] / "broker.yaml")
    policy = policies.of(frozenset({"#"}))
    assert policy is not None
    assert policy.attempts == 10
    assert [round(each) for each in policy.delays_ms[:6]] == [1_000, 4_000, 16_000, 64_000, 256_000, 1_024_000]
