"""Which settings a policy came from, and since when."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from homing.analytics.reports.policy_periods import periods


def at(minute: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)


def decided(policy: str, first: int, until: int, rule: str = "") -> dict[str, Any]:
    return {
        "broker_id": "b",
        "queue": "pay.card",
        "address": "pay.card",
        "policy": policy,
        "rule": rule,
        "first_at": at(first),
        "until": at(until),
    }


def load(minute: int, **patterns: dict[str, Any]) -> dict[str, Any]:
    said = [
        {"pattern": pattern.replace("_", "."), "setting": setting, "value_json": json.dumps(value)}
        for pattern, named in sorted(patterns.items())
        for setting, value in sorted(named.items())
    ]
    return {"broker_id": "b", "from_at": at(minute), "said": said}


def known(**policies: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"broker_id": "b", "policy": name, "settings_json": json.dumps(values)} for name, values in policies.items()]


def found(rows: list[dict[str, Any]], policies: list[dict[str, Any]], loads: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["policy"], row["from_at"], row["current"], row["pattern"]) for row in periods(rows, policies, loads)]


def test_a_period_begins_with_the_settings_that_the_policy_came_from() -> None:
    loads = [
        load(0, pay_card={"max_delivery_attempts": 3}),
        load(10, pay_card={"max_delivery_attempts": 5}),
        load(20, pay_card={"max_delivery_attempts": 5}, other={"max_delivery_attempts": 9}),  # which is of no concern here
    ]
    policies = known(three={"max_delivery_attempts": 3}, five={"max_delivery_attempts": 5.0})
    rows = [decided("three", 4, 8), decided("five", 30, 40)]
    assert found(rows, policies, loads) == [("three", at(0), False, "pay.card"), ("five", at(10), True, "pay.card")]


def test_what_a_consumer_brought_or_no_settings_tell_begins_with_its_first_attempt() -> None:
    loads = [load(0, pay_card={"max_delivery_attempts": 3})]
    brought = known(own={"max_delivery_attempts": 3, "consumer_policy": {}})
    rows = [decided("own", 4, 8), decided("lost", 9, 9)]
    assert found(rows, brought, loads) == [("own", at(4), False, None), ("lost", at(9), True, None)]


def test_the_most_specific_pattern_that_names_a_setting_decides_it() -> None:
    """Values of any kind are compared as what they are: words, numbers, and none."""
    named = {"redelivery_back_off": "linear", "max_redelivery_delay_ms": None, "allow_consumer_policy": False}
    loads = [{**load(0, pay_card=named), "from_at": at(0)}]
    loads[0]["said"] += [{"pattern": "pay.*", "setting": "redelivery_back_off", "value_json": '"fixed"'}]
    loads[0]["said"] += [{"pattern": "#", "setting": "max_delivery_attempts", "value_json": "7"}]
    assert found([decided("p", 1, 2)], known(p=named | {"max_delivery_attempts": 7}), loads) == [("p", at(0), True, "pay.card")]
    assert found([decided("p", 1, 2)], known(p=named | {"redelivery_back_off": "fixed"}), loads) == [("p", at(1), True, None)]


def test_what_a_rule_decides_is_of_settings_that_have_rules() -> None:
    loads = [load(0, pay_card={"rules": []}), load(10, pay_card={"rules": [{"error-class": "Down"}]})]
    assert found([decided("p", 11, 12, rule="down")], known(p={}), loads) == [("p", at(10), True, "pay.card")]
