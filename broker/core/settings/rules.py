"""Rules by error class: of a list under ``rules`` the first that fits a failure has a say in what becomes of the message. Pure.

A rule names what a failure must look like (all that it names must fit, of a list one) and what holds then: a back-off, a limit, where
the dead letter goes; or the end at once.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from .values import SettingError


class Action(Enum):
    """What is to be done with a returned message."""

    REDELIVER = "redeliver"
    DEAD_LETTER = "dead-letter"
    #: Only a rule says so.
    DROP = "drop"


#: Each failure is held against one after the other.
_MOST_RULES: Final = 100
#: Of one condition.
_MOST_TEXTS: Final = 100
_MOST_NAME: Final = 100
#: A back-off: who names one of these has one of his own.
DELAY_FIELDS: Final = (
    "redelivery_delay_ms",
    "redelivery_delay_multiplier",
    "redelivery_back_off",
    "redelivery_delays_ms",
    "redelivery_collision_avoidance_factor",
    "max_redelivery_delay_ms",
)
_SETTINGS: Final = (*DELAY_FIELDS, "max_delivery_attempts", "dead_letter_address")
_CONDITIONS: Final = ("error_type", "reason", "header", "exit_status")
_KEYS: Final = ("name", *_CONDITIONS, "action", *_SETTINGS)

Lookup = Callable[[str], object]
#: Reads one setting of addresses: (field name, value). Raises SettingError.
ReadSetting = Callable[[str, object], tuple[str, Any]]


class ReportedFailure(NamedTuple):
    """What a rule is held against, but for the message's own headers."""

    #: The error's type, or how the delivery ended where none was reported; then its base classes.
    types: tuple[str, ...]
    #: The reason that was given, and the error's text.
    texts: tuple[str, ...] = ()
    exit_status: int | None = None


def reported_failure(report: Mapping[str, Any], outcome: str) -> ReportedFailure:
    """Of what a client reported of a failure, or what was kept of it."""
    texts = tuple(str(report[name]) for name in ("reason", "error_text") if report.get(name))
    return ReportedFailure((report.get("error_type") or outcome, *report.get("bases", ())), texts, report.get("exit_status"))


def with_bases(types: Iterable[str]) -> tuple[str, ...]:
    """These error types, and the base classes of those that are Python's own."""
    names = tuple(types)
    known = [getattr(builtins, name, None) for name in names]
    return (*names, *(each.__name__ for kind in known if isinstance(kind, type) for each in kind.__mro__[1:-1]))


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    error_type: tuple[str, ...] = ()
    reason: tuple[str, ...] = ()
    header: tuple[tuple[str, object], ...] = ()
    exit_status: tuple[int, ...] = ()
    action: Action = Action.REDELIVER
    #: (field name, value) of what it sets in the place of the address's settings.
    settings: tuple[tuple[str, Any], ...] = ()

    def fits_types(self, types: Iterable[str]) -> bool:
        """``types``: of one error, its own and its base classes."""
        return not self.error_type or any(_is_type(each, name) for name in types for each in self.error_type)

    def fits(self, failure: ReportedFailure) -> bool:
        """Whether all but its headers fit."""
        return (
            self.fits_types(failure.types)
            and (not self.reason or any(_like(each, text) for each in self.reason for text in failure.texts))
            and (not self.exit_status or failure.exit_status in self.exit_status)
        )

    def fits_headers(self, lookup: Lookup) -> bool:
        """``lookup``: what a selector sees of the message."""
        return all(
            _like(wanted, found) if isinstance(wanted, str) and isinstance(found := lookup(name), str) else wanted == lookup(name)
            for name, wanted in self.header
        )

    @property
    def dead_letter_address(self) -> str | None:
        """Where its dead letters go; None: where those of the queue go."""
        return next((value for name, value in self.settings if name == "dead_letter_address"), None)

    def as_map(self) -> dict[str, object]:
        """As JSON and msgpack have it, under field names; ``read_rules`` reads it back."""
        conditions = {name: list(value) for name in ("error_type", "reason", "exit_status") if (value := getattr(self, name))}
        header = {"header": dict(self.header)} if self.header else {}
        settings = {name: list(value) if isinstance(value, tuple) else value for name, value in self.settings}
        return {"name": self.name, **conditions, **header, "action": self.action.value, **settings}


def fitting(rules: Iterable[Rule], failure: ReportedFailure) -> list[Rule]:
    """Those that may hold, in order: each that fits but for its headers, up to the first that has none."""
    found: list[Rule] = []
    for rule in rules:
        if rule.fits(failure):
            found.append(rule)
            if not rule.header:
                break
    return found


def first(rules: Iterable[Rule], lookup: Lookup) -> Rule | None:
    """Of ``fitting`` the one that holds for a message."""
    return next((rule for rule in rules if not rule.header or rule.fits_headers(lookup)), None)


def _is_type(wanted: str, name: str) -> bool:
    """``json.JSONDecodeError`` and ``JSONDecodeError`` are both the name of that class."""
    return _like(wanted, name) or _like(f"*.{wanted}", name)


def _like(wanted: str, text: str) -> bool:
    """``*`` stands for any number of characters. Each part is looked for once, so that it takes the length of both and no power of it."""
    head, *parts = wanted.split("*")
    if not parts:
        return text == wanted
    tail = parts.pop()
    if not text.startswith(head) or not text.endswith(tail) or len(text) < len(head) + len(tail):
        return False
    at, end = len(head), len(text) - len(tail)
    for part in parts:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


