"""Address settings: patterns, layers, and where values come from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.core.settings.address_settings import (
    FIELD_OF_KEY,
    KEY_OF_FIELD,
    AddressSettings,
    AddressSettingsRepository,
    Origin,
    built_in,
    read_setting,
)
from homing.broker.core.settings.units import MAX_DURATION_MS, format_duration_ms, format_size_bytes, parse_duration_ms, parse_size_bytes
from homing.broker.core.settings.values import SettingError
from homing.broker.core.settings.wildcard import pattern_matches, pattern_problem, specificity


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("#", "orders", True),
        ("#", "a.b.c", True),
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.north", True),
        ("orders.#", "ordersx", False),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.north", False),
        ("*.eu", "orders.eu", True),
        ("#.eu", "eu", True),
        ("#.eu", "a.b.eu", True),
        ("#.eu", "a.eu.b", False),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.c.z", True),
        ("a.#.b.#.c", "a.x.b.y.b.c", True),
        ("a.#.b.*.c", "a.b.x.b.c", False),
        ("*.#", "a", True),
        ("*", "#", False),
        ("#", "orders.#", True),
        ("orders.*", "orders.#", False),
        ("orders.#", "orders.*.x", True),
    ],
)
def test_pattern_matches(pattern: str, name: str, matches: bool) -> None:
    assert pattern_matches(pattern, name) is matches


def _by_recursion(pattern: list[str], words: list[str]) -> bool:
    """The definition, slowly."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return _by_recursion(pattern[1:], words) or (bool(words) and _by_recursion(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and _by_recursion(pattern[1:], words[1:])


@given(st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=6), st.lists(st.sampled_from("ab"), min_size=1, max_size=7))
def test_matching_agrees_with_its_definition(pattern: list[str], words: list[str]) -> None:
    assert pattern_matches(".".join(pattern), ".".join(words)) is _by_recursion(pattern, words)


def test_a_hostile_pattern_costs_no_more_than_its_length_times_the_names() -> None:
    assert not pattern_matches(".".join(["#", "a"] * 200 + ["b"]), ".".join(["a"] * 2000))


def test_specificity_goes_word_by_word() -> None:
    ascending = ["#", "#.north", "*.#", "*", "*.eu", "orders.#", "orders", "orders.*", "orders.*.north", "orders.eu.#", "orders.eu"]
    assert sorted(ascending, key=specificity) == ascending


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a.", "or*", "#x.y"])
def test_what_is_no_pattern(pattern: str) -> None:
    assert pattern_problem(pattern)
    with pytest.raises(SettingError):
        AddressSettingsRepository({pattern: {}})


def test_each_key_comes_from_the_most_specific_pattern_that_sets_it() -> None:
    repository = AddressSettingsRepository(
        {
            "orders.eu": {"max-delivery-attempts": 3},
            "#": {"dead-letter-address": "DLA", "max-delivery-attempts": 5, "redelivery-delay": "1s"},
            "orders.*": {"redelivery-delay": "5s"},
            "*.eu": {"redelivery-delay": "9s", "max-redelivery-delay": "1m"},
        }
    )
    settings = repository.resolve("orders.eu")
    assert settings.dead_letter_address == "DLA"
    assert settings.max_delivery_attempts == 3
    assert settings.redelivery_delay_ms == 5000
    assert settings.max_redelivery_delay_ms == 60_000
    assert repository.resolve("elsewhere").max_delivery_attempts == 5
    assert repository.resolve("elsewhere").redelivery_delay_ms == 1000


