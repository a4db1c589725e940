"""What holds for an address: the settings, their layers, and where each value came from.

``address-settings`` maps patterns to settings. All patterns that match an address are layered; each *setting* comes from
the most specific pattern that sets it (semantics, section 2). Artemis's names wherever Artemis has the setting.

Delay, multiplier, jitter and cap are by default one schedule: who names a part of another one does not get the rest of that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from ..amqp.vhost import split
from ..patterns import PatternError, pattern_of
from ..reserved import EVENTS, RESERVED
from .rules import Rule, read_rules
from .values import Bounds, SettingError, read_value
from .wildcard import pattern_problem, specificity, words_match

T = TypeVar("T")
#: By the names of fields, or as they are spelled in files: what is set; and the same by patterns.
Values: TypeAlias = dict[str, Any]
Layer: TypeAlias = Mapping[str, Any]
Layers: TypeAlias = Mapping[str, Layer]

#: What follows a failed attempt, and the next: how the delay grows.
BackOff: TypeAlias = Literal["exponential", "fixed", "linear", "full-jitter", "list"]
#: What becomes of the dead where they have nowhere to go.
WithoutDeadLetterAddress: TypeAlias = Literal["park", "drop"]
#: What a queue does whose length is reached.
Overflow: TypeAlias = Literal["page", "block", "drop-head", "reject-publish", "reject-publish-dlx"]
RoutingType: TypeAlias = Literal["anycast", "multicast"]
SlowConsumerPolicy: TypeAlias = Literal["notify", "kill"]

_DAY_MS: Final = 86_400_000
#: Addresses whose resolved settings are remembered; clients may name any number of addresses.
_CACHED_ADDRESSES: Final = 10_000
#: The pattern shown for values that no pattern sets.
DEFAULT_ORIGIN: Final = "default"
#: Whoever sets this one sets what is to hold where nobody says anything else.
EVERYWHERE: Final = "#"


def _setting(default: T, **bounds: Any) -> T:
    """A field with its bounds beside it (see setting_values.Bounds); typed as its default, as dataclasses.field is."""
    return field(default=default, metadata={"bounds": Bounds(**bounds)})


def _one_of(kind: Any) -> Mapping[str, Bounds]:
    """The metadata of a field of that closed set."""
    return {"bounds": Bounds(choices=get_args(kind))}


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """All settings of one address. Times in ms, sizes in bytes; None means not set (no limit, no address).

    ``docs/settings.md`` explains each. In YAML a field is written with hyphens, without ``_ms``.
    """

    # Redelivery.
    redelivery_delay_ms: int = _setting(1000)
    redelivery_delay_multiplier: float = _setting(4.0, above=0.0)
    redelivery_collision_avoidance_factor: float = _setting(0.2, low=0.0, high=1.0)
    max_redelivery_delay_ms: int | None = _setting(3_600_000)
    redelivery_back_off: BackOff = field(default="exponential", metadata=_one_of(BackOff))
    redelivery_delays_ms: tuple[int, ...] = _setting(())
    max_delivery_attempts: int = _setting(10, low=1, endless=True)
    rules: tuple[Rule, ...] = _setting(())
    max_nack_delay_ms: int = _setting(_DAY_MS)
    allow_consumer_policy: bool = _setting(True)
    persist_delivery_count_before_delivery: bool = _setting(False)
    max_redelivery_records: int = _setting(10, low=0, endless=True)
    keep_tracebacks: bool = _setting(True)
    max_traceback_bytes: int = _setting(16 * 1024)
    traceback_redactions: tuple[str, ...] = _setting(())
    message_key_property: str | None = _setting(None)
    signature_properties: tuple[str, ...] = _setting(())

    # Dead letters.
    dead_letter_address: str | None = _setting("DLA")
    without_dead_letter_address: WithoutDeadLetterAddress = field(default="park", metadata=_one_of(WithoutDeadLetterAddress))
    keep_settled_failures: bool = _setting(False)
    auto_create_dead_letter_resources: bool = _setting(True)
    dead_letter_queue_prefix: str = _setting("DLQ.")
    dead_letter_queue_suffix: str = _setting("")
    temporary_dead_letter_queue: str | None = _setting("temporary")
    dead_letters_threshold: int | None = _setting(None, low=1)
    dead_letter_retention_ms: int | None = _setting(None, low=1)
    dead_letter_quota: int | None = _setting(None, low=1)
    dead_letter_archive: bool = _setting(True)

    # Who is notified.
    owner: str | None = _setting(None)
    runbook: str | None = _setting(None)

    # Expiry.
    expiry_address: str | None = _setting(None)
    auto_create_expiry_resources: bool = _setting(False)
    expiry_queue_prefix: str = _setting("EXP.")
    expiry_queue_suffix: str = _setting("")
    message_ttl_ms: int | None = _setting(None)
    min_ttl_ms: int | None = _setting(None)
    max_ttl_ms: int | None = _setting(None)
    no_expiry: bool = _setting(False)
    expires_ms: int | None = _setting(None, low=1)

    # Length.
    max_length: int | None = _setting(None, low=0)
    max_length_bytes: int | None = _setting(None)
    overflow: Overflow = field(default="page", metadata=_one_of(Overflow))
    allow_drop_head_on_dead_letter_queue: bool = _setting(False)
    #: Beside it in the same pattern times to live and lengths may be 0 (``removing``).
    allow_remove_all: bool = _setting(False)

    # Addresses and queues that make and remove themselves.
    auto_create_addresses: bool = _setting(True)
    auto_create_queues: bool = _setting(True)
    auto_delete_queues: bool = _setting(True)
    auto_delete_addresses: bool = _setting(True)
    auto_delete_queues_delay_ms: int = _setting(10_000)
    default_address_routing_type: RoutingType = field(default="anycast", metadata=_one_of(RoutingType))
    default_max_consumers: int = _setting(-1, low=0, endless=True)
    default_exclusive: bool = _setting(False)

    # Messages that are not durable.
    keep_failed: bool = _setting(True)
    keep_at_stop: bool = _setting(True)

    # Consumers.
    consumer_timeout_ms: int = _setting(30 * 60_000, low=1)
    suspect_timeout_ms: int = _setting(5_000, low=1)
    consumer_prefetch: int = _setting(1000, low=0, high=100_000)
    slow_consumer_threshold: float | None = _setting(None, above=0.0)
    slow_consumer_check_period_ms: int = _setting(5_000, low=1_000)
    slow_consumer_age_ms: int | None = _setting(None, low=1)
    slow_consumer_policy: SlowConsumerPolicy = field(default="notify", metadata=_one_of(SlowConsumerPolicy))

    # Not set by anybody, but said by who set the others.
    #: A delay was named for just this address or queue: by its declaration, an AMQP policy, or a pattern other than ``#``.
    delay_meant: bool = False
    #: The same of ``max_delivery_attempts``.
    limit_meant: bool = False
    #: A dead-letter address, or rules, were named for just this one.
    dead_letters_meant: bool = False
    rules_meant: bool = False
    #: Of what AMQP clients return, what waits at all: RabbitMQ's ``x-delayed-retry-type``; None where nobody gave one.
    delayed_retry_type: str | None = None

    #: Follows from the others, and is asked for each message: a queue may become full. There is a length, and at it something else happens
    #: than that the rest is on disk only.
    limited: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        limited = self.overflow != "page" and (self.max_length is not None or self.max_length_bytes is not None)
        object.__setattr__(self, "limited", limited)

    @property
    def limit_in_force(self) -> bool:
        """There is a limit, and it was meant for just this address or queue: also what AMQP clients hold at their goodbye counts."""
        return self.limit_meant and self.max_delivery_attempts >= 0

    @property
    def whose(self) -> str:
        """Behind a queue's name where somebody is notified of it; empty where nobody is named."""
        return whose(self.owner, self.runbook)

    @property
    def dead_letter_addresses(self) -> set[str]:
        """All that dead letters may go to, by rules too."""
        return {each for each in (self.dead_letter_address, *(rule.dead_letter_address for rule in self.rules)) if each}


