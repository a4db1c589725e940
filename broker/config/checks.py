"""What must hold between address settings (errors), and what is valid but perhaps not meant (warnings)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from ..core.redelivery import lifetime_warning, under
from ..core.settings.address_settings import KEY_OF_FIELD, AddressSettings, AddressSettingsRepository, Values, removing
from ..core.settings.rules import Action, Rule, with_bases
from ..core.settings.units import counted
from ..core.time_to_live import expiry_warning
from .models import QueueDeclaration
from .source import ConfigProblem, KeyPath, show_path

_ROOT: Final = "address-settings"
#: What a list of delays cannot stand together with.
_FORMULA_FIELDS: Final = ("redelivery_delay_ms", "redelivery_delay_multiplier", "redelivery_back_off")
#: Who sets one of these has written a policy, and is warned when it is a short one.
_POLICY_FIELDS: Final = frozenset({*_FORMULA_FIELDS, "redelivery_delays_ms", "max_redelivery_delay_ms", "max_delivery_attempts"})
_TIMES_TO_LIVE: Final = ("message_ttl_ms", "max_ttl_ms")


class _Layer:
    """One pattern with what it sets, what that comes to under the layers that cover it, and how to speak of it."""

    def __init__(self, pattern: str, repository: AddressSettingsRepository, lines: Mapping[KeyPath, int]) -> None:
        self.pattern = pattern
        self.own: Values = repository.layers.get(pattern, {})
        self.settings: AddressSettings = repository.resolve(pattern)
        self._path: KeyPath = (_ROOT, pattern)
        self._repository = repository
        self._lines = lines

    def origin(self, name: str) -> str:
        return self._repository.origin(self.pattern, name)

    def removing(self) -> list[str]:
        return removing(self.own)

    def problem(self, name: str, message: str, fix: str) -> ConfigProblem:
        """About field ``name``, at the line that sets it here, else at the pattern's; without a name about the pattern."""
        path: KeyPath = (*self._path, KEY_OF_FIELD[name]) if name in self.own else self._path
        return ConfigProblem(show_path(path), self._lines.get(path), message, fix)


class _DeclaredQueue(_Layer):
    """A queue of the file: what it is declared with lies over the settings of its address."""

    def __init__(self, name: str, declared: QueueDeclaration, repository: AddressSettingsRepository, lines: Mapping[KeyPath, int]) -> None:
        super().__init__(declared.address or name, repository, lines)
        self.own = declared.settings
        self.settings = repository.resolve(self.pattern, declared.settings)
        self._path = ("queues", name)

    def removing(self) -> list[str]:
        """It has no pattern: one that covers it may say that they are meant."""
        return [] if self.settings.allow_remove_all else removing(self.own)


def removal_problems(
    repository: AddressSettingsRepository, lines: Mapping[KeyPath, int], queues: Mapping[str, QueueDeclaration] | None = None
) -> list[ConfigProblem]:
    """Values that remove every message and are not said to be meant. Nobody may set one; in a file of before a start passes it over."""
    return [
        layer.problem(
            name, f"{KEY_OF_FIELD[name]}: 0 removes every message", "leave it out, or say allow-remove-all: true in the same pattern"
        )
        for layer in [*_layers(repository, lines), *_declared(repository, lines, queues)]
        for name in layer.removing()
    ]


def _declared(
    repository: AddressSettingsRepository, lines: Mapping[KeyPath, int], queues: Mapping[str, QueueDeclaration] | None
) -> list[_DeclaredQueue]:
    return [_DeclaredQueue(name, each, repository, lines) for name, each in (queues or {}).items()]


def _layers(repository: AddressSettingsRepository, lines: Mapping[KeyPath, int]) -> list[_Layer]:
    return [_Layer(pattern, repository, lines) for pattern in repository.layers]


def layer_problems(repository: AddressSettingsRepository, lines: Mapping[KeyPath, int]) -> list[ConfigProblem]:
    """Combinations that are refused. Each is reported at the pattern that completes it."""
    problems: list[ConfigProblem] = []
    for layer in _layers(repository, lines):
        problems += _list_problems(layer)
        problems += _naming_problems(layer)
        problems += _ttl_problems(layer)
    return problems + _drop_head_problems(repository, lines)


