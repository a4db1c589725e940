"""What becomes of a message that failed: again at once, again at a time, or dead. Pure functions of settings, counts, now and rng.

The address has its settings (Artemis's: semantics, section 3), a consumer may bring a policy of its own (ActiveMQ Classic's:
section 4), and a rule that fits the failure changes both (``under``). All are closed forms of ``failed``, the count of failed attempts
*after* the one being decided: nothing compounds, nothing is remembered between decisions, and the cap always holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from homing.journal.contract import Death

from .settings.address_settings import DEFAULTS, PLAIN_SCHEDULE, SCHEDULE_FIELDS, AddressSettings
from .settings.rules import DELAY_FIELDS, Action, Rule
from .settings.units import MAX_DURATION_MS, format_duration_ms
from .settings.wildcard import pattern_matches, pattern_problem, specificity

#: No delay is longer, whatever the settings say.
MAX_DELAY_MS: Final = MAX_DURATION_MS
#: The cap that the multiplying forms have when none is set: this many times the first delay (Artemis's default).
_DEFAULT_CAP_FACTOR: Final = 10
#: A message that lives shorter than this, in all, is gone before anyone has looked.
SHORT_LIFE_MS: Final = 10_000
_INT64_MAX: Final = 2**63 - 1


class Rng(Protocol):
    """The one thing asked of a source of randomness; random.Random has it."""

    def random(self) -> float:
        """A number in [0, 1)."""


class RedeliveryPolicyError(ValueError):
    """A consumer's redelivery policy that cannot be used. The request is refused; the connection goes on."""

    code = "invalid-redelivery-policy"

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@dataclass(frozen=True, slots=True)
class ConsumerPolicy:
    """ActiveMQ Classic's RedeliveryPolicy, applied by the broker to what a consumer fails. docs/protocol.md, 2.5. Times in ms.

    ``maximum_redeliveries``: -1 without end, 0 none; 6 redeliveries are 7 deliveries. ``maximum_redelivery_delay_ms``: -1 none; never
    counts as less than ``redelivery_delay_ms``. Unlike Classic's, jitter does not compound and the cap holds for every delay, the
    initial one included.
    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay_ms: int = 1000
    redelivery_delay_ms: int = 1000
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    maximum_redelivery_delay_ms: int = -1
    use_collision_avoidance: bool = False
    collision_avoidance_factor: float = 0.15

    @classmethod
    def from_map(cls, values: object) -> ConsumerPolicy:
        """A policy from a client's map; what is not named has its default. Raises RedeliveryPolicyError, naming the field."""
        if not isinstance(values, dict):
            raise RedeliveryPolicyError("a redelivery policy must be a map", "see docs/protocol.md, 2.5")
        for name, value in values.items():
            _check_policy_field(name, value)
        checked: dict[str, Any] = {name: float(value) if name in _POLICY_FLOATS else value for name, value in values.items()}
        return cls(**checked)


_POLICY_DEFAULTS: Final = asdict(ConsumerPolicy())
_POLICY_FLOATS: Final = frozenset(name for name, value in _POLICY_DEFAULTS.items() if isinstance(value, float))
#: field -> (lowest, highest, what it is)
_POLICY_NUMBERS: Final[Mapping[str, tuple[float, float, str]]] = {
    "maximum_redeliveries": (-1, _INT64_MAX, "a whole number, -1 for without end"),
    "initial_redelivery_delay_ms": (0, MAX_DURATION_MS, "whole milliseconds, from 0 to 10 years"),
    "redelivery_delay_ms": (0, MAX_DURATION_MS, "whole milliseconds, from 0 to 10 years"),
    "maximum_redelivery_delay_ms": (-1, MAX_DURATION_MS, "whole milliseconds, at most 10 years, -1 for no cap"),
    "back_off_multiplier": (0, 1e9, "a number from 0 to 1e9"),
    "collision_avoidance_factor": (0, 1, "a number from 0 to 1"),
}