def whose(owner: str | None, runbook: str | None) -> str:
    """See ``AddressSettings.whose``."""
    named = [f"{name} {value}" for name, value in (("owner", owner), ("runbook", runbook)) if value]
    return f" ({', '.join(named)})" if named else ""


_FIELDS: Final = {each.name: each for each in dataclasses.fields(AddressSettings) if each.metadata}
#: YAML key -> field name, in the order of the class: ``redelivery-delay`` -> ``redelivery_delay_ms``.
FIELD_OF_KEY: Final[Mapping[str, str]] = {name.removesuffix("_ms").replace("_", "-"): name for name in _FIELDS}
#: Field name -> YAML key.
KEY_OF_FIELD: Final[Mapping[str, str]] = {name: key for key, name in FIELD_OF_KEY.items()}
DEFAULTS: Final = AddressSettings()
#: Who names one of these names a schedule of his own ...
SCHEDULE_FIELDS: Final = ("redelivery_delay_ms", "redelivery_delay_multiplier", "redelivery_back_off", "redelivery_delays_ms")
#: ... in which these are so unless he names them too. (A cap or a factor alone changes the default one.)
PLAIN_SCHEDULE: Final[Layer] = {
    "redelivery_delay_multiplier": 1.0,
    "redelivery_collision_avoidance_factor": 0.0,
    "max_redelivery_delay_ms": None,
}
_LIST: Final = "redelivery_delays_ms"
#: What a list of delays cannot stand together with.
FORMULA_FIELDS: Final = frozenset(SCHEDULE_FIELDS) - {_LIST}
#: Of what the broker makes for what died: nobody's queue or address has a name of its own.
_NAMES: Final = frozenset({"dead_letter_address", "expiry_address", "dead_letter_queue_prefix", "expiry_queue_prefix"})
#: Events that nobody reads give way to newer ones.
_OF_EVENTS: Final[Layer] = {
    "dead_letter_address": None,
    "without_dead_letter_address": "drop",
    "expiry_address": None,
    "max_length": 10_000,
    "overflow": "drop-head",
    "default_address_routing_type": "multicast",
}
#: At 0 each of these removes every message.
_REMOVING: Final = ("message_ttl_ms", "max_ttl_ms", "max_length", "max_length_bytes")
#: What a queue may be declared with, by a client or in broker.yaml; a declaration beats the address's settings.
DECLARABLE_SETTINGS: Final = frozenset(
    {
        "consumer_timeout_ms",
        "dead_letter_address",
        "expires_ms",
        "expiry_address",
        "max_delivery_attempts",
        "max_length",
        "max_length_bytes",
        "message_ttl_ms",
        "overflow",
        "redelivery_delay_ms",
    }
)