@pytest.mark.parametrize(
    ("layers", "schedule"),
    [
        ([{}], (1000, 4.0, 0.2, 3_600_000)),
        ([{"max-delivery-attempts": 3}], (1000, 4.0, 0.2, 3_600_000)),
        ([{"max-redelivery-delay": "1m"}], (1000, 4.0, 0.2, 60_000)),
        ([{"redelivery-collision-avoidance-factor": 0.5}], (1000, 4.0, 0.5, 3_600_000)),
        ([{"redelivery-delays": []}], (1000, 4.0, 0.2, 3_600_000)),
        ([{"redelivery-delay": "5s"}], (5000, 1.0, 0.0, None)),
        ([{"redelivery-delay": "5s"}, {"redelivery-delay-multiplier": 2}], (5000, 2.0, 0.0, None)),
        ([{"redelivery-delay-multiplier": 2}], (1000, 2.0, 0.0, None)),
        ([{"redelivery-back-off": "linear", "max-redelivery-delay": "9s"}], (1000, 1.0, 0.0, 9000)),
        ([{"redelivery-delays": ["1h", "6h", "24h"]}], (1000, 1.0, 0.0, None)),
        ([{"redelivery-delays": ["1h"]}, {"redelivery-delays": []}], (1000, 4.0, 0.2, 3_600_000)),
    ],
)
def test_who_names_a_part_of_a_schedule_gets_nothing_of_the_default_one(
    layers: list[dict[str, Any]], schedule: tuple[int, float, float, int | None]
) -> None:
    """Wherever it is named: in one pattern, in several, or with the queue."""
    patterns = dict(zip(("#", "orders.#"), layers, strict=False))
    declared = dict(read_setting(key, value) for layer in layers for key, value in layer.items())
    for settings in (AddressSettingsRepository(patterns).resolve("orders"), AddressSettingsRepository({}).resolve("orders", declared)):
        assert (
            settings.redelivery_delay_ms,
            settings.redelivery_delay_multiplier,
            settings.redelivery_collision_avoidance_factor,
            settings.max_redelivery_delay_ms,
        ) == schedule


@pytest.mark.parametrize(
    ("pattern", "layer", "delay", "dead_letters"),
    [
        ("#", {"redelivery-delay": 5, "dead-letter-address": "DLA"}, False, False),
        ("orders.#", {"redelivery-delay": 5, "dead-letter-address": "DLA"}, True, True),
        ("orders.#", {"max-redelivery-delay": 5, "dead-letter-address": None}, False, False),
        ("*", {"redelivery-delays": [5]}, True, False),
    ],
)
def test_what_is_meant_for_an_address_is_not_what_holds_for_all(
    pattern: str, layer: dict[str, Any], delay: bool, dead_letters: bool
) -> None:
    settings = AddressSettingsRepository({pattern: layer}).resolve("orders")
    assert (settings.delay_meant, settings.dead_letters_meant) == (delay, dead_letters)


def test_an_explicit_null_takes_a_value_away() -> None:
    repository = AddressSettingsRepository({"#": {"dead-letter-address": "DLA"}, "scratch": {"dead-letter-address": None}})
    assert repository.resolve("scratch").dead_letter_address is None
    assert repository.origin("scratch", "dead_letter_address") == "scratch"


def test_order_in_the_file_matters_only_between_equals() -> None:
    one = {"#.a.#": {"redelivery-delay": 1}, "#.b.#": {"redelivery-delay": 2}}
    assert AddressSettingsRepository(one).resolve("a.b").redelivery_delay_ms == 2
    other = dict(reversed(one.items()))
    assert AddressSettingsRepository(other).resolve("a.b").redelivery_delay_ms == 1


def test_resolve_is_cached_and_shared_between_addresses_of_the_same_patterns() -> None:
    repository = AddressSettingsRepository({"a.*": {"redelivery-delay": 1}})
    assert repository.resolve("a.b") is repository.resolve("a.b") is repository.resolve("a.c")
    assert repository.resolve("b") == AddressSettings()


def test_the_cache_is_bounded() -> None:
    repository = AddressSettingsRepository({"#": {"redelivery-delay": 1}})
    for number in range(10_050):
        repository.resolve(f"address-{number}")
    assert len(repository._by_address) <= 10_000


def test_explain_names_pattern_and_line() -> None:
    repository = AddressSettingsRepository(
        {"#": {"redelivery-delay": "1s"}, "orders.#": {"redelivery_delay_ms": 5000}}, {("orders.#", "redelivery-delay"): 17}
    )
    explained = {origin.key: origin for origin in repository.explain("orders")}
    assert list(explained) == list(FIELD_OF_KEY)
    assert explained["redelivery-delay"] == Origin("redelivery-delay", 5000, "orders.#", 17)
    assert explained["redelivery-delay-multiplier"] == Origin("redelivery-delay-multiplier", 1.0, "orders.#", 17)
    assert explained["max-delivery-attempts"] == Origin("max-delivery-attempts", 10, "default", None)