def _list_problems(layer: _Layer) -> list[ConfigProblem]:
    """A list of delays says everything; delay, multiplier or another back-off beside it would be silently ignored."""
    settings, own = layer.settings, layer.own
    if not settings.redelivery_delays_ms:
        if settings.redelivery_back_off == "list" and {"redelivery_back_off", "redelivery_delays_ms"} & own.keys():
            fix = "set redelivery-delays: [1s, 10s, 5m], or another redelivery-back-off"
            return [layer.problem("redelivery_back_off", "redelivery-back-off: list needs redelivery-delays, and none apply here", fix)]
        return []
    beside = [name for name in _FORMULA_FIELDS if name in own and own[name] != "list"]
    if not beside:
        return []
    keys = " and ".join(KEY_OF_FIELD[name] for name in beside)
    if own.get("redelivery_delays_ms"):
        message, fix = f"redelivery-delays cannot stand together with {keys}", f"keep the list and remove {keys}, or the other way round"
    else:
        origin = layer.origin("redelivery_delays_ms")
        message = f'{keys} would be ignored: the redelivery-delays of "{origin}" apply here'
        fix = "set redelivery-delays: [] here as well, or change the list instead"
    return [layer.problem(beside[0], message, fix)]


def _naming_problems(layer: _Layer) -> list[ConfigProblem]:
    """Without prefix and suffix the dead-letter queue would have the name of the queue it serves."""
    problems = []
    for kind in ("dead_letter_queue", "expiry_queue"):
        prefix, suffix = f"{kind}_prefix", f"{kind}_suffix"
        own = [name for name in (prefix, suffix) if name in layer.own]
        if own and not getattr(layer.settings, prefix) and not getattr(layer.settings, suffix):
            message = f"{KEY_OF_FIELD[prefix]} and {KEY_OF_FIELD[suffix]} are both empty here"
            problems.append(layer.problem(own[0], message, "give one of them a value, such as DLQ. or .DLQ"))
    return problems


def _ttl_problems(layer: _Layer) -> list[ConfigProblem]:
    low, high = layer.settings.min_ttl_ms, layer.settings.max_ttl_ms
    own = [name for name in ("min_ttl_ms", "max_ttl_ms") if name in layer.own]
    if not own or low is None or high is None or low <= high:
        return []
    return [layer.problem(own[0], "min-ttl is more than max-ttl here", "make min-ttl the smaller one")]


def _drop_head_problems(repository: AddressSettingsRepository, lines: Mapping[KeyPath, int]) -> list[ConfigProblem]:
    """A dead-letter queue that drops its oldest loses exactly what it is there to keep."""
    targets = {each for pattern in ("#", *repository.layers) for each in repository.resolve(pattern).dead_letter_addresses}
    problems = []
    for target in sorted(targets):
        settings = repository.resolve(target)
        limited = settings.max_length is not None or settings.max_length_bytes is not None
        if settings.overflow != "drop-head" or not limited or settings.allow_drop_head_on_dead_letter_queue:
            continue
        layer = _Layer(repository.origin(target, "overflow"), repository, lines)
        message = f"overflow: drop-head applies to the dead-letter address {target}: dead letters would be dropped unseen"
        fix = f'give "{target}" another overflow, or set allow-drop-head-on-dead-letter-queue: true for it'
        problems.append(layer.problem("overflow", message, fix))
    return problems


def settings_warnings(
    repository: AddressSettingsRepository, lines: Mapping[KeyPath, int], queues: Mapping[str, QueueDeclaration] | None = None
) -> list[ConfigProblem]:
    """What is allowed but perhaps not meant, in the order of the file."""
    warnings: list[ConfigProblem] = []
    for layer in [*_layers(repository, lines), *_declared(repository, lines, queues)]:
        warnings += _loss(layer)
        warnings += _short_life(layer)
        warnings += _expires_first(layer)
        warnings += _without_effect(layer)
        warnings += _rules(layer)
        warnings += _archive(layer)
    return sorted(warnings, key=lambda each: each.line or 0)


def _loss(layer: _Layer) -> list[ConfigProblem]:
    """Where the dead letters go that have no address, shown by the pattern that says so."""
    settings = layer.settings
    if settings.dead_letter_address is not None or settings.max_delivery_attempts < 0:
        return []
    name = next((each for each in ("without_dead_letter_address", "dead_letter_address") if each in layer.own), None)
    if name is None:
        return []
    fate = "stays parked in its queue" if settings.without_dead_letter_address == "park" else "is removed"
    message = f"no dead-letter-address: a message {fate} after {counted(settings.max_delivery_attempts, 'failed attempt')}"
    return [layer.problem(name, message, "set a dead-letter-address, such as DLA")]


def _short_life(layer: _Layer) -> list[ConfigProblem]:
    warning = lifetime_warning(layer.settings, None) if _POLICY_FIELDS & layer.own.keys() else None
    if warning is None:
        return []
    name = next(name for name in KEY_OF_FIELD if name in layer.own and name in _POLICY_FIELDS)
    if layer.settings.max_delivery_attempts == 1:
        fix = "raise max-delivery-attempts"
    elif layer.settings.redelivery_delays_ms:
        fix = "make redelivery-delays longer, or raise max-delivery-attempts"
    elif layer.settings.redelivery_delay_ms:
        fix = "raise redelivery-delay, its multiplier or max-delivery-attempts"
    else:
        fix = "set a redelivery-delay with a multiplier"
    return [layer.problem(name, warning, f"{fix}; homing explain shows the attempts")]


