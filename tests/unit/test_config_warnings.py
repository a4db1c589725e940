"""broker.yaml: what is warned of, and what does not hold unless it is meant."""

from __future__ import annotations

import re

import pytest

from homing.broker.config.config import ConfigError, check, parse, without_removing
from homing.broker.core.settings.address_settings import (
    DECLARABLE_SETTINGS,
    FIELD_OF_KEY,
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'address-settings: {"#": {dead-letter-address: D}, "a": {dead-letter-address: null}}',
            "line 1, address-settings.a.dead-letter-address: no dead-letter-address: a message stays parked in its queue after 10",
        ),
        (
            'address-settings: {"#": {dead-letter-address: null, without-dead-letter-address: drop}}',
            "without-dead-letter-address: no dead-letter-address: a message is removed after 10 failed attempts",
        ),
        ('address-settings: {"#": {without-dead-letter-address: drop}}', "without-dead-letter-address has no effect"),
        (
            'address-settings: {"#": {dead-letter-address: D, redelivery-delay: 1ms, redelivery-delay-multiplier: 2}}',
            "all 10 attempts and is gone within 65ms",
        ),
        ('address-settings: {"#": {redelivery-delay: 0, max-delivery-attempts: 3}}', "uses up all 3 attempts at once"),
        ("queues: {a: {redelivery-delay: 0, max-delivery-attempts: 5}}", "line 1, queues.a.redelivery-delay: .* all 5 attempts at once"),
        (
            "queues: {a: {dead-letter-address: null}}",
            "line 1, queues.a.dead-letter-address: .* stays parked in its queue after 10 failed attempts",
        ),
        ('address-settings: {"#": {max-delivery-attempts: 1}}', r"has one attempt: .* \(raise max-delivery-attempts;"),
        ('address-settings: {"#": {dead-letter-address: D, overflow: drop-head}}', "overflow has no effect"),
        (
            'address-settings: {"#": {max-delivery-attempts: -1, dead-letter-address: null, auto-create-dead-letter-resources: true}}',
            "auto-create-dead-letter-resources has no effect",
        ),
        (
            'address-settings: {"#": {dead-letter-address: D, auto-create-expiry-resources: true}}',
            "auto-create-expiry-resources has no effect",
        ),
        ('address-settings: {"#": {dead-letter-address: D, redelivery-delay: 1m, max-redelivery-delay: 10s}}', "every delay is the cap"),
    ],
)
def test_warnings(text: str, says: str) -> None:
    (warning,) = check(parse(text))
    assert re.search(says, warning), warning


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("message-ttl: 1s, redelivery-delay: 5s", "once"),
        ("max-ttl: 5s, redelivery-delay: 5s", "once"),
        ("message-ttl: 2s, min-ttl: 4s, redelivery-delays: [4s, 1m]", "once"),
        (
            "rules: [{name: slow, error-type: E, redelivery-delay: 1m}], message-ttl: 30s, redelivery-delay: 5s, max-delivery-attempts: 6",
            "once",
        ),
    ],
)
def test_what_expires_before_it_is_tried_again_is_warned_of(text: str, times: str) -> None:
    (warning,) = check(parse(f"address-settings: {{a: {{{text}}}}}"))
    assert f"what failed {times} expires, and leaves no dead letter" in warning
    assert "-ttl: " in warning


@pytest.mark.parametrize(
    "text",
    [
        "message-ttl: 6s, redelivery-delay: 5s, redelivery-delay-multiplier: 2.0",
        "message-ttl: 1s, redelivery-delay: 5s, expiry-address: late",
        "message-ttl: 1s, redelivery-delay: 5s, no-expiry: true",
        "message-ttl: 1s, redelivery-delay: 5s, min-ttl: 1m",
    ],
)
def test_what_lives_until_it_is_tried_again_or_leaves_a_dead_letter_is_not(text: str) -> None:
    assert check(parse(f"address-settings: {{a: {{{text}}}}}")) == []


@pytest.mark.parametrize("value", ["message-ttl: 0", "message-ttl: 0s", "max-ttl: 0", "max-length: 0", "max-length-bytes: 0"])
def test_values_that_remove_every_message_do_not_hold_unless_they_are_meant(value: str) -> None:
    key = value.partition(":")[0]
    field = FIELD_OF_KEY[key]
    of_queues = f"queues: {{q: {{{value}}}}}" if field in DECLARABLE_SETTINGS else ""
    for where, address in ((f'address-settings: {{"#": {{max-length: 9}}, a: {{{value}}}}}', "a"), (of_queues, "q")):
        if not where:
            continue
        config = parse(where)
        (problem,) = config.removing
        assert (problem.path.rpartition(".")[2], problem.message) == (key, f"{key}: 0 removes every message")
        assert (problem.line, "allow-remove-all: true in the same pattern" in problem.fix) == (1, True)
        with pytest.raises(ConfigError, match="removes every message"):
            without_removing(config)
        declared = config.queues[address].settings if config.queues else {}
        assert getattr(config.settings_repository().resolve(address, declared), field) != 0
        (origin,) = [each for each in config.settings_repository().explain(address) if each.key == key]
        assert origin.pattern in ("#", "default")
    patterns = f'address-settings: {{"#": {{allow-remove-all: true}}, a: {{allow-remove-all: true, {value}}}}}'
    meant = parse(f"{patterns}\n{of_queues}")
    assert without_removing(meant) is meant
    assert getattr(meant.settings_repository().resolve("a"), field) == 0
    assert not of_queues or meant.queues["q"].settings == {field: 0}
    elsewhere = parse(f'address-settings: {{"#": {{allow-remove-all: true}}, a: {{{value}}}}}')
    assert [each.path for each in elsewhere.removing] == [f"address-settings.a.{key}"]


def test_one_attempt_is_no_plural() -> None:
    assert (
        "in its queue after 1 failed attempt ("
        in check(parse("address-settings: {a: {dead-letter-address: null, max-delivery-attempts: 1}}"))[0]
    )


def test_no_warnings_where_all_is_well() -> None:
    assert check(parse("")) == []
    well = 'address-settings: {"#": {dead-letter-address: DLA, redelivery-delay: 5s}, "patient": {max-delivery-attempts: -1}}'
    assert check(parse(well)) == []