def test_keys_and_fields_name_each_other() -> None:
    assert set(KEY_OF_FIELD) == built_in().keys() < {each.name for each in dataclasses.fields(AddressSettings)}
    assert FIELD_OF_KEY["redelivery-delay"] == "redelivery_delay_ms"
    assert FIELD_OF_KEY["max-length-bytes"] == "max_length_bytes"
    assert FIELD_OF_KEY["redelivery-delays"] == "redelivery_delays_ms"
    assert all("_" not in key for key in FIELD_OF_KEY)


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        ("redelivery-delay", "250ms", 250),
        ("redelivery-delay", 7, 7),
        ("redelivery-delays", ["1s", "10s", "5m"], (1000, 10_000, 300_000)),
        ("max-length-bytes", "64MiB", 64 << 20),
        ("max-delivery-attempts", -1, -1),
        ("redelivery-delay-multiplier", 2, 2.0),
        ("max-redelivery-delay", None, None),
        ("redelivery-back-off", "full-jitter", "full-jitter"),
        ("dead-letter-queue-prefix", "", ""),
        ("traceback-redactions", ["password=\\S+"], ("password=\\S+",)),
    ],
)
def test_values_as_written(key: str, written: object, read: object) -> None:
    name, value = read_setting(key, written)
    assert value == read
    assert type(value) is type(read)
    assert read_setting(name, value) == (name, value)


@pytest.mark.parametrize(
    ("key", "written", "says"),
    [
        ("redelivery-delay", "5 parsecs", "duration"),
        ("redelivery-delay", -1, "duration"),
        ("redelivery-delay", True, "duration"),
        ("redelivery-delay", None, "duration"),
        ("redelivery-delay", 1.5, "duration"),
        ("redelivery-delay", 2**64, "duration"),
        ("redelivery-delay", "999999999999999d", "duration"),
        ("redelivery-collision-avoidance-factor", 1.01, "at most 1"),
        ("redelivery-collision-avoidance-factor", -0.1, "at least 0"),
        ("redelivery-collision-avoidance-factor", float("nan"), "finite"),
        ("redelivery-delay-multiplier", 0, "more than 0"),
        ("redelivery-delay-multiplier", True, "finite number"),
        ("max-delivery-attempts", 0, "at least 1, or -1"),
        ("max-delivery-attempts", -2, "at least 1, or -1"),
        ("max-delivery-attempts", "3", "whole number"),
        ("redelivery-back-off", "quadratic", "one of exponential"),
        ("overflow", "pages", "one of page, block"),
        ("auto-create-queues", "yes", "true or false"),
        ("dead-letter-address", "", "a name, or null"),
        ("dead-letter-address", 5, "a text"),
        ("dead-letter-address", "homing.events", r"got 'homing.events', expected a name that does not begin with homing\.; those are"),
        ("dead-letter-address", "::eu.homing.x", r"does not begin with homing\."),
        ("expiry-address", "homing.x", r"does not begin with homing\."),
        ("dead-letter-queue-prefix", "homing.", r"does not begin with homing\."),
        ("expiry-queue-prefix", "homing.x.", r"does not begin with homing\."),
        ("redelivery-delays", "1s", "a list"),
        ("redelivery-delays", ["1s", "x"], "duration"),
        ("traceback-redactions", ["("], "regular expression"),
        ("redelivery_dealy", 5, "did you mean redelivery-delay"),
        ("colour", 5, "docs/settings.md"),
    ],
)
def test_values_that_do_not_fit(key: str, written: object, says: str) -> None:
    with pytest.raises(SettingError, match=says) as caught:
        read_setting(key, written)
    assert caught.value.code == "config-invalid"


def test_an_error_shows_no_more_of_a_value_than_tells_it() -> None:
    with pytest.raises(SettingError) as caught:
        read_setting("rules", [{"error-type": "TimeoutError"}] * 101)
    assert str(caught.value) == (
        "rules: got [{'error-type': 'TimeoutError'}, {'error-type': 'TimeoutErro…, expected a list of at most 100 rules; "
        "docs/settings.md shows one"
    )


def test_the_same_settings_in_field_names_or_yaml_keys() -> None:
    assert AddressSettingsRepository({"#": {"redelivery-delay": "5s"}}).layers == {"#": {"redelivery_delay_ms": 5000}}


@given(st.integers(0, MAX_DURATION_MS))
def test_durations_and_sizes_survive_being_written(number: int) -> None:
    assert parse_duration_ms(format_duration_ms(number)) == number
    assert parse_size_bytes(format_size_bytes(number)) == number


@pytest.mark.parametrize(("text", "result"), [("1.5h", 5_400_000), ("2 s", 2000), ("7d", 604_800_000), ("3m", 180_000), ("12", 12)])
def test_durations(text: str, result: int) -> None:
    assert parse_duration_ms(text) == result