def read_setting(key: str, value: object) -> tuple[str, Any]:
    """A key (YAML's or the field's name) and a value as written, as ``(field name, value in the field's type and unit)``.

    Reading what was read before changes nothing. Raises SettingError for an unknown key or a value that does not fit.
    """
    name = FIELD_OF_KEY.get(key, key)
    known = _FIELDS.get(name)
    if known is None:
        raise SettingError(key, value, "a setting of addresses", _nearest(key))
    if name == "rules":
        return name, read_rules(value, read_setting)
    read = read_value(KEY_OF_FIELD[name], str(known.type), known.metadata["bounds"], value)
    if name == "traceback_redactions":
        _check_redactions(read)
    if name in _NAMES and read is not None and split(read)[1].startswith(RESERVED):
        raise SettingError(KEY_OF_FIELD[name], read, f"a name that does not begin with {RESERVED}", "those are the broker's own")
    return name, read


def removing(layer: Layer) -> list[str]:
    """The fields of one pattern that would remove every message, and are not said to be meant; such values do not hold."""
    return [] if layer.get("allow_remove_all") else [name for name in _REMOVING if layer.get(name) == 0]


def built_in() -> Values:
    """What holds where nobody has set anything: field name -> value, as plain values."""
    return {name: plain(getattr(DEFAULTS, name)) for name in _FIELDS}


