"""Options and where they may come from; the nearer one wins.

From far to near: ``connect(...)`` arguments, the connection string, arguments of ``producer()``/``consumer()``, the destination
(``orders?prefetch=10``). Names in strings may be written ``camelCase`` (as ActiveMQ does) or ``snake_case``; an unknown one is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl

from .errors import UsageError
from .policy import POLICY_FIELDS, RedeliveryPolicy
from .validation import MAX_DURATION_MS

CONNECTION: Final = "connection"
CONSUMER: Final = "consumer"
PRODUCER: Final = "producer"

DAY_MS: Final = 24 * 3600 * 1000


@cache
def installed_version() -> str:
    """Of this client; empty where it runs in a work tree."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("homing")
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """What belongs to the connection alone. Times in milliseconds."""

    heartbeat_ms: int = 10_000
    connect_timeout_ms: int = 10_000
    close_timeout_ms: int = 10_000
    client_id: str | None = None
    product: str = "homing-python"
    #: The broker keeps them with each failure. ``tell_host`` False: neither is sent.
    program_version: str | None = None
    tell_host: bool = True
    #: With TLS, files in PEM: who may issue the broker's certificate, if not those that the system trusts; one's own certificate and its
    #: key, which stands in the same file where it is not named.
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """``prefetch`` 0 pulls one message at a time. ``check_expiry``: a message that expired while it waited here is not handed out.
    ``consumer_priority``: of those of a queue that want messages the higher ones are served first."""

    prefetch: int = 1000
    optimize_acknowledge: bool = False
    check_expiry: bool = True
    selector: str | None = None
    consumer_priority: int = 0


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """``max_unconfirmed``: how many messages may be out before ``drain()`` waits; the rest are defaults of ``send``."""

    max_unconfirmed: int = 1000
    priority: int = 4
    ttl_ms: int = 0
    durable: bool = True


@dataclass(frozen=True, slots=True)
class _Option:
    kind: type
    low: int = 0
    high: int = 0


_KINDS: Final[dict[str, _Option]] = {
    "heartbeat_ms": _Option(int, 0, DAY_MS),
    "connect_timeout_ms": _Option(int, 1, DAY_MS),
    "close_timeout_ms": _Option(int, 0, DAY_MS),
    "client_id": _Option(str),
    "product": _Option(str),
    "program_version": _Option(str, 0, 256),
    "tell_host": _Option(bool),
    "cafile": _Option(str),
    "certfile": _Option(str),
    "keyfile": _Option(str),
    "prefetch": _Option(int, 0, 100_000),
    "optimize_acknowledge": _Option(bool),
    "check_expiry": _Option(bool),
    "selector": _Option(str, 0, 4096),
    "consumer_priority": _Option(int, -(1 << 31), (1 << 31) - 1),
    "max_unconfirmed": _Option(int, 1, 10_000_000),
    "priority": _Option(int, 0, 9),
    "ttl_ms": _Option(int, 0, MAX_DURATION_MS),
    "durable": _Option(bool),
}
_OWNERS: Final = {CONNECTION: ConnectionOptions, CONSUMER: ConsumerOptions, PRODUCER: ProducerOptions}
_POLICY: Final = "redelivery_policy"
#: One by pattern, in a connection string: ActiveMQ's name of it, and that of the argument.
_OF_PATTERN: Final = re.compile(r"(?:jms\.)?(?:redelivery_?polic(?:y_?map|ies))\.(.+)\.(\w+)", re.IGNORECASE)
_POLICIES: Final = "redelivery_policies"
#: What ActiveMQ calls ``prefetch``.
_PREFETCH: Final = frozenset({"prefetch_size", "prefetch_policy.all", "prefetch_policy.queue_prefetch"})
_POLICY_KINDS: Final[dict[str, type]] = {field.name: type(field.default) for field in fields(RedeliveryPolicy)}

Layer = Mapping[str, Any]


def names_of(*places: str) -> frozenset[str]:
    return frozenset(field.name for place in places for field in fields(_OWNERS[place]))


def _fault(message: str, fix: str, code: str = "invalid-option") -> UsageError:
    return UsageError(code, message, fix)


def given(**values: Any) -> dict[str, Any]:
    """One layer from code: what is None was not given. Checked."""
    layer = {name: value for name, value in values.items() if value is not None}
    for name, value in layer.items():
        if name == _POLICY:
            if not isinstance(value, RedeliveryPolicy):
                raise _fault(f"redelivery_policy is {value!r}", "give a client.RedeliveryPolicy")
        else:
            _check(name, value)
    return layer


def _check(name: str, value: object) -> None:
    option = _KINDS[name]
    if type(value) is not option.kind:
        raise _fault(f"the option {name} is {value!r}", f"give it as {option.kind.__name__}")
    if isinstance(value, int) and option.kind is int and not option.low <= value <= option.high:
        raise _fault(f"the option {name} is {value}", f"give a number from {option.low} to {option.high}")
    if isinstance(value, str) and (not value or (option.high and len(value) > option.high)):
        raise _fault(f"the option {name} is empty or too long", f"give 1 to {option.high or 'any number of'} characters")


