"""Address settings: what holds for an address, and where each value came from; what commands lay over the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Final

from ..answers.administration import ChangedSettings, Explained, SetOfPattern, TouchedQueue
from ..answers.parts import Properties
from ..auth.access import Who, at_address, everywhere, needs, pattern_place
from ..broker import Broker
from ..config.checks import layer_problems, removal_problems, settings_warnings
from ..config.source import ConfigProblem, show_path
from ..core.rights import Place, Right
from ..core.settings.address_settings import (
    FIELD_OF_KEY,
    KEY_OF_FIELD,
    AddressSettings,
    AddressSettingsRepository,
    Layer,
    Layers,
    plain,
    read_setting,
)
from ..core.settings.values import SettingError
from ..core.settings.wildcard import pattern_problem
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .pages import Asked, Listed, listed

#: So many of an address's queues are named.
SHOWN_QUEUES: Final = 100
#: Patterns that commands set something for: each is matched with each address once.
MOST_PATTERNS: Final = 1000
#: What commands would have set, and the patterns that are named.
_Wanted = tuple[Layers, list[str]]


def _layers(_: Broker, name: str, given: object) -> Layers:
    if type(given) is not dict or not given or any(type(values) is not dict or not values for values in given.values()):
        raise Refused("invalid-argument", f"{name} must be a map of patterns to maps of settings", "give at least one setting")
    for pattern in given:
        if problem := pattern_problem(pattern) if type(pattern) is str else "give text":
            raise Refused("invalid-argument", f"{pattern!r} is no pattern of addresses", problem)
    return given


def _keys(_: Broker, name: str, given: object) -> list[str]:
    if type(given) is not list or not given or any(type(key) is not str for key in given):
        raise Refused("invalid-argument", f"{name} must be a list of settings", "leave it out for all")
    return given


GivenLayers = Annotated[Layers, _layers]


def of_layers(layers: Layers) -> list[Place]:
    """Also where nothing is to be changed: it is said what would be touched."""
    return [pattern_place(each) for each in layers]


def _of_pattern(pattern: str) -> tuple[Place]:
    return (pattern_place(pattern),)


@needs((Right.MONITOR, at_address))
def explain(broker: Broker, who: Who, *, address: read.Text) -> Explained:
    """Where the address has a queue of its name, what holds for that: its declaration and its policy go before the address settings."""
    explained = broker.explanations.of(address)
    queues = broker.post_office.queues_of(address)
    return {
        "address": address,
        "queues": None if queues is None else queues[:SHOWN_QUEUES],
        "amqp_returns_at_once": explained.amqp_returns_at_once,
        "dead_letter_queues": [*explained.dead_letter_queues[:SHOWN_QUEUES]],
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
def list_all(broker: Broker, who: Who, *, page: Asked) -> Listed[SetOfPattern]:
    """By pattern: what commands have set."""
    found = {pattern: (pattern, layer) for pattern, layer in broker.commanded.layers.items()}
    return listed(broker, page, found, lambda each: {"pattern": each[0], "settings": _by_key(each[1])})


@needs((Right.MANAGE, of_layers), action="set-settings")
def set_some(broker: Broker, who: Who, *, layers: GivenLayers, dry_run: read.Flag = False) -> Steps[ChangedSettings]:
    """All of ``layers`` (pattern -> {key: value}) or nothing. ``dry_run``: only says what it would come to."""
    act = None if dry_run else partial(broker.changes.set_settings, who)
    return broker.in_force.alone(_change(broker, lambda: wanted_layers(broker, layers), act))


def wanted_layers(broker: Broker, given: Layers) -> _Wanted:
    """What commands would have set with these, checked one by one; and the patterns that are named."""
    wanted = dict(broker.commanded.layers)
    for pattern, values in given.items():
        wanted[pattern] = {**wanted.get(pattern, {}), **_read(pattern, values)}
    if len(wanted) > MOST_PATTERNS:
        raise Refused("too-many-settings", f"commands set at most {MOST_PATTERNS} patterns", "write them into broker.yaml")
    return wanted, list(given)


@needs((Right.MANAGE, _of_pattern), action="unset-settings")
def unset(
    broker: Broker, who: Who, *, pattern: read.Text, keys: Annotated[list[str], _keys] | None = None, dry_run: read.Flag = False
) -> Steps[ChangedSettings]:
    """What commands have set for ``pattern``: ``keys`` of it, or all. What the file says holds again."""
    act = None if dry_run else partial(broker.changes.unset_settings, who)
    return broker.in_force.alone(_change(broker, lambda: _left(broker, pattern, keys), act))


def _left(broker: Broker, pattern: str, keys: list[str] | None) -> _Wanted:
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


def _read(pattern: str, values: Layer) -> Properties:
    try:
        return dict(read_setting(key, value) for key, value in values.items())
    except SettingError as error:
        raise Refused("invalid-setting", f'"{pattern}": {error}', error.fix or "docs/settings.md says what it takes") from None


def _change(broker: Broker, want: Callable[[], _Wanted], act: Callable[[Layers], Steps[None]] | None) -> Steps[ChangedSettings]:
    """Checked as the file is, then ``act``; None: it is a dry run. ``touched``: queues for which something else holds, so many as one
    answer has room for.
    """
    wanted, patterns = want()
    settings = checked(broker, wanted, patterns)
    would = yield from broker.in_force.would_hold(settings)
    touched = [(queue, in_force) for queue, in_force in would if in_force is not queue.settings]
    shown: list[TouchedQueue] = [
        {"queue": queue.name, "changes": _changes(queue.settings, in_force)} for queue, in_force in touched[:SHOWN_QUEUES]
    ]
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


def checked(broker: Broker, wanted: Layers, patterns: Iterable[str]) -> AddressSettingsRepository:
    """What would be in force with these, of which ``patterns`` are to change. Raises Refused where that contradicts itself, or one of them
    would remove every message."""
    settings = broker.commanded.laid_over(wanted)
    if problems := [*layer_problems(settings, {}), *_about(patterns, removal_problems(settings, {}))]:
        raise Refused("invalid-setting", "; ".join(each.message for each in problems), problems[0].fix)
    return settings


def _changes(before: AddressSettings, after: AddressSettings) -> dict[str, list[object]]:
    """Key -> [before, after]."""
    pairs = ((key, getattr(before, field), getattr(after, field)) for key, field in FIELD_OF_KEY.items())
    return {key: [plain(was), plain(is_now)] for key, was, is_now in pairs if was != is_now}


def _by_key(layer: Layer) -> Properties:
    return {KEY_OF_FIELD[name]: plain(value) for name, value in layer.items()}