# -- read ----------------------------------------------------------------------------------------------------------------


def read_rules(value: object, read_setting: ReadSetting) -> tuple[Rule, ...]:
    """From YAML, a command or the journal, or read already. Raises SettingError, which says which rule it is."""
    if not isinstance(value, list | tuple) or len(value) > _MOST_RULES:
        raise SettingError("rules", value, f"a list of at most {_MOST_RULES} rules", "docs/settings.md shows one")
    rules = tuple(each if isinstance(each, Rule) else _read_rule(number, each, read_setting) for number, each in enumerate(value, 1))
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise SettingError("rules", name, "a name for each rule", "give each its own")
    return rules


def _read_rule(number: int, value: object, read_setting: ReadSetting) -> Rule:
    if not isinstance(value, Mapping):
        raise SettingError("rules", value, "rules that are maps", "such as {error-type: TimeoutError, redelivery-delay: 30s}")
    named = value.get("name")
    try:
        given = _fields(value)
        action = given.pop("action", Action.REDELIVER.value)
        rule = Rule(
            _name(given.pop("name", str(number))),
            _texts("error-type", given.pop("error_type", ())),
            _texts("reason", given.pop("reason", ())),
            _header(given.pop("header", None) or {}),
            tuple(map(_exit_status, _list(given.pop("exit_status", ())))),
            settings=tuple(sorted(_setting(key, each, read_setting) for key, each in given.items())),
            action=_action(action),
        )
        _check(rule, named is not None)
    except SettingError as error:
        raise SettingError("rules", error.value, f"{error.expected}, in {error.key} of rule {named or number}", error.fix) from None
    return rule


def _fields(value: Mapping[object, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key, each in value.items():
        name = _field(str(key))
        if name in given:
            raise SettingError(key_of(name), each, "each key once", "it stands there in two spellings: remove one of them")
        given[name] = each
    return given


def _field(key: str) -> str:
    name = key.replace("-", "_")
    return name if name in _KEYS else f"{name}_ms" if f"{name}_ms" in _KEYS else key


def key_of(name: str) -> str:
    """As YAML has it."""
    return name.removesuffix("_ms").replace("_", "-")


def _setting(name: str, value: object, read_setting: ReadSetting) -> tuple[str, Any]:
    if name not in _SETTINGS:
        raise SettingError(name, key_of(name), "a key that rules have", "these are " + ", ".join(map(key_of, _KEYS)))
    if value is None and name == "dead_letter_address":
        raise SettingError("dead-letter-address", value, "an address", "leave it out, and the queue's own holds")
    return read_setting(name, value)


def _check(rule: Rule, is_named: bool) -> None:
    set_here = {name for name, _ in rule.settings}
    if rule.action is not Action.REDELIVER and (without := [name for name in set_here if name != "dead_letter_address"]):
        raise SettingError(key_of(without[0]), rule.action.value, "nothing of redelivery beside that action", "remove one of the two")
    if rule.action is Action.DROP and not is_named:
        raise SettingError(
            "action", rule.action.value, "a name beside it", "give the rule a name: what it drops is counted and reported under that"
        )
    if rule.action is Action.DROP and set_here:
        raise SettingError("dead-letter-address", rule.action.value, "another action beside it", "what is dropped goes nowhere")
    formula = set_here & {"redelivery_delay_ms", "redelivery_delay_multiplier"}
    back_off = dict(rule.settings).get("redelivery_back_off", "list")
    if dict(rule.settings).get("redelivery_delays_ms"):
        if formula or back_off != "list":
            raise SettingError("redelivery-delays", "a list", "the list alone", "remove delay, multiplier and back-off beside it")
    elif "redelivery_back_off" in set_here and back_off == "list":
        raise SettingError("redelivery-back-off", "list", "redelivery-delays beside it", "such as [1s, 10s, 5m]")


def _name(value: object) -> str:
    if type(value) is not str or not 0 < len(value) <= _MOST_NAME or not value.isprintable():
        raise SettingError("name", value, f"1 to {_MOST_NAME} printable characters", "")
    return value


def _action(value: object) -> Action:
    try:
        return Action(value)
    except ValueError:
        raise SettingError("action", value, "one of " + ", ".join(each.value for each in Action), "") from None


def _list(value: object) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _texts(key: str, value: object) -> tuple[str, ...]:
    texts = tuple(_list(value))
    if len(texts) > _MOST_TEXTS or any(type(each) is not str or not each for each in texts):
        raise SettingError(key, value, f"a text or a list of at most {_MOST_TEXTS}", "put it in quotes; * stands for any characters")
    return texts


def _header(value: object) -> tuple[tuple[str, object], ...]:
    if not isinstance(value, Mapping) or any(
        type(name) is not str or not isinstance(each, str | int | float | None) for name, each in value.items()
    ):
        raise SettingError("header", value, "a map of names to values", "such as {tenant: acme}; null: it is not there")
    if wrong := [each for each in value.values() if isinstance(each, float) and not math.isfinite(each)]:
        raise SettingError("header", wrong[0], "a finite number", "no property has another")
    return tuple(value.items())


def _exit_status(value: object) -> int:
    if type(value) is not int or not -(1 << 31) <= value < 1 << 32:
        raise SettingError("exit-status", value, "a whole number or a list of them", "")
    return value