def _check_policy_field(name: object, value: object) -> None:
    if not isinstance(name, str) or name not in _POLICY_DEFAULTS:
        raise RedeliveryPolicyError(f"a redelivery policy has no field {name!r}", "its fields are " + ", ".join(_POLICY_DEFAULTS))
    if name not in _POLICY_NUMBERS:
        if type(value) is not bool:
            raise RedeliveryPolicyError(f"{name} must be true or false, not {value!r}", "see docs/protocol.md, 2.5")
        return
    low, high, expected = _POLICY_NUMBERS[name]
    kinds = (int, float) if name in _POLICY_FLOATS else (int,)
    if type(value) not in kinds or not low <= value <= high:  # type: ignore[operator]
        raise RedeliveryPolicyError(f"{name} must be {expected}, not {value!r}", "see docs/protocol.md, 2.5")


class PolicyMap:
    """Policies by destination pattern, as a connection may bring them; the most specific match applies."""

    __slots__ = ("_ordered",)

    def __init__(self, policies: Mapping[str, ConsumerPolicy]) -> None:
        self._ordered = [(pattern, policies[pattern]) for pattern in sorted(policies, key=specificity, reverse=True)]

    @classmethod
    def from_map(cls, values: object) -> PolicyMap:
        """From a client's map of maps. Raises RedeliveryPolicyError, naming pattern and field."""
        if not isinstance(values, dict):
            raise RedeliveryPolicyError("redelivery_policies must be a map from pattern to policy", "see docs/protocol.md, 2.5")
        policies = {}
        for pattern, policy in values.items():
            if not isinstance(pattern, str) or (problem := pattern_problem(pattern)):
                raise RedeliveryPolicyError(
                    f"{pattern!r} is not a pattern: {problem if isinstance(pattern, str) else 'it must be text'}", "use #, * and words"
                )
            try:
                policies[pattern] = ConsumerPolicy.from_map(policy)
            except RedeliveryPolicyError as error:
                raise RedeliveryPolicyError(f"the policy of {pattern!r}: {error.message}", error.fix) from None
        return cls(policies)

    def resolve(self, destination: str) -> ConsumerPolicy | None:
        """The policy of the most specific pattern that matches, or None."""
        return next((policy for pattern, policy in self._ordered if pattern_matches(pattern, destination)), None)


class Failure(NamedTuple):
    """How a delivery ended badly, as far as the decision needs to know."""

    #: False: given back without blame (delivery count up, failed not).
    counts: bool = True
    #: False: never again, dead-letter now.
    retryable: bool = True
    #: A delay that came with the failure itself; no jitter, capped by max-nack-delay.
    delay_ms: int | None = None
    #: A point in time that came with it; wins over delay_ms.
    until_ms: int | None = None
    #: Dead-letter now (acknowledgement type 1).
    poison: bool = False
    #: Given back unprocessed rather than failed, as far as RabbitMQ's delayed retries tell the two apart.
    returned: bool = False


class Decision(NamedTuple):
    """The verdict. ``due_at_ms`` None: at once. ``reason`` is set when the message is dead-lettered."""

    action: Action
    delay_ms: int = 0
    due_at_ms: int | None = None
    reason: Death | None = None
    #: Of what is dropped: the rule.
    dropped_by: str | None = None


_NOW: Final = Decision(Action.REDELIVER)


def decide(
    settings: AddressSettings,
    policy: ConsumerPolicy | None,
    failed: int,
    failure: Failure,
    now_ms: int,
    rng: Rng,
    apply_limit: bool = True,
) -> Decision:
    """What becomes of a message after ``failed`` failed attempts, this one counted in if it counts.

    Delay: the failure's own, then the consumer's policy, then the settings. ``apply_limit=False`` (a connection
    was lost with more than one delivered message) suspends the limit only; poison and not-retryable are the application's own verdicts
    and always stand.
    """
    if not failure.retryable:
        return Decision(Action.DEAD_LETTER, reason="not-retryable")
    if failure.poison:
        return Decision(Action.DEAD_LETTER, reason="poison")
    if failure.counts and apply_limit and limit_reached(settings, policy, failed):
        return Decision(Action.DEAD_LETTER, reason="delivery_limit")
    delay_ms = _delay_ms(settings, policy, failed, failure, now_ms, rng)
    return Decision(Action.REDELIVER, delay_ms, now_ms + delay_ms) if delay_ms > 0 else _NOW


