"""Rules by error class: how they are read, what they fit, and what holds where one does."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.config.checks import layer_problems, settings_warnings
from homing.broker.config.export import as_file
from homing.broker.core.redelivery import ConsumerPolicy, Decision, Failure, Terms, attempts_allowed, foreseen, schedule, under
from homing.broker.core.settings.address_settings import AddressSettings, AddressSettingsRepository, plain, read_setting
from homing.broker.core.settings.rules import Action, ReportedFailure, Rule, first, fitting, reported_failure
from homing.broker.core.settings.values import SettingError

NOW_MS = 1_700_000_000_000
COUNTED = Failure()


def rules(*given: dict[str, Any]) -> tuple[Rule, ...]:
    read: tuple[Rule, ...] = read_setting("rules", list(given))[1]
    return read


def fits(rule: dict[str, Any], failure: ReportedFailure, **headers: Any) -> bool:
    return first(fitting(rules(rule), failure), lambda name: headers.get(name)) is not None


def test_what_a_rule_fits() -> None:
    timeout = ReportedFailure(("socket.TimeoutError", "OSError", "Exception"), ("no answer from db-7", "late"), 75)
    for wanted in ("socket.TimeoutError", "TimeoutError", "OSError", ["KeyError", "OSError"], "socket.*"):
        assert fits({"error-type": wanted}, timeout), wanted
    for wanted in ("Timeout", "timeouterror", "ocket.TimeoutError", ["KeyError"]):
        assert not fits({"error-type": wanted}, timeout), wanted
    assert fits({"reason": "no answer from *"}, timeout)
    assert fits({"reason": ["never", "la*e"]}, timeout)
    assert not fits({"reason": "answer"}, timeout)
    assert fits({"exit-status": [1, 75]}, timeout)
    assert not fits({"exit-status": 1}, timeout)
    assert not fits({"exit-status": 1}, ReportedFailure(("nack",)))
    assert fits({}, ReportedFailure(("nack",)))
    both = {"error-type": "OSError", "reason": "*db-7", "header": {"region": "eu-*", "size": 5, "old": None}}
    assert fits(both, timeout, region="eu-1", size=5)
    assert not fits(both, timeout, region="eu-1", size="5")
    assert not fits(both, timeout, region="us", size=5)
    assert not fits(both, timeout, region="eu-1", size=5, old="yes")
    assert not fits({**both, "error-type": "KeyError"}, timeout, region="eu-1", size=5)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_stars_are_as_in_a_shell(wanted: str, text: str) -> None:
    as_regex = re.compile(".*".join(map(re.escape, wanted.split("*"))), re.DOTALL)
    if wanted:
        assert fits({"reason": wanted}, ReportedFailure(("nack",), (text,))) is (as_regex.fullmatch(text) is not None)


def test_the_first_that_fits_holds() -> None:
    found = rules({"error-type": "OSError"}, {"header": {"a": 1}}, {"header": {"a": 2}}, {}, {"error-type": "KeyError"})
    may = fitting(found, ReportedFailure(("KeyError",)))
    assert [rule.name for rule in may] == ["2", "3", "4"]

    def held(a: int | None, *among: Rule) -> str | None:
        rule = first(among, lambda name: a)
        return rule.name if rule else None

    assert [held(a, *may) for a in (1, 2, 3)] == ["2", "3", "4"]
    assert held(None, *fitting(found[:3], ReportedFailure(("KeyError",)))) is None


def test_a_failure_that_told_no_type_is_known_by_how_it_ended() -> None:
    assert reported_failure({"reason": "no"}, "timeout") == ReportedFailure(("timeout",), ("no",))
    report = {"error_type": "a.B", "bases": ["C", "Exception"], "error_text": "x", "exit_status": 3}
    assert reported_failure(report, "listener") == ReportedFailure(("a.B", "C", "Exception"), ("x",), 3)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("no list", "a list of at most 100 rules"),
        ([{}] * 101, "a list of at most 100 rules"),
        (["TimeoutError"], "rules that are maps"),
        ([{"errortype": "X"}], "got 'errortype', expected a key that rules have, in errortype of rule 1"),
        ([{"max-length": 3}], "a key that rules have, in max-length of rule 1"),
        ([{"name": "x", "error-type": 7}], "a text or a list of at most 100, in error-type of rule x"),
        ([{"reason": ["*x*"] * 101}], "a text or a list of at most 100, in reason of rule 1"),
        ([{"header": ["a"]}], "a map of names to values"),
        ([{"exit-status": "1"}], "a whole number or a list"),
        ([{"action": "retry"}], "one of redeliver, dead-letter, drop"),
        ([{"action": "drop"}], "a name beside it"),
        ([{"name": "x", "action": "drop", "dead-letter-address": "y"}], "another action beside it"),
        ([{"action": "dead-letter", "redelivery-delay": "1s"}], "nothing of redelivery beside that action"),
        ([{"redelivery-delays": ["1s"], "redelivery-delay": "1s"}], "the list alone"),
        ([{"redelivery-back-off": "list"}], "redelivery-delays beside it"),
        ([{"redelivery-delay": "soon"}], "a duration such as"),
        ([{"dead-letter-address": "homing.x"}], "does not begin with homing., in dead-letter-address of rule 1"),
        ([{"dead-letter-address": None}], "an address, in dead-letter-address of rule 1"),
        ([{"name": "x"}, {"name": "x"}], "a name for each rule"),
        ([{"header": {"a": float("nan")}}], "got nan, expected a finite number, in header of rule 1"),
        ([{"error-type": "A", "error_type": "B"}], "each key once, in error-type of rule 1; it stands there in two spellings"),
        ([{"redelivery-delay": "1s", "redelivery_delay_ms": 2}], "each key once, in redelivery-delay of rule 1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule_and_the_key(wrong: Any, why: str) -> None:
    with pytest.raises(SettingError, match=re.escape(why)):
        read_setting("rules", wrong)


def test_read_shown_and_read_again_it_is_the_same() -> None:
    found = rules(
        {"error-type": "TimeoutError", "redelivery-delay": "30s", "max-delivery-attempts": 5},
        {"name": "odd", "header": {"a": None, "b": 1.5}, "exit-status": [3], "redelivery-delays": ["1s", "1m"]},
        {"name": "gone", "reason": ["a*", "b"], "action": "drop"},
    )
    shown = plain(found)
    assert read_setting("rules", shown)[1] == found == read_setting("rules", found)[1]
    assert shown[0] == {
        "name": "1",
        "error_type": ["TimeoutError"],
        "action": "redeliver",
        "max_delivery_attempts": 5,
        "redelivery_delay_ms": 30_000,
    }
    nothing: dict[str, Any] = {key: {} for key in ("virtual_hosts", "addresses", "queues", "user_limits", "peer_limits", "policies")}
    sections = dict.fromkeys(("native", "amqp", "stomp", "http", "tls", "log", "audit", "journal", "broker", "limits", "console"))
    written = as_file({"data_directory": "d", "address_settings": {"#": {"rules": shown}}, "insecure": False, **nothing, **sections})
    assert written["address-settings"]["#"]["rules"][0]["redelivery-delay"] == "30s"
    assert read_setting("rules", written["address-settings"]["#"]["rules"])[1] == found


# -- what holds ----------------------------------------------------------------------------------------------------------


def _settings(**values: Any) -> AddressSettings:
    return AddressSettingsRepository({"#": values}).resolve("orders")


def _terms(rule: dict[str, Any], settings: AddressSettings, policy: ConsumerPolicy | None = None) -> Terms:
    return under(rules(rule)[0], settings, policy)


def _delays(terms: Terms, counts: range = range(1, 5)) -> list[int]:
    return [foreseen(terms, failed)[1] for failed in counts]


PATIENT = ConsumerPolicy(maximum_redeliveries=20, initial_redelivery_delay_ms=7, redelivery_delay_ms=7)


def test_who_decides() -> None:
    settings = _settings(redelivery_delay_ms=1000, max_delivery_attempts=9)
    delay, limit, both = {"redelivery-delay": 50}, {"max-delivery-attempts": 3}, {"redelivery-delay": 50, "max-delivery-attempts": 3}

    def found(rule: dict[str, Any], policy: ConsumerPolicy | None) -> tuple[int, int | None]:
        terms = _terms(rule, settings, policy)
        return foreseen(terms, 2)[1], attempts_allowed(terms.settings, terms.policy)

    assert [found(rule, None) for rule in ({}, delay, limit, both)] == [(1000, 9), (50, 9), (1000, 3), (50, 3)]
    assert [found(rule, PATIENT) for rule in ({}, delay, limit, both)] == [(7, 21), (50, 21), (7, 3), (50, 3)]
    strict = _settings(redelivery_delay_ms=1000, max_delivery_attempts=9, allow_consumer_policy=False)
    terms = _terms(delay, strict, PATIENT)
    assert attempts_allowed(terms.settings, terms.policy) == 9, "the stricter of the other two"
    terms = _terms({"max-delivery-attempts": 15}, strict, PATIENT)
    assert attempts_allowed(terms.settings, terms.policy) == 15, "the rule's goes before both"
    endless = _terms({"max-delivery-attempts": -1}, settings, PATIENT)
    assert attempts_allowed(endless.settings, endless.policy) is None
    own = Failure(delay_ms=11)
    assert _terms(both, settings).decide(2, own, NOW_MS, random.Random(1)).delay_ms == 11, "the nack's own goes before all"


def test_a_back_off_of_its_own_takes_nothing_from_the_addresss() -> None:
    listed = _settings(redelivery_delays_ms=[5, 6], max_delivery_attempts=-1)
    default = _settings(max_delivery_attempts=-1)
    assert _delays(_terms({"redelivery-delay": 50}, listed)) == [50] * 4
    assert _delays(_terms({"redelivery-back-off": "linear"}, listed)) == [1000, 2000, 3000, 4000]
    assert _delays(_terms({"redelivery-delay": 50, "redelivery-back-off": "fixed"}, default)) == [50] * 4
    assert _delays(_terms({"redelivery-delay": 50, "redelivery-delay-multiplier": 2}, default)) == [50, 100, 200, 400]
    assert _delays(_terms({"redelivery-delays": [9, 99]}, default)) == [9, 99, 99, 99]
    capped = _terms({"max-redelivery-delay": 3000, "redelivery-collision-avoidance-factor": 0}, default)
    assert _delays(capped) == [1000, 3000, 3000, 3000], "a cap alone changes only itself"


def test_an_end_at_once() -> None:
    settings = _settings(redelivery_delay_ms=1000, max_delivery_attempts=9)
    end = _terms({"action": "dead-letter", "dead-letter-address": "bad"}, settings, PATIENT)
    drop = _terms({"name": "gone", "action": "drop"}, settings, PATIENT)

    def decided(terms: Terms, failure: Failure = COUNTED, apply_limit: bool = True) -> Decision:
        return terms.decide(1, failure, NOW_MS, random.Random(1), apply_limit)

    assert decided(end) == Decision(Action.DEAD_LETTER, reason="not-retryable")
    assert decided(end, Failure(poison=True)).reason == "poison"
    assert decided(drop) == Decision(Action.DROP, dropped_by="gone")
    for terms in (end, drop):
        assert decided(terms, apply_limit=False) == Decision(Action.REDELIVER, 7, NOW_MS + 7), "not what was lost with others"
        assert attempts_allowed(terms.settings, terms.policy) == 1, "the next time it is alone"
    assert end.settings.dead_letter_address == "bad"


schedules: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"redelivery-delay": st.integers(0, 10**9)},
        optional={
            "redelivery-delay-multiplier": st.floats(0.1, 100),
            "redelivery-back-off": st.sampled_from(["exponential", "fixed", "linear", "full-jitter"]),
            "redelivery-collision-avoidance-factor": st.floats(0, 1),
            "max-redelivery-delay": st.integers(0, 10**9),
        },
    ),
    st.fixed_dictionaries({"redelivery-delays": st.lists(st.integers(0, 10**9), min_size=1, max_size=4)}),
    st.just({}),
)
limited = st.builds(
    lambda delays, limit: {**delays, **limit},
    schedules,
    st.one_of(st.just({}), st.fixed_dictionaries({"max-delivery-attempts": st.integers(1, 30)})),
)


@given(st.lists(limited, min_size=1, max_size=4), st.lists(st.integers(0, 4), max_size=40), st.integers(0, 2**32), st.booleans())
def test_what_follows_is_a_closed_form_of_the_count(given: list[dict[str, Any]], history: list[int], seed: int, policy: bool) -> None:
    """Whatever a message failed of before: of the nth failure only n, what it was, and the draws of that moment count."""
    listed = rules(*({"error-type": f"E{number}", **rule} for number, rule in enumerate(given)))
    settings, brought = AddressSettings(rules=listed), PATIENT if policy else None
    rng = random.Random(seed)
    for failed, what in enumerate(history, 1):
        rule = first(fitting(settings.rules, ReportedFailure((f"E{what}",))), lambda name: None)
        terms = Terms(settings, brought) if rule is None else under(rule, settings, brought)
        assert (rule is not None) == (what < len(given))
        state = rng.getstate()
        decision = terms.decide(failed, COUNTED, NOW_MS, rng)
        again = random.Random()
        again.setstate(state)
        alone = rules({"error-type": f"E{what}", **given[what]})[0] if rule else None
        fresh = under(alone, AddressSettings(), brought) if alone else Terms(AddressSettings(), brought)
        assert decision == fresh.decide(failed, COUNTED, NOW_MS, again)
        action, least_ms, most_ms = foreseen(terms, failed)
        assert (decision.action, least_ms <= decision.delay_ms <= most_ms) == (action, True)
        if action is Action.REDELIVER and failed < 30:
            row = schedule(terms.settings, terms.policy, failed + 1)[failed]
            assert (row.min_delay_ms, row.max_delay_ms) == (least_ms, most_ms), "as explain shows it"


# -- in a file -----------------------------------------------------------------------------------------------------------


def test_what_is_perhaps_not_meant() -> None:
    listed = [
        {"error-type": ["OSError", "KeyError"], "redelivery-delay": "1h"},
        {"error-type": "KeyError", "header": {"a": 1}, "redelivery-delay": "1h"},
        {"name": "gone", "reason": "*", "action": "drop"},
        {"error-type": "shop.TimeoutError", "redelivery-delay": "10ms"},
    ]
    repository = AddressSettingsRepository({"orders.#": {"rules": listed, "redelivery-delay": "1m"}})
    assert not layer_problems(repository, {})
    warnings = [each.message for each in settings_warnings(repository, {})]
    assert warnings[0] == "rule 2 never holds: whatever it fits, 1 fits before it"
    assert warnings[1].startswith("rule gone removes messages")
    assert warnings[2].startswith("rule 4: a failing message uses up all 10 attempts and is gone within 90ms")
    assert len(warnings) == 3
    trap: dict[str, dict[str, Any]] = {"#": {"rules": [{"dead-letter-address": "pit"}]}, "pit": {"max-length": 5, "overflow": "drop-head"}}
    assert "dead letters would be dropped unseen" in layer_problems(AddressSettingsRepository(trap), {})[0].message


@pytest.mark.parametrize(
    ("before", "after", "covered"),
    [
        ("Exception", "ValueError", True),
        ("OSError", ["TimeoutError", "ConnectionResetError"], True),
        (["OSError", "LookupError"], ["KeyError", "OSError"], True),
        ("*Error", "KeyError", True),
        ("KeyError", "KeyError", True),
        ("ValueError", "Exception", False),
        ("OSError", ["TimeoutError", "KeyError"], False),
        ("Exception", "shop.NoStock", False),  # whose bases nobody knows here
        ("Exception", [], False),
        ([], "KeyError", True),
    ],
)
def test_a_rule_for_a_base_class_covers_those_after_it(before: Any, after: Any, covered: bool) -> None:
    listed = [{"error-type": each, "redelivery-delay": "1h"} for each in (before, after)]
    warnings = [each.message for each in settings_warnings(AddressSettingsRepository({"orders": {"rules": listed}}), {})]
    assert warnings == (["rule 2 never holds: whatever it fits, 1 fits before it"] if covered else [])
