"""A redelivery policy as a file tells it, and the delays that follow from it. docs/semantics.md calls them sections 3 and 4.

The file is a ``broker.yaml`` or only its ``address-settings``: pattern -> settings. In a pattern's settings ``redelivery-policy`` may
hold a consumer's policy (ActiveMQ Classic's fields); it then decides delay and limit for what matches.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..errors import AnalyticsError

#: Attempts looked at where there is no limit.
ENDLESS = 200
#: No delay is longer: 10 years.
MAX_DELAY_MS = 10 * 365 * 86_400_000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULTS: dict[str, Any] = {
    "redelivery-delay": 1_000,
    "redelivery-delay-multiplier": 4.0,
    "redelivery-collision-avoidance-factor": 0.2,
    "max-redelivery-delay": 3_600_000,
    "redelivery-back-off": "exponential",
    "redelivery-delays": [],
    "max-delivery-attempts": 10,
    "redelivery-policy": None,
}
_LIMIT = "max-delivery-attempts"
#: Delay, multiplier, jitter and cap are by default one schedule. Who names one of these names another one ...
_SCHEDULE = ("redelivery-delay", "redelivery-delay-multiplier", "redelivery-back-off", "redelivery-delays")
#: ... in which these are so unless he names them too.
_PLAIN_SCHEDULE = {"redelivery-delay-multiplier": 1.0, "redelivery-collision-avoidance-factor": 0.0, "max-redelivery-delay": None}
#: Settings that decide nothing about redelivery: of no concern here.
OTHERS = frozenset(
    """allow-consumer-policy allow-drop-head-on-dead-letter-queue allow-remove-all auto-create-addresses auto-create-dead-letter-resources
    auto-create-expiry-resources auto-create-queues auto-delete-addresses auto-delete-queues auto-delete-queues-delay consumer-prefetch
    consumer-timeout dead-letter-address dead-letter-archive dead-letter-queue-prefix dead-letter-queue-suffix
    dead-letter-quota dead-letter-retention dead-letters-threshold default-address-routing-type default-exclusive
    default-max-consumers expires expiry-address expiry-queue-prefix expiry-queue-suffix keep-at-stop keep-failed
    keep-settled-failures keep-tracebacks max-length max-length-bytes
    max-nack-delay max-redelivery-records max-traceback-bytes max-ttl message-key-property message-ttl min-ttl no-expiry overflow owner
    persist-delivery-count-before-delivery rules runbook signature-properties
    slow-consumer-age slow-consumer-check-period slow-consumer-policy slow-consumer-threshold suspect-timeout
    temporary-dead-letter-queue traceback-redactions
    without-dead-letter-address""".split()
)
_CONSUMER_DEFAULTS: dict[str, Any] = {
    "maximum-redeliveries": 6,
    "initial-redelivery-delay": 1000,
    "redelivery-delay": 1000,
    "use-exponential-back-off": False,
    "back-off-multiplier": 5.0,
    "maximum-redelivery-delay": -1,
    "use-collision-avoidance": False,
    "collision-avoidance-factor": 0.15,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What follows after each failed attempt. ``delays_ms[n-1]``: after the nth, before jitter; one for each attempt but the last."""

    delays_ms: tuple[float, ...]
    cap_ms: int
    #: The spread of each delay: ± this part of it. ``first_exact``: not of the first one.
    factor: float = 0.0
    full_jitter: bool = False
    first_exact: bool = False
    #: Whether there is no limit and the attempts shown are only those looked at.
    endless: bool = False

    @property
    def attempts(self) -> int:
        return len(self.delays_ms) + 1

    def agrees_with(self, other: Policy) -> int:
        """The retries, from the first on, that come after the same delay under both."""
        if (self.factor, self.full_jitter, self.first_exact) != (other.factor, other.full_jitter, other.first_exact):
            return 0
        pairs = zip(self.delays_ms, other.delays_ms, strict=False)
        # With jitter a delay ends at the cap, too.
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)) if not self.factor or self.cap_ms == other.cap_ms else 0

    @property
    def life_ms(self) -> float:
        """From the first failure to the last attempt, without jitter."""
        return sum(self.delays_ms) * (0.5 if self.full_jitter else 1)