class Verdicts(dict[int, Decision]):
    """``Terms.decide`` for many messages that failed in the same way at one moment: ``verdicts[failed]``, worked out once for each count
    unless chance has a part in it.
    """

    def __init__(self, terms: Terms, failure: Failure, now_ms: int, rng: Rng, apply_limit: bool) -> None:
        super().__init__()
        self._terms = terms
        self._failure = failure
        self._rest = (now_ms, rng, apply_limit)

    def __missing__(self, failed: int) -> Decision:
        settings, policy, _ = self._terms
        decision = self._terms.decide(failed, self._failure, *self._rest)
        redelivered = decision.action is Action.REDELIVER
        if not redelivered or not self._failure.counts or failed <= 0 or _spread(settings, policy, failed).certain:
            self[failed] = decision
        return decision


class Terms(NamedTuple):
    """By what a failure is decided."""

    settings: AddressSettings
    policy: ConsumerPolicy | None
    rule: Rule | None = None

    def decide(self, failed: int, failure: Failure, now_ms: int, rng: Rng, apply_limit: bool = True) -> Decision:
        """As the function of that name; a rule may end it at once, as far as a limit may."""
        rule = self.rule
        if rule is None or rule.action is Action.REDELIVER or not apply_limit:
            return decide(self.settings, self.policy, failed, failure, now_ms, rng, apply_limit)
        if rule.action is Action.DROP:
            return Decision(Action.DROP, dropped_by=rule.name)
        return Decision(Action.DEAD_LETTER, reason="poison" if failure.poison and failure.retryable else "not-retryable")


@lru_cache(1000)
def under(rule: Rule, settings: AddressSettings, policy: ConsumerPolicy | None) -> Terms:
    """What holds where the rule does: its delay and its limit, each where it names one, else what held anyway.

    A rule that names a part of a schedule has one of its own, as a pattern has. One that ends things at once is a limit of 1.
    """
    named = dict(rule.settings)
    limit = named.pop("max_delivery_attempts", None) if rule.action is Action.REDELIVER else 1
    allowed = attempts_allowed(settings, policy) if limit is None else limit if limit >= 0 else None
    if any(name in named for name in DELAY_FIELDS):
        if any(name in named for name in SCHEDULE_FIELDS):
            named = {**{name: getattr(DEFAULTS, name) for name in SCHEDULE_FIELDS}, **PLAIN_SCHEDULE, **named}
        policy = None
    elif policy is not None:
        policy = replace(policy, maximum_redeliveries=-1 if allowed is None else allowed - 1)
    return Terms(replace(settings, **named, max_delivery_attempts=-1 if allowed is None else allowed), policy, rule)


def of_amqp_consumer(settings: AddressSettings, failure: Failure) -> AddressSettings:
    """What decides of a message that an AMQP client returns: it is there again at once, as with RabbitMQ, unless a delay is meant."""
    kinds = ("all", "returned" if failure.returned else "failed")
    delayed = settings.delay_meant if settings.delayed_retry_type is None else settings.delayed_retry_type in kinds
    return settings if delayed else at_once(settings)


def delays_returns(settings: AddressSettings) -> bool:
    """Whether a delay is meant for some of what AMQP clients return."""
    return settings.delay_meant or settings.delayed_retry_type is not None


@lru_cache(1000)
def at_once(settings: AddressSettings) -> AddressSettings:
    """The settings without any delay."""
    return replace(
        settings,
        redelivery_delay_ms=0,
        redelivery_delay_multiplier=1.0,
        redelivery_collision_avoidance_factor=0.0,
        max_redelivery_delay_ms=None,
        redelivery_back_off="exponential",
        redelivery_delays_ms=(),
    )


def limit_reached(settings: AddressSettings, policy: ConsumerPolicy | None, failed: int) -> bool:
    """Whether ``failed`` attempts are the last: the policy's limit where there is one, else max-delivery-attempts.

    ``allow-consumer-policy: false`` makes the stricter of the two win.
    """
    allowed = attempts_allowed(settings, policy)
    return allowed is not None and failed >= allowed


def attempts_allowed(settings: AddressSettings, policy: ConsumerPolicy | None) -> int | None:
    """How many attempts a message has; None: without end."""
    own = settings.max_delivery_attempts if settings.max_delivery_attempts >= 0 else None
    if policy is None:
        return own
    brought = policy.maximum_redeliveries + 1 if policy.maximum_redeliveries >= 0 else None
    if settings.allow_consumer_policy or own is None:
        return brought
    return own if brought is None else min(own, brought)


