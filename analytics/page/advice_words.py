"""Advice in sentences: what to change, to what, and why, from one row of ``advice``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import AnalyticsError
from ..what_if.policy import Policy, parse_policies
from ..words import NB, number, plural, share, span
from .tables import bare


def sentence(row: Mapping[str, Any]) -> str:
    """One row of ``advice`` as a recommendation."""
    where = row["queue"] if row["pattern"] in (None, bare(row["queue"])) else f"{row['queue']} (settings of {row['pattern']})"
    where += f", rule {row['rule']}" if row["rule"] else ""
    if row["kind"] == "not-retryable":
        return (
            f"{where}: retrying does not help against {row['error_class']}. {number(row['succeeded'])} of "
            f"{plural(row['failed'], 'message')} succeeded, and {plural(row['wasted'], 'retry was', 'retries were')} wasted. Let the "
            "consumer fail it with retryable=False, or allow fewer attempts."
        )
    if row["kind"] == "longer":
        return f"{where}: {_what_happened(row)}; {_what_it_needs(row)}"
    if row["kind"] == "room":
        return (
            f"{where}: {number(row['died_otherwise'])} of {plural(row['failed'], 'message')} that met {row['error_class']} did not end "
            "with it: they expired or their queue was over length while they waited. A longer time to live, or more room, would help."
        )
    if row["kind"] == "fine":
        return f"{where}, {row['error_class']}: {share(row['succeeded'], row['failed'])} of what failed succeeded; nothing to change."
    return f"{where}, {row['error_class']}: {plural(row['failed'], 'message')}, too few to say."


def _what_happened(row: Mapping[str, Any]) -> str:
    text = f"93{NB}% of what succeeds after {row['error_class']} does so within {span(row['within_ms'])}"
    if row["gives_up_ms"] is None:
        return text
    return f"{text}; {plural(row['most_attempts'], 'attempt')}{spacing(row)} give up after {span(row['gives_up_ms'])}"


def _what_it_needs(row: Mapping[str, Any]) -> str:
    late = f"{share(row['late_wins'], row['succeeded'])} of the successes came in the later half of that time"
    if row["last_two"] >= row["late_wins"]:
        late = f"{share(row['last_two'], row['succeeded'])} of the successes came with one of the last two attempts"
    if row["needs_ms"] is None:
        return f"{late}, so more would come with later ones. How many, homing simulate shows with bounds."
    text = f"{row['error_class']} would need about {span(row['needs_ms'])} for 99 of 100 to succeed"
    same, doubled = attempts_for(row, row["needs_ms"]), attempts_for(row, row["needs_ms"], multiplier=2.0)
    ways = [] if same is None else [f"max-delivery-attempts: {same} with the delays as they are"]
    if doubled is not None and (same is None or doubled < same):
        ways.append(f"{doubled} with {_doubling(row, doubled)}")
    how = f": {', or '.join(ways)}" if ways else ""
    return f"{text}{how}. {late}. The need is modelled; homing simulate shows with bounds what a change comes to."


def _doubling(row: Mapping[str, Any], attempts: int) -> str:
    """The whole schedule, for who names a part of one takes leave of what he does not name; and what it comes to."""
    policy = _policy(row, {"redelivery_delay_multiplier": 2.0}, endless=True)
    assert policy is not None, "attempts_for has just read it"
    named = {"redelivery-delay": _duration(policy.delays_ms[0]), "redelivery-delay-multiplier": "2"}
    if policy.factor:
        named["redelivery-collision-avoidance-factor"] = f"{policy.factor:g}"
    named["max-redelivery-delay"] = _duration(policy.cap_ms)
    delays = list(dict.fromkeys(policy.delays_ms[: attempts - 1]))
    steps = [span(each) for each in (delays if len(delays) < 5 else [*delays[:3], delays[-1]])]
    apart = ", ".join(steps) if len(delays) < 5 else f"{', '.join(steps[:3])} … {steps[3]}"
    return f"{', '.join(f'{name}: {value}' for name, value in named.items())} ({apart} apart)"


def _duration(ms: float) -> str:
    """As settings write it."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms >= size and ms % size == 0:
            return f"{ms / size:.0f}{unit}"
    return f"{ms:.0f}ms"


def spacing(row: Mapping[str, Any]) -> str:
    """`` at 5 s``, `` from 1 s to 10 s apart``; empty where the settings are not on record."""
    policy = _policy(row, {})
    if policy is None or not policy.delays_ms:
        return ""
    low, high = min(policy.delays_ms), max(policy.delays_ms)
    return f" at {span(low)}" if low == high else f" from {span(low)} to {span(high)} apart"


def attempts_for(row: Mapping[str, Any], needs_ms: float, **changed: float) -> int | None:
    """Attempts that last for ``needs_ms`` under the row's settings with ``changed`` ones; None: not on record, or more than 200.

    Each takes as much longer than its delay as it did on record.
    """
    now, then = _policy(row, {}), _policy(row, {f"redelivery_delay_{name}": value for name, value in changed.items()}, endless=True)
    if now is None or then is None or not sum(now.delays_ms):
        return None
    allowed = now.delays_ms[: max(row["most_attempts"] - 1, 1)]
    slower = max(1.0, (row["gives_up_ms"] or 0) / sum(allowed))
    passed = 0.0
    for attempt, delay_ms in enumerate(then.delays_ms, 2):
        passed += delay_ms * slower
        if passed >= needs_ms:
            return attempt
    return None


def _policy(row: Mapping[str, Any], changed: Mapping[str, Any], *, endless: bool = False) -> Policy | None:
    """None where the settings are not on record, or are a form that this version cannot read."""
    values = {name: value for name, value in json.loads(row["settings_json"] or "{}").items() if value not in (None, [])}
    grows = values.get("redelivery_back_off", "exponential") == "exponential" and not values.get("consumer_policy")
    if not values or (changed and not grows):
        return None
    if "consumer_policy" in values:
        values["redelivery_policy"] = values.pop("consumer_policy")
    if "redelivery_delays_ms" in values:
        if changed:
            return None
        for name in ("redelivery_delay_ms", "redelivery_delay_multiplier"):
            values.pop(name, None)
    values |= changed
    if endless:
        values["max_delivery_attempts"] = -1
    try:
        return parse_policies({"#": values}).of(frozenset({"#"}))
    except AnalyticsError:
        return None