@dataclass(frozen=True, slots=True)
class Policies:
    """Patterns in order of rising specificity, each with its settings; later ones win, key by key."""

    layers: tuple[tuple[str, Mapping[str, Any]], ...]
    #: Patterns with rules by error class, which are not played: each failure is, as if none fitted it.
    with_rules: tuple[str, ...] = ()

    def of(self, matching: frozenset[str], in_force: str | None = None, declared: str | None = None) -> Policy | None:
        """The policy of an address that exactly these patterns match; None where none does.

        What they do not name stays as in ``in_force``: the JSON of a policy, as ``policies`` of an export has it; None: as by default.
        ``declared``: the JSON of what the queue was declared with, which goes before patterns; the limit of ``#`` is not for queues that
        AMQP declared, nor are its delays for what came back to them at once, for AMQP clients returned it.
        """
        if not matching:
            return None
        now, own, named = _named_in(in_force), _named_in(declared), dict[str, Any]()
        spared: set[str] = set()
        if "amqp" in json.loads(declared or "{}"):
            spared = {_LIMIT, *(() if now.get("redelivery-delay") else (*_SCHEDULE, *_PLAIN_SCHEDULE))}
        for pattern, settings in self.layers:
            if pattern in matching:
                named |= {key: settings[key] for key in settings if not (pattern == "#" and key in spared)}
        return policy_of(_scheduled(_scheduled(DEFAULTS, now), {**named, **own}))

    def patterns(self) -> list[tuple[str, str]]:
        """(pattern, regular expression: regex_of)."""
        return [(pattern, regex_of(pattern)) for pattern, _ in self.layers]


