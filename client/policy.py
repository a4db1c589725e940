"""RedeliveryPolicy: ActiveMQ Classic's consumer-side policy, applied by the broker to what this consumer fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .errors import UsageError

#: Ten years; no delay may be longer (the broker's own cap).
LONGEST_DELAY_MS = 10 * 365 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """How often and how late a failed message comes back. Defaults are Classic's: 6 redeliveries (7 deliveries), 1 s apart.

    ``maximum_redeliveries``: -1 for ever, 0 none. ``initial_redelivery_delay_ms`` after the first failure;
    ``redelivery_delay_ms`` after later ones, or ``initial × back_off_multiplier^(n-1)`` with ``use_exponential_back_off``;
    ``maximum_redelivery_delay_ms`` caps it (-1: no cap). ``use_collision_avoidance`` adds up to ±``collision_avoidance_factor``.
    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay_ms: int = 1000
    redelivery_delay_ms: int = 1000
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    maximum_redelivery_delay_ms: int = -1
    use_collision_avoidance: bool = False
    collision_avoidance_factor: float = 0.15

    def __post_init__(self) -> None:
        _whole("maximum_redeliveries", self.maximum_redeliveries, -1, 2**63 - 1)
        _whole("initial_redelivery_delay_ms", self.initial_redelivery_delay_ms, 0, LONGEST_DELAY_MS)
        _whole("redelivery_delay_ms", self.redelivery_delay_ms, 0, LONGEST_DELAY_MS)
        _whole("maximum_redelivery_delay_ms", self.maximum_redelivery_delay_ms, -1, LONGEST_DELAY_MS)
        _flag("use_exponential_back_off", self.use_exponential_back_off)
        _flag("use_collision_avoidance", self.use_collision_avoidance)
        _real("back_off_multiplier", self.back_off_multiplier, 0.0, 1e9)
        _real("collision_avoidance_factor", self.collision_avoidance_factor, 0.0, 1.0)

    def to_wire(self) -> dict[str, Any]:
        """The map of docs/protocol.md 2.5, every field written out."""
        return asdict(self)


POLICY_FIELDS = frozenset(field.name for field in fields(RedeliveryPolicy))


def _bad(name: str, value: object, expected: str) -> UsageError:
    return UsageError("invalid-redelivery-policy", f"{name} is {value!r}, expected {expected}", "see docs/client.md, redelivery policies")


def _whole(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _bad(name, value, f"a whole number from {low} to {high}")


def _flag(name: str, value: object) -> None:
    if type(value) is not bool:
        raise _bad(name, value, "True or False")


def _real(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not low <= value <= high:
        raise _bad(name, value, f"a number from {low} to {high}")


class PolicyMap:
    """Redelivery policies by destination pattern: ``.`` separates words, ``*`` is one word, ``#`` any number of them.

    The most specific match wins, compared word by word from the left: literal before ``*`` before ``#``.
    """

    __slots__ = ("_policies",)

    def __init__(self, policies: Mapping[str, RedeliveryPolicy]) -> None:
        given: Mapping[Any, Any] = policies
        for pattern, policy in given.items():
            if not isinstance(pattern, str) or not pattern or not isinstance(policy, RedeliveryPolicy):
                raise UsageError(
                    "invalid-redelivery-policy",
                    f"redelivery_policies must map patterns to RedeliveryPolicy, got {pattern!r}: {policy!r}",
                    'write {"orders.#": RedeliveryPolicy(...)}',
                )
        self._policies = dict(policies)

    def __bool__(self) -> bool:
        return bool(self._policies)

    def match(self, destination: str) -> RedeliveryPolicy | None:
        words = destination.split(".")
        best = max((pattern for pattern in self._policies if _matches(pattern.split("."), words)), key=lambda p: _rank(p), default=None)
        return None if best is None else self._policies[best]

    def to_wire(self) -> dict[str, dict[str, Any]]:
        return {pattern: policy.to_wire() for pattern, policy in self._policies.items()}


def _rank(pattern: str) -> tuple[int, ...]:
    return (*({"#": 0, "*": 2}.get(word, 3) for word in pattern.split(".")), 1)


def _matches(pattern: list[str], words: list[str]) -> bool:
    reached = {0}  # how many words the pattern so far can have eaten
    for part in pattern:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
    return len(words) in reached