def parse(query: str, *places: str) -> dict[str, Any]:
    """One layer from the part of a string behind ``?``. Policy fields come as ``redelivery_policy.<field>`` keys,
    those of a pattern as ``redelivery_policies.<pattern>.<field>``.
    """
    known = names_of(*places)
    layer: dict[str, Any] = {}
    if not query:
        return layer
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError as error:
        raise _fault(f"the options {query!r} cannot be read ({error})", "write name=value&name=value, percent-encoded") from None
    for written, text in pairs:
        of_pattern = _OF_PATTERN.fullmatch(written) if CONNECTION in places else None
        if of_pattern is None:
            name = _canonical(written, known)
        else:
            # ActiveMQ writes > for what is # here.
            pattern, field = of_pattern[1].replace(">", "#"), _canonical(f"{_POLICY}.{of_pattern[2]}", known)
            name = field.replace(_POLICY, f"{_POLICIES}.{pattern}", 1)
        if name in layer:
            raise _fault(f"the option {written} is given twice", "give it once")
        kind = _POLICY_KINDS[name.rpartition(".")[2]] if "." in name else _KINDS[name].kind
        layer[name] = _read(written, text, kind)
        if "." not in name:
            _check(name, layer[name])
    return layer


def _canonical(written: str, known: Iterable[str]) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", written).replace("-", "_").lower()
    # As ActiveMQ's connection strings and destinations have it.
    name = name.removeprefix("jms.")
    if name.startswith(f"{CONSUMER}."):
        name, known = name.removeprefix(f"{CONSUMER}."), names_of(CONSUMER).intersection(known)
        name = "consumer_priority" if name == "priority" else name
    name = "prefetch" if name in _PREFETCH else name
    head, dot, field = name.partition(".")
    if dot and head == _POLICY:
        if field not in POLICY_FIELDS and f"{field}_ms" in POLICY_FIELDS:
            field += "_ms"
        if field in POLICY_FIELDS:
            return f"{_POLICY}.{field}"
    elif name in known:
        return name
    from difflib import get_close_matches

    near = get_close_matches(name, [*known, *(f"{_POLICY}.{each}" for each in POLICY_FIELDS)], n=1)
    choices = ", ".join(sorted(known))
    fix = f"did you mean {near[0]}?" if near else f"known ones: {choices}, redeliveryPolicy.<field>; see docs/client.md"
    raise _fault(f"there is no option {written!r} here", fix, "unknown-option")


def _read(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise _fault(f"the option {name} is {text!r}", "write true or false")
    if kind is str:
        return text
    try:
        value = kind(text)
    except ValueError:
        raise _fault(f"the option {name} is {text!r}", "write a number" if kind is float else "write a whole number") from None
    if kind is float and not math.isfinite(value):
        raise _fault(f"the option {name} is {text!r}", "write a finite number")
    return value


def connection_options(layers: Iterable[Layer]) -> ConnectionOptions:
    return ConnectionOptions(**_merged(layers, CONNECTION))


def consumer_options(layers: Iterable[Layer]) -> ConsumerOptions:
    return ConsumerOptions(**_merged(layers, CONSUMER))


def producer_options(layers: Iterable[Layer]) -> ProducerOptions:
    return ProducerOptions(**_merged(layers, PRODUCER))


def _merged(layers: Iterable[Layer], place: str) -> dict[str, Any]:
    wanted = names_of(place)
    return {name: value for layer in layers for name, value in layer.items() if name in wanted}


def policy_of(layers: Iterable[Layer], fallback: RedeliveryPolicy | None = None) -> RedeliveryPolicy | None:
    """The redelivery policy the layers ask for, or None. A nearer single field overrides that field of a farther policy.

    ``fallback`` is what single fields override when no layer brings a whole policy.
    """
    policy: RedeliveryPolicy | None = None
    for layer in layers:
        policy = layer.get(_POLICY, policy)
        single = {name.partition(".")[2]: value for name, value in layer.items() if name.startswith(f"{_POLICY}.")}
        if single:
            policy = replace(policy or fallback or RedeliveryPolicy(), **single)
    return policy


def policies_of(layers: Iterable[Layer], given: Mapping[str, RedeliveryPolicy]) -> dict[str, RedeliveryPolicy]:
    """By pattern: those given, with what the layers say of single fields. A pattern that none was given for begins with the layers' general
    policy.
    """
    layers = tuple(layers)
    policies, general = dict(given), policy_of(layers) or RedeliveryPolicy()
    for name, value in [item for layer in layers for item in layer.items() if item[0].startswith(f"{_POLICIES}.")]:
        pattern, _, field = name.removeprefix(f"{_POLICIES}.").rpartition(".")
        policies[pattern] = replace(policies.get(pattern, general), **{field: value})
    return policies