def _delay_ms(settings: AddressSettings, policy: ConsumerPolicy | None, failed: int, failure: Failure, now_ms: int, rng: Rng) -> int:
    named = failure.until_ms - now_ms if failure.until_ms is not None else failure.delay_ms
    if named is not None:
        return max(0, min(named, settings.max_nack_delay_ms, MAX_DELAY_MS))
    if not failure.counts or failed <= 0:
        return 0
    spread = _spread(settings, policy, failed)
    return spread.draw(rng)


class _Spread(NamedTuple):
    """One delay before it is drawn. ``base_ms`` is within ``cap_ms`` already."""

    base_ms: float
    cap_ms: int
    factor: float = 0.0
    full_jitter: bool = False

    def draw(self, rng: Rng) -> int:
        """Whole ms in [0, cap]. Draws: full jitter's share; then, where a factor is set, the sign (minus below one half) and how much."""
        delay = self.base_ms * rng.random() if self.full_jitter else self.base_ms
        if self.factor > 0:
            sign = -1.0 if rng.random() < 0.5 else 1.0
            delay += delay * sign * self.factor * rng.random()
        return self._clip(delay)

    @property
    def certain(self) -> bool:
        """``draw`` has nothing to draw."""
        return self.base_ms <= 0 or (self.factor <= 0 and not self.full_jitter)

    def bounds(self) -> tuple[int, int]:
        """The least and the most that ``draw`` can give."""
        least = 0.0 if self.full_jitter else self.base_ms * (1 - self.factor)
        return self._clip(least), self._clip(self.base_ms * (1 + self.factor))

    def _clip(self, delay: float) -> int:
        return max(0, min(round(delay), self.cap_ms))


def _spread(settings: AddressSettings, policy: ConsumerPolicy | None, failed: int) -> _Spread:
    return _settings_spread(settings, failed) if policy is None else _policy_spread(policy, failed)


def _settings_spread(settings: AddressSettings, failed: int) -> _Spread:
    """Semantics, section 3. A list of delays stands for itself whatever the back-off says; the configuration refuses to mix them."""
    cap = delay_cap_ms(settings)
    factor = settings.redelivery_collision_avoidance_factor
    if settings.redelivery_delays_ms:
        chosen = settings.redelivery_delays_ms[min(failed, len(settings.redelivery_delays_ms)) - 1]
        return _Spread(min(chosen, cap), cap, factor)
    if settings.redelivery_back_off == "fixed":
        return _Spread(min(settings.redelivery_delay_ms, cap), cap, factor)
    if settings.redelivery_back_off == "linear":
        return _Spread(min(settings.redelivery_delay_ms * failed, cap), cap, factor)
    base = _grown_ms(settings.redelivery_delay_ms, settings.redelivery_delay_multiplier, failed - 1, cap)
    return _Spread(base, cap, factor, settings.redelivery_back_off == "full-jitter")


def delay_cap_ms(settings: AddressSettings) -> int:
    """The longest delay that the settings can give, in ms.

    Where none is set: 10 × redelivery-delay in the forms that multiply (exponential, full-jitter), else 10 years.
    """
    if settings.max_redelivery_delay_ms is not None:
        return min(settings.max_redelivery_delay_ms, MAX_DELAY_MS)
    multiplies = not settings.redelivery_delays_ms and settings.redelivery_back_off not in ("fixed", "linear")
    if multiplies and settings.redelivery_delay_ms > 0:
        return min(_DEFAULT_CAP_FACTOR * settings.redelivery_delay_ms, MAX_DELAY_MS)
    return MAX_DELAY_MS


def _policy_spread(policy: ConsumerPolicy, failed: int) -> _Spread:
    """Semantics, section 4: the first delay without jitter, later ones in closed form."""
    cap = policy_cap_ms(policy)
    if failed <= 1:
        return _Spread(min(policy.initial_redelivery_delay_ms, cap), cap)
    factor = policy.collision_avoidance_factor if policy.use_collision_avoidance else 0.0
    if not policy.use_exponential_back_off or policy.back_off_multiplier <= 1:
        return _Spread(min(policy.redelivery_delay_ms, cap), cap, factor)
    if policy.initial_redelivery_delay_ms > 0:
        base = _grown_ms(policy.initial_redelivery_delay_ms, policy.back_off_multiplier, failed - 1, cap)
    else:
        base = _grown_ms(policy.redelivery_delay_ms, policy.back_off_multiplier, failed - 2, cap)
    return _Spread(base, cap, factor)


