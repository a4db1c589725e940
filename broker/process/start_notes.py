"""What ``serve`` says when it starts: what ``config check`` would warn of, and, once after an upgrade, where other defaults hold now."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from homing.journal.read.queries import JournalReader
from homing.journal.store.directory import DATABASE_NAME

from ..config.checks import layer_problems, removal_problems
from ..config.config import Config, check
from ..config.source import show_path
from ..core import dead_letter
from ..core.amqp.declared import AMQP, arguments_of
from ..core.amqp.policy import DELAYED_RETRY_KEYS
from ..core.dead_letter import DELIVERY_LIMIT, MAX_LENGTH
from ..core.queue import Queue
from ..core.redelivery import delay_cap_ms, delays_returns
from ..core.settings.address_settings import (
    DEFAULTS,
    AddressSettings,
    AddressSettingsRepository,
    built_in,
    read_setting,
)
from ..core.settings.units import format_duration_ms
from ..core.settings.values import SettingError
from ..core.settings.wildcard import pattern_problem
from ..errors import Refused
from ..topology.amqp.policies import dead_letter_exchange
from ..topology.commanded_settings import KIND, read_layers
from ..topology.resources import settings_for

log = logging.getLogger("homing")

#: Where the versions that did not record their defaults had others.
_UNRECORDED: Final[Mapping[str, Any]] = {
    "redelivery_delay_ms": 0,
    "redelivery_delay_multiplier": 1.0,
    "redelivery_collision_avoidance_factor": 0.0,
    "max_redelivery_delay_ms": None,
    "dead_letter_address": None,
    "auto_create_dead_letter_resources": False,
    "without_dead_letter_address": "drop",
}
#: So many queues stand in one line of the log.
_MOST_NAMES: Final = 20
#: Arguments that these versions took and did not act on.
_UNHEEDED: Final = ("x-queue-type", *(f"x-{key}" for key in DELAYED_RETRY_KEYS))


class _Rules(NamedTuple):
    """What becomes of a queue's failed messages, in words."""

    delay: str
    attempts: str
    dead_letters: str
    overflow: str


def warn(config: Config) -> None:
    for each in config.removing:
        log.warning("setting-ignored: %s: %s, and is passed over (%s)", config.source_path, each, each.fix)
    for warning in check(config):
        log.warning("config-warning: %s: %s", config.source_path, warning)


def contradictions(settings: AddressSettingsRepository) -> list[str]:
    """Of a file and what ``homing settings`` has laid over it, a sentence each."""
    problems = layer_problems(settings, {})
    return [f"homing settings and the file contradict each other: {problem} ({problem.fix})" for problem in problems]


def ignored(settings: AddressSettingsRepository, layers: Collection[str]) -> list[str]:
    """Of what ``homing settings`` set for these patterns before it was refused, a sentence each."""
    ours = tuple(show_path(("address-settings", pattern)) for pattern in layers)
    return [
        f"homing settings set {each}, and it is passed over ({each.fix})"
        for each in removal_problems(settings, {})
        if each.path.startswith(ours)
    ]


def contradicted(config: Config) -> list[str]:
    """Contradictions of a file and the journal in its data directory, if there is one that may be read. Raises JournalError."""
    if not os.access(config.data_directory / DATABASE_NAME, os.R_OK):
        return []
    with JournalReader(config.data_directory) as journal:
        layers = read_layers(journal.declarations(KIND))
    over = config.settings_repository().laid_over(layers)
    return [*contradictions(over), *ignored(over, layers)] if layers else []


def log_changes_of_rules(queues: Mapping[str, Queue], before: Mapping[str, Any] | None) -> None:
    """A line for each way in which queues are treated otherwise than under ``before``, the settings that the journal recorded last.

    Nothing where the defaults are as they were then, nor where nothing was recorded, because the journal is new.
    """
    for change, names in changes(queues, before).items():
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        log.warning(
            "defaults-changed: other defaults hold since the last start: %s, for %s%s", change, ", ".join(names[:_MOST_NAMES]), more
        )


def changes(queues: Mapping[str, Queue], before: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """What changed -> the queues for which it did, by name."""
    recorded = (before or {}).get("", {}).get("default_address_settings")
    if before is None or recorded == built_in():
        return {}
    defaults = replace(DEFAULTS, **_known(recorded or _UNRECORDED))
    layers = {pattern: _known(layer) for pattern, layer in before.items() if not pattern_problem(pattern)}
    repository = AddressSettingsRepository(layers, defaults=defaults)
    found: dict[str, list[str]] = {}
    for name, queue in sorted(queues.items()):
        try:
            was = _rules_before(queue, repository, unrecorded=recorded is None)
        except Refused:
            continue  # what it was declared with is not understood any more; its recovery logged that
        now = _rules(queue, queue.settings)
        if was != now:
            differences = [f"{what.replace('_', ' ')} {a} → {b}" for what, a, b in zip(_Rules._fields, was, now, strict=True) if a != b]
            found.setdefault("; ".join(differences), []).append(name)
    return found


def _known(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What is a setting still, by field name."""
    known: dict[str, Any] = {}
    for key, value in recorded.items():
        with suppress(SettingError):
            name, known_value = read_setting(key, value)
            known[name] = known_value
    return known


def _rules_before(queue: Queue, repository: AddressSettingsRepository, unrecorded: bool) -> _Rules:
    """``unrecorded``: by a version that did not know RabbitMQ's limits and delays yet, and to which overflow was a failure."""
    if not unrecorded:
        return _rules(queue, settings_for(repository, queue.address, queue.options, queue.policy))
    options = queue.options
    if (declared := options.get(AMQP)) is not None:
        heeded = {name: value for name, value in arguments_of(queue).items() if name not in _UNHEEDED}
        options = {**options, "amqp": {**declared, "arguments": heeded}}
    settings = settings_for(repository, queue.address, options, queue.policy)
    return _rules(queue, replace(settings, delay_meant=True, dead_letters_meant=True))


def _rules(queue: Queue, settings: AddressSettings) -> _Rules:
    delay = "at once" if AMQP in queue.options and not delays_returns(settings) else _schedule(settings)
    attempts = str(settings.max_delivery_attempts) if settings.max_delivery_attempts >= 0 else "without end"
    exchange, _ = dead_letter_exchange(queue)
    if exchange is not None:
        return _Rules(delay, attempts, f"exchange {exchange}", f"exchange {exchange}")
    failed, overflowed = (dead_letter.target(settings, queue.address, reason) for reason in (DELIVERY_LIMIT, MAX_LENGTH))
    fate = "removed" if settings.without_dead_letter_address == "drop" else "parked"
    dead_letters = fate if failed is None else "parked" if failed.address == queue.address else failed.address
    return _Rules(delay, attempts, dead_letters, "removed" if overflowed is None or not settings.limited else overflowed.address)


def _schedule(settings: AddressSettings) -> str:
    if settings.redelivery_delays_ms:
        return ", ".join(map(format_duration_ms, settings.redelivery_delays_ms))
    if not settings.redelivery_delay_ms:
        return "at once"
    delay, factor = format_duration_ms(settings.redelivery_delay_ms), settings.redelivery_collision_avoidance_factor
    if settings.redelivery_back_off == "linear":
        delay += " × failures"
    elif settings.redelivery_delay_multiplier != 1 and settings.redelivery_back_off != "fixed":
        delay += f" × {settings.redelivery_delay_multiplier:g} up to {format_duration_ms(delay_cap_ms(settings))}"
    return delay + (f" ± {factor:.0%}" if factor else "")
