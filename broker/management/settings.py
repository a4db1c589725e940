"""Address settings: what holds for an address, and where each value came from; what commands lay over the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from ..auth.access import Who, everywhere, needs, pattern_place
from ..broker import Broker
from ..config.checks import layer_problems, removal_problems, settings_warnings
from ..config.source import ConfigProblem, show_path
from ..core.rights import Place, Right
from ..core.settings.address_settings import FIELD_OF_KEY, KEY_OF_FIELD, AddressSettings, AddressSettingsRepository, plain, read_setting
from ..core.settings.values import SettingError
from ..core.settings.wildcard import pattern_problem
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .pages import Listed, listed

#: So many of an address's queues are named.
SHOWN_QUEUES: Final = 100
#: Patterns that commands set something for: each is matched with each address once.
MOST_PATTERNS: Final = 1000
#: Pattern -> {field name: value}.
_Layers = Mapping[str, Mapping[str, Any]]
#: What commands would have set, and the patterns that are named.
_Wanted = tuple[_Layers, list[str]]


def of_address(_: Broker, __: Who, arguments: dict[str, Any]) -> tuple[Place]:
    return (Place("address", (read.text(arguments, "address"),)),)


def of_patterns(_: Broker, __: Who, arguments: dict[str, Any], **___: object) -> list[Place]:
    """Also where nothing is to be changed: it is said what would be touched."""
    given = arguments.get("layers")
    patterns = list(given) if type(given) is dict else [arguments.get("pattern")]
    return [pattern_place(each) for each in patterns if type(each) is str]


@needs((Right.MONITOR, of_address))
def explain(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    """Where the address has a queue of its name, what holds for that: its declaration and its policy go before the address settings."""
    read.only(arguments, "address")
    address = read.text(arguments, "address")
    explained = broker.explain(address)
    queues = broker.queues_of(address)
    return {
        "address": address,
        "queues": None if queues is None else queues[:SHOWN_QUEUES],
        "amqp_returns_at_once": explained.amqp_returns_at_once,
        "dead_letter_queues": explained.dead_letter_queues[:SHOWN_QUEUES],
        "dead_letter_exchange": explained.dead_letter_exchange,
        "dead_letter_routing_key": explained.dead_letter_routing_key,
        "settings": [
            {
                "key": origin.key,
                "value": plain(origin.value),
                "pattern": origin.pattern,
                "line": origin.line,
                "by_command": origin.by_command,
                "covers": origin.covers,
            }
            for origin in explained.origins
        ],
    }


# -- laid over the file --------------------------------------------------------------------------------------------------


@needs((Right.MONITOR, everywhere), action="list-settings")
def list_all(broker: Broker, who: Who, arguments: dict[str, Any]) -> Listed:
    """By pattern: what commands have set."""
    read.only(arguments, "limit", "after")
    found = {pattern: (pattern, layer) for pattern, layer in broker.commanded.layers.items()}
    return listed(broker, arguments, found, lambda each: {"pattern": each[0], "settings": _by_key(each[1])})


@needs((Right.MANAGE, of_patterns), action="set-settings")
def set_some(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """All of ``layers`` (pattern -> {key: value}) or nothing. ``dry_run``: only says what it would come to."""
    read.only(arguments, "layers", "dry_run")
    act = None if read.flag(arguments, "dry_run") else partial(broker.set_settings, who)
    return broker.alone(_change(broker, lambda: wanted_layers(broker, arguments), act))


def wanted_layers(broker: Broker, arguments: dict[str, Any]) -> _Wanted:
    """What commands would have set with ``layers``, checked one by one; and the patterns that are named."""
    given = arguments.get("layers")
    if type(given) is not dict or not given or any(type(values) is not dict or not values for values in given.values()):
        raise Refused("invalid-argument", "layers must be a map of patterns to maps of settings", "give at least one setting")
    wanted = dict(broker.commanded.layers)
    for pattern, values in given.items():
        if problem := pattern_problem(pattern) if type(pattern) is str else "give text":
            raise Refused("invalid-argument", f"{pattern!r} is no pattern of addresses", problem)
        wanted[pattern] = {**wanted.get(pattern, {}), **_read(pattern, values)}
    if len(wanted) > MOST_PATTERNS:
        raise Refused("too-many-settings", f"commands set at most {MOST_PATTERNS} patterns", "write them into broker.yaml")
    return wanted, list(given)


@needs((Right.MANAGE, of_patterns), action="unset-settings")
def unset(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """What commands have set for ``pattern``: ``keys`` of it, or all. What the file says holds again."""
    read.only(arguments, "pattern", "keys", "dry_run")
    act = None if read.flag(arguments, "dry_run") else partial(broker.unset_settings, who)
    return broker.alone(_change(broker, lambda: _left(broker, arguments), act))


def _left(broker: Broker, arguments: dict[str, Any]) -> _Wanted:
    pattern, keys = read.text(arguments, "pattern"), arguments.get("keys")
    if keys is not None and (type(keys) is not list or not keys or any(type(key) is not str for key in keys)):
        raise Refused("invalid-argument", "keys must be a list of settings", "leave it out for all")
    wanted = dict(broker.commanded.layers)
    layer = dict(wanted.get(pattern, {}))
    names = list(layer) if keys is None else [FIELD_OF_KEY.get(key, key) for key in keys]
    missing = [KEY_OF_FIELD.get(name, name) for name in names if name not in layer]
    if missing or not names:
        what = f"{', '.join(missing)} of " if missing else ""
        raise Refused("no-such-setting", f'no command has set {what}"{pattern}"', "homing settings list shows what commands have set")
    for name in names:
        del layer[name]
    if layer:
        wanted[pattern] = layer
    else:
        del wanted[pattern]
    return wanted, [pattern]


def _read(pattern: str, values: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(read_setting(key, value) for key, value in values.items())
    except SettingError as error:
        raise Refused("invalid-setting", f'"{pattern}": {error}', error.fix or "docs/settings.md says what it takes") from None


def _change(broker: Broker, want: Callable[[], _Wanted], act: Callable[[_Layers], Steps[None]] | None) -> Steps[dict[str, Any]]:
    """Checked as the file is, then ``act``; None: it is a dry run. ``touched``: queues for which something else holds, so many as one
    answer has room for.
    """
    wanted, patterns = want()
    settings = checked(broker, wanted, patterns)
    would = yield from broker.would_hold(settings)
    touched = [(queue, in_force) for queue, in_force in would if in_force is not queue.settings]
    shown = [{"queue": queue.name, "changes": _changes(queue.settings, in_force)} for queue, in_force in touched[:SHOWN_QUEUES]]
    if act is not None:
        yield from act(wanted)
    return {
        "dry_run": act is None,
        "set": {pattern: _by_key(wanted.get(pattern, {})) for pattern in patterns},
        "queues": len(touched),
        "touched": shown,
        "warnings": [f"{each.message} ({each.fix})" for each in _about(patterns, settings_warnings(settings, {}))],
    }


def _about(patterns: Iterable[str], problems: Iterable[ConfigProblem]) -> list[ConfigProblem]:
    ours = tuple(show_path(("address-settings", pattern)) for pattern in patterns)
    return [each for each in problems if each.path.startswith(ours)]


def checked(broker: Broker, wanted: Mapping[str, Mapping[str, Any]], patterns: Iterable[str]) -> AddressSettingsRepository:
    """What would be in force with these, of which ``patterns`` are to change. Raises Refused where that contradicts itself, or one of them
    would remove every message."""
    settings = broker.configured.laid_over(wanted)
    if problems := [*layer_problems(settings, {}), *_about(patterns, removal_problems(settings, {}))]:
        raise Refused("invalid-setting", "; ".join(each.message for each in problems), problems[0].fix)
    return settings


def _changes(before: AddressSettings, after: AddressSettings) -> dict[str, list[Any]]:
    """Key -> [before, after]."""
    pairs = ((key, getattr(before, field), getattr(after, field)) for key, field in FIELD_OF_KEY.items())
    return {key: [plain(was), plain(is_now)] for key, was, is_now in pairs if was != is_now}


def _by_key(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {KEY_OF_FIELD[name]: plain(value) for name, value in layer.items()}