def policy_cap_ms(policy: ConsumerPolicy) -> int:
    """The longest delay that the policy can give, in ms; never below its redelivery delay, never above 10 years."""
    if policy.maximum_redelivery_delay_ms < 0:
        return MAX_DELAY_MS
    return min(max(policy.maximum_redelivery_delay_ms, policy.redelivery_delay_ms), MAX_DELAY_MS)


def _grown_ms(base_ms: int, multiplier: float, times: int, cap_ms: int) -> float:
    """``base × multiplier^times``, stopped at the cap before it can overflow."""
    if base_ms <= 0 or cap_ms <= 0:
        return 0.0
    if base_ms >= cap_ms and multiplier >= 1:
        return float(cap_ms)
    if multiplier > 1 and times * math.log(multiplier) > math.log(cap_ms / base_ms):
        return float(cap_ms)
    return min(base_ms * multiplier**times, float(cap_ms))


def foreseen(terms: Terms, failed: int) -> tuple[Action, int, int]:
    """What follows after so many failed attempts, and the least and the most ms that it waits then."""
    if terms.rule is not None and terms.rule.action is not Action.REDELIVER:
        return terms.rule.action, 0, 0
    if limit_reached(terms.settings, terms.policy, failed):
        return Action.DEAD_LETTER, 0, 0
    return Action.REDELIVER, *_spread(terms.settings, terms.policy, failed).bounds()


class Row(NamedTuple):
    """One attempt of ``homing explain``. Delays and totals span the jitter; the first attempt has none. All in ms."""

    #: 1, 2, …
    attempt: int
    #: The wait before this attempt.
    min_delay_ms: int
    max_delay_ms: int
    #: From the first attempt to this one, without what the application takes.
    min_total_ms: int
    max_total_ms: int
    #: Failing this one dead-letters the message.
    last: bool


def schedule(settings: AddressSettings, policy: ConsumerPolicy | None, attempts: int) -> list[Row]:
    """The first ``attempts`` attempts of a message that fails every time, or as many as it has."""
    allowed = attempts_allowed(settings, policy)
    rows = [Row(1, 0, 0, 0, 0, allowed is not None and allowed <= 1)]
    for attempt in range(2, min(attempts, attempts if allowed is None else allowed) + 1):
        least, most = _spread(settings, policy, attempt - 1).bounds()
        before = rows[-1]
        rows.append(Row(attempt, least, most, before.min_total_ms + least, before.max_total_ms + most, attempt == allowed))
    return rows


def lifetime_ms(settings: AddressSettings, policy: ConsumerPolicy | None) -> tuple[int, int] | None:
    """The least and most time from first to last attempt, without what the application takes; None: without end.

    Exact for up to 10,000 attempts; beyond, the last delay is taken to repeat, which every form that reached its cap does.
    """
    allowed = attempts_allowed(settings, policy)
    if allowed is None:
        return None
    counted = min(allowed, 10_000 + len(settings.redelivery_delays_ms))
    last = schedule(settings, policy, counted)[-1]
    rest = max(0, allowed - counted)
    return last.min_total_ms + rest * last.min_delay_ms, last.max_total_ms + rest * last.max_delay_ms


def lifetime_warning(settings: AddressSettings, policy: ConsumerPolicy | None) -> str | None:
    """A sentence for policies that use up all attempts in less than 10 s, even with the longest draws; else None."""
    life = lifetime_ms(settings, policy)
    allowed = attempts_allowed(settings, policy)
    if life is None or life[1] >= SHORT_LIFE_MS:
        return None
    if allowed == 1:
        return "a failing message has one attempt: whatever fails it for a moment dead-letters everything that meets it"
    times = f"all {allowed} attempts"
    if life[1] == 0:
        return (
            f"a failing message uses up {times} at once, without any delay: a fault of a few seconds dead-letters everything that meets it"
        )
    within = f"{math.ceil(life[1] / 100) / 10:g} s" if life[1] >= 100 else format_duration_ms(life[1])
    return f"a failing message uses up {times} and is gone within {within}: a fault that lasts longer dead-letters everything that meets it"