def plain(value: object) -> Any:
    """A setting's value as JSON, YAML and msgpack have it; ``read_setting`` reads it back."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value.as_map() if isinstance(value, Rule) else value


def _schedule_named(layer: Layer) -> str | None:
    """By which of its fields a layer names a schedule; an empty list only takes away that of a wider pattern."""
    return next((name for name in SCHEDULE_FIELDS if layer.get(name, ()) != ()), None)


def _check_redactions(redactions: tuple[str, ...]) -> None:
    for each in redactions:
        try:
            pattern_of(each)
        except PatternError as error:
            raise SettingError("traceback-redactions", each, f"a regular expression ({error})", "") from None


def _nearest(key: str) -> str:
    wanted = key.replace("_", "-")
    if wanted in FIELD_OF_KEY:
        return f"write {wanted}"
    near = [known for known in FIELD_OF_KEY if known.startswith(wanted[:8]) or wanted in known]
    return f"did you mean {', '.join(near[:3])}?" if near else "docs/settings.md lists all of them"


class Origin(NamedTuple):
    """One setting of an address and where its value came from: a pattern, or ``default``.

    A part of a schedule that nobody named comes from the pattern that named the schedule.
    """

    #: YAML key.
    key: str
    #: In the field's unit (ms, bytes).
    value: object
    pattern: str
    #: 1-based line of the configuration file; None for defaults and for layers that came from no file.
    line: int | None
    #: A command set it (``homing settings``); ``line`` is None then.
    by_command: bool = False
    #: ``value`` and ``line`` of the file under the same pattern, which do not hold for that.
    covers: Values | None = None


class AddressSettingsRepository:
    """The layers of settings, and what they come to for an address.

    ``layers`` maps pattern -> {key: value}, keys as in YAML or as field names, values as in YAML or read already.
    ``lines`` maps (pattern, YAML key) -> line. Of two equally specific patterns the later one wins. ``defaults`` hold below all of them.
    Raises SettingError.
    """

    def __init__(
        self,
        layers: Layers,
        lines: Mapping[tuple[str, str], int] | None = None,
        defaults: AddressSettings = DEFAULTS,
    ) -> None:
        self._defaults = defaults
        self._layers: dict[str, Values] = {}
        for pattern, layer in layers.items():
            if problem := pattern_problem(pattern):
                raise SettingError(pattern, pattern, f"a pattern of addresses: {problem}", "")
            self._layers[pattern] = dict(read_setting(key, value) for key, value in layer.items())
        heeded = {
            pattern: {name: layer[name] for name in layer.keys() - gone} if (gone := removing(layer)) else layer
            for pattern, layer in self._layers.items()
        }
        #: With what is so of the broker's own address unless somebody sets it.
        self._in_force = {**heeded, EVENTS: {**_OF_EVENTS, **heeded.get(EVENTS, {})}}
        #: Least specific first; sorted() keeps the order of equals.
        self._ordered = [(pattern, pattern.split(".")) for pattern in sorted(self._in_force, key=specificity)]
        self._lines = dict(lines or {})
        #: By pattern and field: set by command; what that covers.
        self._by_command: dict[tuple[str, str], Values | None] = {}
        self._by_address: dict[str, AddressSettings] = {}
        self._by_patterns: dict[tuple[str, ...], AddressSettings] = {}

    @property
    def layers(self) -> dict[str, Values]:
        """pattern -> {field name: value}, read, what does not hold (``removing``) too; a copy."""
        return {pattern: dict(layer) for pattern, layer in self._layers.items()}

    def values_of(self, field: str) -> set[Any]:
        """What a setting is, by default or in some layer."""
        return {getattr(DEFAULTS, field)} | {layer[field] for layer in self._layers.values() if field in layer}

    def laid_over(self, commanded: Layers) -> AddressSettingsRepository:
        """A copy with what commands set on top: pattern -> {key: value}. Under one pattern their value of a key holds.

        A list of delays among them takes the place of a formula under that pattern, and the other way round. Raises SettingError.
        """
        merged, by_command = self.layers, dict[tuple[str, str], Values | None]()
        for pattern, values in commanded.items():
            own, over = merged.get(pattern, {}), dict(read_setting(key, value) for key, value in values.items())
            for name in over:
                line = self._lines.get((pattern, KEY_OF_FIELD[name]))
                by_command[pattern, name] = {"value": own[name], "line": line} if name in own else None
            gives_way = FORMULA_FIELDS if over.get(_LIST) else {_LIST} if FORMULA_FIELDS & over.keys() else frozenset()
            merged[pattern] = {name: value for name, value in own.items() if name not in gives_way} | over
        made = AddressSettingsRepository(merged, self._lines, self._defaults)
        made._by_command = by_command
        return made

    def resolve(self, address: str, declared: Layer | None = None) -> AddressSettings:
        """What holds for ``address``, or for a queue of it that was ``declared`` with these settings (field name -> value, read).

        Without a declaration the same object for all addresses that the same patterns match; cached.
        """
        if declared:
            return self._layered(self.patterns_of(address), declared)
        found = self._by_address.get(address)
        if found is None:
            if len(self._by_address) >= _CACHED_ADDRESSES:
                self._by_address.clear()
            found = self._by_address[address] = self._settings_of(self.patterns_of(address))
        return found

    def forget(self, address: str) -> None:
        """It is gone, and is looked up anew should it come back."""
        self._by_address.pop(address, None)

    def patterns_of(self, address: str) -> tuple[str, ...]:
        """The patterns that match (or, for a pattern, cover) ``address``, least specific first."""
        words = address.split(".")
        return tuple(pattern for pattern, split in self._ordered if words_match(split, words))

    def _settings_of(self, patterns: tuple[str, ...]) -> AddressSettings:
        found = self._by_patterns.get(patterns)
        if found is None:
            found = self._by_patterns[patterns] = self._layered(patterns, {})
        return found

    def _layered(self, patterns: tuple[str, ...], declared: Layer) -> AddressSettings:
        merged: Values = {}
        meant: Values = {}
        for pattern in patterns:
            merged.update(self._in_force[pattern])
            if pattern != EVERYWHERE:
                meant.update(self._in_force[pattern])
        merged.update(declared)
        meant.update(declared)
        if _schedule_named(merged):
            merged = {**PLAIN_SCHEDULE, **merged}
        return dataclasses.replace(
            self._defaults,
            **merged,
            delay_meant=_schedule_named(meant) is not None,
            limit_meant="max_delivery_attempts" in meant,
            dead_letters_meant=meant.get("dead_letter_address") is not None,
            rules_meant=bool(meant.get("rules")),
        )

    def explain(self, address: str) -> list[Origin]:
        """Every setting of ``address`` with the pattern and line it came from, in the order of the class."""
        patterns = self.patterns_of(address)
        settings = self._settings_of(patterns)
        return [self._origin(name, getattr(settings, name), patterns) for name in _FIELDS]

    def origin(self, address: str, name: str) -> str:
        """The pattern that sets field ``name`` for ``address``, or ``default``."""
        return self._origin(name, None, self.patterns_of(address)).pattern

    def _origin(self, name: str, value: object, patterns: tuple[str, ...]) -> Origin:
        key = KEY_OF_FIELD[name]
        for pattern in reversed(patterns):
            if name in self._in_force[pattern]:
                if name not in self._layers.get(pattern, ()):
                    break  # so of the broker's own address
                if (pattern, name) in self._by_command:
                    return Origin(key, value, pattern, None, True, self._by_command[pattern, name])
                return Origin(key, value, pattern, self._lines.get((pattern, key)))
        for pattern in reversed(patterns) if name in PLAIN_SCHEDULE else ():
            if (named := _schedule_named(self._in_force[pattern])) is not None:
                return Origin(key, value, pattern, self._lines.get((pattern, KEY_OF_FIELD[named])))
        return Origin(key, value, DEFAULT_ORIGIN, None)