def _scheduled(base: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``named``, of whose schedule nothing is kept where they name another one."""
    another = any(named.get(key, []) != [] for key in _SCHEDULE)
    return {**base, **({key: DEFAULTS[key] for key in _SCHEDULE} | _PLAIN_SCHEDULE if another else {}), **named}


def in_force_policy(text: str) -> Policy:
    """A recorded policy, from its JSON."""
    return policy_of(_scheduled(DEFAULTS, _named_in(text)))


def _named_in(text: str | None) -> dict[str, Any]:
    """The settings that a recorded policy, or a queue's options, name. Raises AnalyticsError bad-policy for a form that cannot be read."""
    values = {name: value for name, value in json.loads(text or "{}").items() if value not in (None, [])}
    if "consumer_policy" in values:
        values["redelivery_policy"] = values.pop("consumer_policy")
    named = {name.removesuffix("_ms").replace("_", "-"): value for name, value in values.items()}
    return {name: _value("in force", name, value) for name, value in named.items() if name in DEFAULTS}


def load_policies(path: str | Path) -> Policies:
    """Raises AnalyticsError: no-policy, bad-policy."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise AnalyticsError(
            "no-policy", f"{path} cannot be read: {error.strerror}.", "Name a broker.yaml with the new settings."
        ) from error
    try:
        whole = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise AnalyticsError("bad-policy", f"{path} is no YAML: {str(error).splitlines()[0]}.", "Correct it.") from error
    settings = whole.get("address-settings", whole) if isinstance(whole, dict) else None
    if not isinstance(settings, dict) or not settings or not all(isinstance(each, dict | None) for each in settings.values()):
        raise AnalyticsError("bad-policy", f"{path} has no address-settings.", "Write patterns and their settings: docs/settings.md.")
    return parse_policies({pattern: each or {} for pattern, each in settings.items()})


def parse_policies(settings: Mapping[str, Mapping[str, Any]]) -> Policies:
    layers = []
    for pattern in sorted(settings, key=specificity):
        given = {str(key).removesuffix("_ms").replace("_", "-"): value for key, value in settings[pattern].items()}
        for key in given.keys() - DEFAULTS.keys() - OTHERS:
            near = difflib.get_close_matches(key, [*DEFAULTS, *OTHERS], 1)
            fix = f"Did you mean {near[0]}?" if near else "See docs/settings.md."
            raise AnalyticsError("bad-policy", f"{key} of {pattern!r} is no setting.", fix)
        known = {key: _value(pattern, key, value) for key, value in given.items() if key in DEFAULTS}
        if (
            "redelivery-delays" in known
            and known["redelivery-delays"]
            and known.keys() & {"redelivery-delay", "redelivery-delay-multiplier"}
        ):
            raise _bad(pattern, "redelivery-delays", "does not go together with delay and multiplier")
        layers.append((pattern, known))
    policies = Policies(tuple(layers), tuple(pattern for pattern, given in settings.items() if given.get("rules")))
    policies.of(frozenset(settings))
    return policies


def _bad(pattern: str, key: str, why: str) -> AnalyticsError:
    return AnalyticsError("bad-policy", f"{key} of {pattern!r} {why}.", "See docs/settings.md.")


def _value(pattern: str, key: str, value: Any) -> Any:
    if key in ("redelivery-delay", "max-redelivery-delay"):
        return None if value is None and key.startswith("max") else duration_ms(pattern, key, value)
    if key == "redelivery-delays":
        return [duration_ms(pattern, key, each) for each in value or []]
    if key == "redelivery-back-off":
        if value not in ("exponential", "fixed", "linear", "full-jitter", "list"):
            raise _bad(pattern, key, f"is {value!r}, not exponential, fixed, linear, full-jitter or list")
        return value
    if key == "redelivery-policy":
        return None if value is None else _consumer_values(pattern, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(pattern, key, f"must be a number, not {value!r}")
    return value


def _consumer_values(pattern: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _bad(pattern, "redelivery-policy", "must be a map")
    values = {str(key).removesuffix("_ms").replace("_", "-"): value for key, value in given.items()}
    unknown = values.keys() - _CONSUMER_DEFAULTS.keys()
    if unknown:
        raise _bad(pattern, "redelivery-policy", f"has no field {', '.join(sorted(unknown))}")
    read = {key: duration_ms(pattern, key, value) if key.endswith("-delay") and value != -1 else value for key, value in values.items()}
    return _CONSUMER_DEFAULTS | read


def duration_ms(pattern: str, key: str, value: Any) -> float:
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise _bad(pattern, key, f"is {value!r}, not a duration such as 250ms, 5s, 10m, 2h")
    return float(match[1]) * _UNIT_MS[match[2]]


def specificity(pattern: str) -> tuple[int, ...]:
    """Word by word from the left: a literal word, then ``*``, then the pattern's end, then ``#``."""
    return (*({"#": 0, "*": 2}.get(word, 3) for word in pattern.split(".")), 1)


def regex_of(pattern: str) -> str:
    """For an address with a dot put behind it. ``*`` is one word, ``#`` any number, also none. Java and Python read it alike."""
    words = {"#": r"(?:[^.]+\.)*", "*": r"[^.]+\."}
    return "^" + "".join(words.get(word) or re.sub(r"([^\w])", r"\\\1", word) + r"\." for word in pattern.split(".")) + "$"


def policy_of(values: Mapping[str, Any]) -> Policy:
    """The closed forms of sections 3 and 4. Values as in YAML, durations read."""
    if values["redelivery-policy"] is not None:
        return _consumer_policy(values["redelivery-policy"])
    limit = int(values["max-delivery-attempts"])
    attempts = ENDLESS if limit < 0 else max(limit, 1)
    form, delay = values["redelivery-back-off"], values["redelivery-delay"]
    listed = values["redelivery-delays"]
    multiplies = not listed and form not in ("fixed", "linear")
    cap = values["max-redelivery-delay"]
    if cap is None:
        cap = 10 * delay if multiplies and delay > 0 else MAX_DELAY_MS
    cap = min(cap, MAX_DELAY_MS)

    def base(failed: int) -> float:
        if listed:
            return float(min(listed[min(failed, len(listed)) - 1], cap))
        if form == "fixed":
            return float(min(delay, cap))
        if form == "linear":
            return float(min(delay * failed, cap))
        return _grown(delay, values["redelivery-delay-multiplier"], failed - 1, cap)

    delays = tuple(float(base(failed)) for failed in range(1, attempts))
    factor = float(values["redelivery-collision-avoidance-factor"])
    return Policy(delays, int(cap), factor, multiplies and form == "full-jitter", endless=limit < 0)


def _consumer_policy(values: Mapping[str, Any]) -> Policy:
    limit, initial, delay = int(values["maximum-redeliveries"]), values["initial-redelivery-delay"], values["redelivery-delay"]
    cap = MAX_DELAY_MS if values["maximum-redelivery-delay"] < 0 else max(values["maximum-redelivery-delay"], delay)
    grows = values["use-exponential-back-off"] and values["back-off-multiplier"] > 1

    def base(failed: int) -> float:
        if failed <= 1:
            return float(min(initial, cap))
        if not grows:
            return float(min(delay, cap))
        start, times = (initial, failed - 1) if initial > 0 else (delay, failed - 2)
        return _grown(start, values["back-off-multiplier"], times, cap)

    delays = tuple(float(base(failed)) for failed in range(1, (ENDLESS if limit < 0 else limit + 1)))
    factor = float(values["collision-avoidance-factor"]) if values["use-collision-avoidance"] else 0.0
    return Policy(delays, int(cap), factor, first_exact=True, endless=limit < 0)


def _grown(base_ms: float, multiplier: float, times: int, cap_ms: float) -> float:
    """``base × multiplier^times``, stopped at the cap before it can overflow."""
    if base_ms <= 0 or cap_ms <= 0:
        return 0.0
    if multiplier > 1 and times * math.log(multiplier) > math.log(max(cap_ms / base_ms, 1e-300)):
        return float(cap_ms)
    return float(min(base_ms * multiplier**times, cap_ms))