def _expires_first(layer: _Layer) -> list[ConfigProblem]:
    """What failed once expires while it waits to be tried again."""
    own = [name for name in (*_TIMES_TO_LIVE, *sorted(_POLICY_FIELDS)) if name in layer.own]
    warning = expiry_warning(layer.settings, 2) if own else None
    fix = "make it longer than the delay, or set an expiry-address; homing explain shows the attempts"
    return [] if warning is None else [layer.problem(own[0], warning, fix)]


def _rules(layer: _Layer) -> list[ConfigProblem]:
    """Rules that are never come to, that lose messages, or that leave no time for a fault to pass."""
    found = []
    rules: tuple[Rule, ...] = layer.own.get("rules", ())
    for number, rule in enumerate(rules):
        before = next((each for each in rules[:number] if _covers(each, rule)), None)
        if before is not None:
            message = f"rule {rule.name} never holds: whatever it fits, {before.name} fits before it"
            found.append(layer.problem("rules", message, "put it before that one"))
            continue
        if rule.action is Action.DROP:
            message = f"rule {rule.name} removes messages that fail so; homing queues counts them as dropped"
            found.append(layer.problem("rules", message, "dead-letter them where they are to be looked at"))
        patience = rule.action is Action.REDELIVER and any(name != "dead_letter_address" for name, _ in rule.settings)
        terms = under(rule, layer.settings, None).settings if patience else None
        warning = lifetime_warning(terms, None) if terms is not None else None
        if terms is not None and not expiry_warning(layer.settings, 2):
            warning = warning or expiry_warning(terms, 2)
        if warning:
            fix = "make its delays longer, or raise its max-delivery-attempts"
            found.append(layer.problem("rules", f"rule {rule.name}: {warning}", fix))
    return found


def _archive(layer: _Layer) -> list[ConfigProblem]:
    name = next((each for each in ("dead_letter_retention_ms", "dead_letter_quota") if layer.own.get(each) is not None), None)
    if name is None or not layer.settings.dead_letter_archive or find_spec("pyarrow") is not None:
        return []
    message = f"{KEY_OF_FIELD[name]} removes nothing: dead letters are archived before, for which pyarrow is not installed"
    return [layer.problem(name, message, "pip install 'homing[export]', or set dead-letter-archive: false")]


def _covers(before: Rule, rule: Rule) -> bool:
    """Each of its conditions is also one of the other's, as far as that can be read off, and off Python's own classes."""
    return (
        _fits_all_types(before, rule)
        and all(
            not (wanted := set(getattr(before, name))) or (bool(getattr(rule, name)) and wanted.issuperset(getattr(rule, name)))
            for name in ("reason", "exit_status")
        )
        and set(before.header) <= set(rule.header)
    )


def _fits_all_types(before: Rule, rule: Rule) -> bool:
    if not rule.error_type:
        return not before.error_type
    return all(before.fits_types(with_bases([each])) for each in rule.error_type)


def _without_effect(layer: _Layer) -> list[ConfigProblem]:
    settings, own = layer.settings, layer.own
    warnings = []
    if "overflow" in own and settings.max_length is None and settings.max_length_bytes is None:
        warnings.append(
            layer.problem("overflow", "overflow has no effect: neither max-length nor max-length-bytes applies here", "set one of them")
        )
    if own.get("auto_create_dead_letter_resources") and settings.dead_letter_address is None:
        message = "auto-create-dead-letter-resources has no effect: no dead-letter-address applies here"
        warnings.append(layer.problem("auto_create_dead_letter_resources", message, "set dead-letter-address: DLA"))
    if "without_dead_letter_address" in own and settings.dead_letter_address is not None:
        message = f"without-dead-letter-address has no effect: the dead-letter-address {settings.dead_letter_address} applies here"
        warnings.append(layer.problem("without_dead_letter_address", message, "set dead-letter-address: null"))
    if own.get("auto_create_expiry_resources") and settings.expiry_address is None:
        message = "auto-create-expiry-resources has no effect: no expiry-address applies here"
        warnings.append(layer.problem("auto_create_expiry_resources", message, "set expiry-address: EXPIRED"))
    cap = settings.max_redelivery_delay_ms
    if cap is not None and cap < settings.redelivery_delay_ms and {"max_redelivery_delay_ms", "redelivery_delay_ms"} & own.keys():
        message = "max-redelivery-delay is less than redelivery-delay, so that every delay is the cap"
        warnings.append(layer.problem("max_redelivery_delay_ms", message, "raise it"))
    return warnings
