"""The redelivery decision: the worked examples, then what must hold for every policy."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.core.policy_in_force import policy_in_force
from homing.broker.core.redelivery import (
    MAX_DELAY_MS,
    ConsumerPolicy,
    Decision,
    Failure,
    PolicyMap,
    RedeliveryPolicyError,
    Terms,
    Verdicts,
    attempts_allowed,
    decide,
    lifetime_ms,
    lifetime_warning,
    limit_reached,
    schedule,
)
from homing.broker.core.settings.address_settings import AddressSettings, AddressSettingsRepository
from homing.broker.core.settings.rules import Action
from homing.client.errors import UsageError
from homing.client.policy import POLICY_FIELDS, RedeliveryPolicy

NOW_MS = 1_700_000_000_000
COUNTED = Failure()


class Draws:
    """An rng that gives what it is told, in order, and nothing beyond."""

    def __init__(self, draws: Iterable[float] = ()) -> None:
        self._draws = iter(draws)

    def random(self) -> float:
        return next(self._draws)


def _delay(settings: AddressSettings, failed: int, policy: ConsumerPolicy | None = None, draws: Iterable[float] = ()) -> int:
    decision = decide(settings, policy, failed, COUNTED, NOW_MS, Draws(draws))
    assert decision.action is Action.REDELIVER
    assert decision.due_at_ms == (NOW_MS + decision.delay_ms if decision.delay_ms else None)
    return decision.delay_ms


def _settings(**values: object) -> AddressSettings:
    return _limited(**{"max_delivery_attempts": -1, **values})


def _limited(**values: object) -> AddressSettings:
    return AddressSettingsRepository({"#": values}).resolve("orders")


def test_example_1_doubling_to_a_cap() -> None:
    settings = _settings(redelivery_delay_ms=5000, redelivery_delay_multiplier=2, max_redelivery_delay_ms=15000)
    assert [_delay(settings, failed) for failed in range(1, 6)] == [5000, 10000, 15000, 15000, 15000]


def test_example_2_jitter_never_compounds() -> None:
    settings = _settings(redelivery_delay_ms=1000, max_redelivery_delay_ms=15000, redelivery_collision_avoidance_factor=0.5)
    draws = [(0.0, 0.25), (0.5, 0.75), (0.49, 0.05)]
    assert [_delay(settings, failed, draws=pair) for failed, pair in enumerate(draws, 1)] == [875, 1375, 975]


def test_example_3_a_policy_that_is_over_in_a_second() -> None:
    policy = ConsumerPolicy(maximum_redeliveries=10, initial_redelivery_delay_ms=1, use_exponential_back_off=True, back_off_multiplier=2)
    settings = AddressSettings()
    assert [_delay(settings, failed, policy) for failed in range(1, 11)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert lifetime_ms(settings, policy) == (1023, 1023)
    warning = lifetime_warning(settings, policy)
    assert warning is not None
    assert "gone within 1.1 s" in warning
    assert decide(settings, policy, 11, COUNTED, NOW_MS, Draws()) == Decision(Action.DEAD_LETTER, reason="delivery_limit")


def _deliveries(settings: AddressSettings, policy: ConsumerPolicy | None, most: int = 50) -> int | None:
    """How many deliveries a message gets that fails each time; None: still alive after ``most``."""
    for failed in range(1, most):
        if decide(settings, policy, failed, COUNTED, NOW_MS, random.Random(1)).action is Action.DEAD_LETTER:
            return failed
    return None


def test_example_4_redeliveries_are_one_less_than_deliveries() -> None:
    assert _deliveries(AddressSettings(), ConsumerPolicy()) == 7
    assert _deliveries(AddressSettings(), ConsumerPolicy(maximum_redeliveries=0)) == 1
    assert _deliveries(AddressSettings(), ConsumerPolicy(maximum_redeliveries=-1)) is None


def test_example_5_the_third_failure() -> None:
    assert _deliveries(AddressSettings(max_delivery_attempts=3), None) == 3
    assert _deliveries(AddressSettings(), None) == 10
    assert _deliveries(AddressSettings(max_delivery_attempts=-1), None) is None


def test_example_6_prefix_and_suffix_reach_every_address() -> None:
    repository = AddressSettingsRepository(
        {
            "#": {
                "dead-letter-address": "DLA",
                "max-delivery-attempts": 3,
                "auto-create-dead-letter-resources": True,
                "dead-letter-queue-prefix": "",
                "dead-letter-queue-suffix": ".DLQ",
            }
        }
    )
    for address in ("stocks", "orders"):
        settings = repository.resolve(address)
        assert settings.dead_letter_queue_prefix + address + settings.dead_letter_queue_suffix == f"{address}.DLQ"
        assert settings.auto_create_dead_letter_resources
        assert _deliveries(settings, None) == 3


def test_example_7_one_address_for_ever() -> None:
    repository = AddressSettingsRepository({"#": {"dead-letter-address": "DLA"}, "patient": {"max-delivery-attempts": -1}})
    assert _deliveries(repository.resolve("patient"), None) is None
    assert repository.resolve("patient").dead_letter_address == "DLA"
    assert _deliveries(repository.resolve("other"), None) == 10


def test_the_forms_of_back_off() -> None:
    assert [_delay(_settings(redelivery_delay_ms=100, redelivery_back_off="linear"), n) for n in (1, 2, 50)] == [100, 200, 5000]
    listed = _settings(redelivery_delays_ms=["1s", "10s", "5m"])
    assert [_delay(listed, n) for n in (1, 2, 3, 4, 99)] == [1000, 10_000, 300_000, 300_000, 300_000]
    full = _settings(redelivery_delay_ms=1000, redelivery_delay_multiplier=2, redelivery_back_off="full-jitter")
    assert [_delay(full, n, draws=[share]) for n, share in ((1, 0.0), (1, 0.5), (3, 0.5), (40, 0.5))] == [0, 500, 2000, 5000]


def test_the_default_cap_is_ten_times_the_delay_where_it_multiplies() -> None:
    assert _delay(_settings(redelivery_delay_ms=1000, redelivery_delay_multiplier=3), 400) == 10_000
    assert _delay(_settings(redelivery_delay_ms=1000, redelivery_back_off="linear"), 400) == 400_000
    assert _delay(_settings(redelivery_delay_ms=0, redelivery_delay_multiplier=3), 400) == 0


def test_at_the_cap_jitter_still_spreads_downward() -> None:
    settings = _settings(
        redelivery_delay_ms=1000, redelivery_delay_multiplier=10, max_redelivery_delay_ms=2000, redelivery_collision_avoidance_factor=0.5
    )
    assert _delay(settings, 9, draws=(0.1, 0.5)) == 1500
    assert _delay(settings, 9, draws=(0.9, 0.5)) == 2000


def test_a_delay_given_with_the_failure_has_no_jitter_and_its_own_cap() -> None:
    settings = _settings(
        redelivery_delay_ms=1000, redelivery_collision_avoidance_factor=1.0, max_nack_delay_ms="1h", max_redelivery_delay_ms=5
    )

    def given(**values: int) -> Decision:
        return decide(settings, ConsumerPolicy(), 3, Failure(**values), NOW_MS, Draws())  # type: ignore[arg-type]

    assert given(delay_ms=70_000) == Decision(Action.REDELIVER, 70_000, NOW_MS + 70_000)
    assert given(delay_ms=10**15) == Decision(Action.REDELIVER, 3_600_000, NOW_MS + 3_600_000)
    assert given(delay_ms=0) == given(delay_ms=-5) == Decision(Action.REDELIVER)
    assert given(until_ms=NOW_MS + 9) == Decision(Action.REDELIVER, 9, NOW_MS + 9)
    assert given(until_ms=NOW_MS - 9) == Decision(Action.REDELIVER)
    assert given(until_ms=NOW_MS + 9, delay_ms=70_000).delay_ms == 9


def test_a_return_without_blame_is_immediate_and_knows_no_limit() -> None:
    settings = AddressSettings(redelivery_delay_ms=5000, max_delivery_attempts=1)
    assert decide(settings, None, 0, Failure(counts=False), NOW_MS, Draws()) == Decision(Action.REDELIVER)
    assert decide(settings, None, 1, Failure(counts=False), NOW_MS, Draws()) == Decision(Action.REDELIVER)
    assert decide(settings, None, 0, Failure(counts=False, delay_ms=7), NOW_MS, Draws()).due_at_ms == NOW_MS + 7


def test_the_applications_own_verdicts_always_stand() -> None:
    settings = AddressSettings(max_delivery_attempts=-1)
    for apply_limit in (True, False):
        poison = decide(settings, None, 1, Failure(poison=True), NOW_MS, Draws(), apply_limit)
        hopeless = decide(settings, None, 1, Failure(retryable=False, delay_ms=5), NOW_MS, Draws(), apply_limit)
        assert (poison.action, poison.reason, poison.due_at_ms) == (Action.DEAD_LETTER, "poison", None)
        assert (hopeless.action, hopeless.reason, hopeless.due_at_ms) == (Action.DEAD_LETTER, "not-retryable", None)


def test_verdicts_are_worked_out_once_unless_chance_has_a_part() -> None:
    def verdicts(**values: Any) -> Verdicts:
        return Verdicts(Terms(_limited(redelivery_delay_ms=1000, **values), None), COUNTED, NOW_MS, random.Random(1), True)

    plain = verdicts(max_delivery_attempts=3)
    assert plain[1] is plain[1]
    assert plain[3] is plain[3]
    assert (plain[1].due_at_ms, plain[3].reason) == (NOW_MS + 1000, "delivery_limit")
    for by_chance in (verdicts(redelivery_collision_avoidance_factor=0.5), verdicts(redelivery_back_off="full-jitter")):
        assert len({by_chance[1].delay_ms for _ in range(20)}) > 10


def test_without_the_limit_a_message_goes_on_with_its_delay() -> None:
    settings = _limited(redelivery_delay_ms=5000, max_delivery_attempts=3)
    assert decide(settings, None, 3, COUNTED, NOW_MS, Draws(), apply_limit=False).due_at_ms == NOW_MS + 5000
    assert decide(settings, None, 3, COUNTED, NOW_MS, Draws()).reason == "delivery_limit"


@pytest.mark.parametrize(
    ("allow", "own", "brought", "attempts"),
    [(True, 3, 6, 7), (True, 10, 2, 3), (True, 3, -1, None), (False, 3, 6, 3), (False, 10, 2, 3), (False, 3, -1, 3), (False, -1, 2, 3)],
)
def test_who_sets_the_limit(allow: bool, own: int, brought: int, attempts: int | None) -> None:
    settings = AddressSettings(max_delivery_attempts=own, allow_consumer_policy=allow)
    policy = ConsumerPolicy(maximum_redeliveries=brought)
    assert attempts_allowed(settings, policy) == attempts
    assert _deliveries(settings, policy) == attempts
    assert limit_reached(settings, policy, 10**9) is (attempts is not None)


def test_the_policys_delays() -> None:
    plain = ConsumerPolicy(initial_redelivery_delay_ms=10, redelivery_delay_ms=300, use_collision_avoidance=True)
    assert _delay(AddressSettings(), 1, plain) == 10, "the first has no jitter"
    assert _delay(AddressSettings(), 2, plain, (0.9, 1.0)) == 345
    zero = ConsumerPolicy(initial_redelivery_delay_ms=0, redelivery_delay_ms=100, use_exponential_back_off=True, back_off_multiplier=3)
    assert [_delay(AddressSettings(), n, zero) for n in (1, 2, 3, 4)] == [0, 100, 300, 900]
    default = ConsumerPolicy(use_exponential_back_off=True)
    assert [_delay(AddressSettings(), n, default) for n in (1, 2, 3)] == [1000, 5000, 25_000]
    not_growing = ConsumerPolicy(use_exponential_back_off=True, back_off_multiplier=1, redelivery_delay_ms=70)
    assert [_delay(AddressSettings(), n, not_growing) for n in (1, 2, 3)] == [1000, 70, 70]


def test_the_policys_cap_holds_after_jitter_and_never_goes_below_its_delay() -> None:
    policy = ConsumerPolicy(
        use_exponential_back_off=True, maximum_redelivery_delay_ms=4000, use_collision_avoidance=True, collision_avoidance_factor=1
    )
    assert _delay(AddressSettings(), 5, policy, (0.9, 0.9)) == 4000
    low = dataclasses.replace(policy, maximum_redelivery_delay_ms=5, use_collision_avoidance=False)
    assert _delay(AddressSettings(), 5, low) == 1000


_DELAYS = st.integers(0, 10**9) | st.integers(0, 2**63 - 1)
_SETTINGS = st.builds(
    AddressSettings,
    redelivery_delay_ms=_DELAYS,
    redelivery_delay_multiplier=st.floats(0.01, 1e6),
    redelivery_collision_avoidance_factor=st.floats(0, 1),
    max_redelivery_delay_ms=st.none() | _DELAYS,
    redelivery_back_off=st.sampled_from(["exponential", "linear", "full-jitter"]),
    redelivery_delays_ms=st.just(()) | st.lists(_DELAYS, max_size=4).map(tuple),
    max_delivery_attempts=st.just(-1),
)
_POLICIES = st.builds(
    ConsumerPolicy,
    maximum_redeliveries=st.just(-1),
    initial_redelivery_delay_ms=_DELAYS,
    redelivery_delay_ms=_DELAYS,
    use_exponential_back_off=st.booleans(),
    back_off_multiplier=st.floats(0, 1e6),
    maximum_redelivery_delay_ms=st.just(-1) | _DELAYS,
    use_collision_avoidance=st.booleans(),
    collision_avoidance_factor=st.floats(0, 1),
)
_FAILED = st.integers(1, 40) | st.integers(1, 2**62)


@given(_SETTINGS, st.none() | _POLICIES, _FAILED, st.integers(0, 2**32))
def test_a_delay_is_never_negative_and_never_above_its_cap(
    settings: AddressSettings, policy: ConsumerPolicy | None, failed: int, seed: int
) -> None:
    decision = decide(settings, policy, failed, COUNTED, NOW_MS, random.Random(seed))
    cap = MAX_DELAY_MS
    if policy is None and settings.max_redelivery_delay_ms is not None:
        cap = min(cap, settings.max_redelivery_delay_ms)
    if policy is not None and policy.maximum_redelivery_delay_ms >= 0:
        cap = min(cap, max(policy.maximum_redelivery_delay_ms, policy.redelivery_delay_ms))
    assert 0 <= decision.delay_ms <= cap
    assert decision.due_at_ms == (NOW_MS + decision.delay_ms if decision.delay_ms else None)


@given(st.integers(0, 10**7), st.fractions(1, 20, max_denominator=8), st.integers(0, 10**9), st.integers(1, 60))
def test_the_closed_form_equals_step_by_step_multiplication(base: int, multiplier: Fraction, cap: int, failed: int) -> None:
    """The oracle multiplies exactly, one step an attempt, and stops at the cap."""
    exact = min(Fraction(base), Fraction(cap))
    for _ in range(failed - 1):
        exact = min(exact * multiplier, Fraction(cap))
    settings = _settings(redelivery_delay_ms=base, redelivery_delay_multiplier=float(multiplier), max_redelivery_delay_ms=cap)
    policy = ConsumerPolicy(-1, base, 0, True, float(multiplier), cap)
    assert abs(_delay(settings, failed) - exact) <= max(Fraction(1), exact / 10**9)
    if multiplier > 1 and base > 0:
        assert abs(_delay(settings, failed, policy) - exact) <= max(Fraction(1), exact / 10**9)


@given(_SETTINGS, st.none() | _POLICIES, st.integers(0, 2**32))
def test_what_the_table_promises_is_what_is_drawn(settings: AddressSettings, policy: ConsumerPolicy | None, seed: int) -> None:
    rng = random.Random(seed)
    rows = schedule(settings, policy, 12)
    assert [row.attempt for row in rows] == list(range(1, 13))
    for before, row in itertools.pairwise(rows):
        drawn = decide(settings, policy, before.attempt, COUNTED, NOW_MS, rng).delay_ms
        assert row.min_delay_ms <= drawn <= row.max_delay_ms
        assert row.max_total_ms == before.max_total_ms + row.max_delay_ms


def test_the_table_ends_with_the_last_attempt() -> None:
    rows = schedule(_limited(redelivery_delay_ms=1000, max_delivery_attempts=3), None, 100)
    assert [(row.attempt, row.max_total_ms, row.last) for row in rows] == [(1, 0, False), (2, 1000, False), (3, 2000, True)]
    assert [row.last for row in schedule(AddressSettings(), ConsumerPolicy(maximum_redeliveries=0), 9)] == [True]


def test_example_14_what_holds_where_nothing_is_configured() -> None:
    rows = schedule(AddressSettings(), None, 100)
    delays_s = [1, 4, 16, 64, 256, 1024, 3600, 3600, 3600]
    assert [row.min_delay_ms for row in rows] == [0, *[each * 800 for each in delays_s]]
    assert [row.max_delay_ms for row in rows] == [0, *[min(each * 1200, 3_600_000) for each in delays_s]]
    assert [round(each / 60_000) for each in lifetime_ms(AddressSettings(), None) or ()] == [162, 207]


def test_who_lives_long_enough_gets_no_warning() -> None:
    assert lifetime_warning(_limited(redelivery_delay_ms=5000, max_delivery_attempts=3), None) is None
    assert lifetime_warning(_settings(), None) is None
    assert lifetime_warning(AddressSettings(), None) is None
    assert "at once" in str(lifetime_warning(_limited(redelivery_delay_ms=0), None))
    assert "one attempt: " in str(lifetime_warning(_limited(max_delivery_attempts=1), None))
    assert lifetime_ms(_limited(redelivery_delay_ms=1, max_delivery_attempts=10**15), None) == (10**15 - 1, 10**15 - 1)


def test_a_policy_from_a_map() -> None:
    assert ConsumerPolicy.from_map({}) == ConsumerPolicy()
    policy = ConsumerPolicy.from_map({"maximum_redeliveries": -1, "back_off_multiplier": 2, "use_exponential_back_off": True})
    assert policy == ConsumerPolicy(maximum_redeliveries=-1, back_off_multiplier=2.0, use_exponential_back_off=True)
    assert type(policy.back_off_multiplier) is float


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], "must be a map"),
        ({"maximum_redeliverys": 1}, "has no field"),
        ({7: 1}, "has no field"),
        ({"from_map": 1}, "has no field"),
        ({"maximum_redeliveries": -2}, "whole number"),
        ({"maximum_redeliveries": True}, "whole number"),
        ({"maximum_redeliveries": 2**63}, "whole number"),
        ({"initial_redelivery_delay_ms": -1}, "whole milliseconds"),
        ({"redelivery_delay_ms": 1.5}, "whole milliseconds"),
        ({"redelivery_delay_ms": None}, "whole milliseconds"),
        ({"back_off_multiplier": float("nan")}, "a number"),
        ({"back_off_multiplier": float("inf")}, "a number"),
        ({"collision_avoidance_factor": 1.1}, "from 0 to 1"),
        ({"use_collision_avoidance": 1}, "true or false"),
    ],
)
def test_a_policy_that_cannot_be_used(values: object, says: str) -> None:
    with pytest.raises(RedeliveryPolicyError, match=says) as caught:
        ConsumerPolicy.from_map(values)
    assert caught.value.code == "invalid-redelivery-policy"
    assert caught.value.fix


def test_the_most_specific_policy_of_a_map() -> None:
    policies = PolicyMap.from_map({"#": {}, "orders.*": {"maximum_redeliveries": 1}, "orders.eu": {"maximum_redeliveries": 2}})
    found = [policies.resolve(name) for name in ("orders.eu", "orders.us", "stocks")]
    assert [policy.maximum_redeliveries for policy in found if policy] == [2, 1, 6]
    assert PolicyMap({}).resolve("orders") is None
    for wrong, says in (
        ([], "must be a map"),
        ({"a..b": {}}, "not a pattern"),
        ({5: {}}, "not a pattern"),
        ({"a": {"b": 1}}, "the policy of 'a'"),
    ):
        with pytest.raises(RedeliveryPolicyError, match=says):
            PolicyMap.from_map(wrong)


def test_the_policy_in_force_has_a_stable_name() -> None:
    name, values = policy_in_force(AddressSettings(), None)
    assert policy_in_force(AddressSettings(), None) == (name, values)
    assert policy_in_force(AddressSettings(overflow="drop-head"), None)[0] == name
    assert policy_in_force(AddressSettings(redelivery_delay_ms=1), None)[0] != name
    assert policy_in_force(AddressSettings(), ConsumerPolicy())[0] != name
    assert values["max_delivery_attempts"] == 10


#: Around every limit of every field, and what is of another type.
EDGES = (-2, -1, 0, 1, -0.5, 0.0, 1.0, 1.5, 1e9, 1e9 + 1, 10**9 + 1, MAX_DELAY_MS, MAX_DELAY_MS + 1, 2**63 - 1, 2**63, math.nan, True, "1")


@pytest.mark.parametrize("name", sorted(POLICY_FIELDS))
def test_the_client_takes_the_values_of_a_policy_that_the_broker_takes(name: str) -> None:
    taken = [value for value in EDGES if _takes(RedeliveryPolicy, name, value)]
    assert taken == [value for value in EDGES if _takes(lambda **fields: ConsumerPolicy.from_map(fields), name, value)]
    assert 0 < len(taken) < len(EDGES)


def _takes(make: Callable[..., object], name: str, value: object) -> bool:
    try:
        make(**{name: value})
    except (UsageError, RedeliveryPolicyError):
        return False
    return True
