"""Policies, as RabbitMQ has them: settings for queues and exchanges by a regular expression over their names. Pure.

The pattern is searched for in the name, as with RabbitMQ; of those that match, the one of the highest priority holds, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ..patterns import Pattern, PatternError, TooSlow, pattern_of
from ..settings.units import parse_duration_ms, parse_size_bytes

#: RabbitMQ's keys, each checked by its own rule.
Definition: TypeAlias = Mapping[str, Any]
QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
ALL: Final = "all"
OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
#: Which of the messages that come back wait; the first is none.
RETRIES: Final = ("disabled", "all", "failed", "returned")
DELAYED_RETRY_KEYS: Final = ("delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "delayed-retry-multiplier")
_APPLY_TO: Final = (QUEUES, EXCHANGES, ALL)
_MAX_NAME: Final = 255
_MAX_PATTERN: Final = 256
_MOST: Final = (1 << 62) - 1
_MAX_PRIORITY: Final = (1 << 31) - 1


class PolicyError(ValueError):
    """What a policy cannot say: a sentence, and what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    virtual_host: str
    pattern: Pattern
    apply_to: str
    priority: int
    #: RabbitMQ's keys; times in ms, sizes in bytes.
    definition: Definition

    def matches(self, virtual_host: str, name: str, kind: str) -> bool:
        """Whether it may hold for the queue or exchange (``kind``) of that name. Raises TooSlow."""
        return self.virtual_host == virtual_host and self.apply_to in (kind, ALL) and self.pattern.search(name)

    def before(self, other: Policy | None) -> bool:
        """Whether this one holds where both match."""
        return other is None or (-self.priority, self.name) < (-other.priority, other.name)


def read_policy(
    name: object, pattern: object, definition: object, apply_to: object = ALL, priority: object = 0, virtual_host: str = "/"
) -> Policy:
    """What was written, read and checked. Raises PolicyError."""
    named = read_name(name)
    if apply_to not in _APPLY_TO:
        raise PolicyError(f"apply-to cannot be {apply_to!r:.80}", f"use {', '.join(_APPLY_TO)}")
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _MAX_PRIORITY:
        raise PolicyError(f"priority cannot be {priority!r:.80}", "use a whole number")
    return Policy(named, virtual_host, read_pattern(pattern), str(apply_to), priority, _definition(definition))


def read_name(written: object) -> str:
    """Raises PolicyError."""
    if not isinstance(written, str) or not 0 < len(written) <= _MAX_NAME or not written.isprintable():
        raise PolicyError(f"{written!r:.80} cannot name a policy", f"use 1 to {_MAX_NAME} printable characters")
    return written


def best(policies: Iterable[Policy], virtual_host: str, name: str, kind: str, last: str | None = None) -> Policy | None:
    """The one that holds for the queue or exchange (``kind``) of that name; of equal priorities the first by name. One whose pattern runs
    out of time on it (``Pattern.slow``) holds only where it is called ``last``."""
    found: Policy | None = None
    for policy in policies:
        if not policy.before(found):
            continue
        try:
            matches = policy.matches(virtual_host, name, kind)
        except TooSlow:
            matches = policy.name == last and policy.virtual_host == virtual_host
        if matches:
            found = policy
    return found


# -- definitions ---------------------------------------------------------------------------------------------------------


def _definition(written: object) -> dict[str, Any]:
    if not isinstance(written, Mapping) or not written:
        raise PolicyError("a policy needs a definition: a map of at least one key", 'write {"message-ttl": 60000}')
    read: dict[str, Any] = {}
    for key, value in written.items():
        reader = _KEYS.get(key)
        if reader is None:
            raise PolicyError(f"{key!r:.80} is not a key of policies here", f"keys: {', '.join(_KEYS)}")
        try:
            read[key] = reader(value)
        except ValueError as error:
            raise PolicyError(f"{key} cannot be {value!r:.80}: {error}", "see docs/interoperability.md, policies") from None
    return read


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > 255:
        raise ValueError("a name of at most 255 bytes is expected")
    return value


def _number(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise ValueError(f"a whole number from {least} is expected")
        return value

    return read


def _duration(least_ms: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        return _number(least_ms)(parse_duration_ms(value))

    return read


def _size(value: object) -> int:
    return _number(0)(parse_size_bytes(value))


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)} is expected")
        return str(value)

    return read


_KEYS: Final[Mapping[str, Callable[[object], Any]]] = {
    "dead-letter-exchange": _text,
    "dead-letter-routing-key": _text,
    "message-ttl": _duration(0),
    "expires": _duration(1),
    "max-length": _number(0),
    "max-length-bytes": _size,
    "consumer-timeout": _duration(1),
    "overflow": _one_of(OVERFLOWS),
    "delivery-limit": _number(-1),
    "delayed-retry-type": _one_of(RETRIES),
    "delayed-retry-min": _duration(1),
    "delayed-retry-max": _duration(1),
    "delayed-retry-multiplier": _number(1),
    "alternate-exchange": _text,
}


#: Keys whose values are ms.
DURATIONS: Final = frozenset({"message-ttl", "expires", "consumer-timeout", "delayed-retry-min", "delayed-retry-max"})


# -- patterns ------------------------------------------------------------------------------------------------------------


def read_pattern(written: object) -> Pattern:
    """Raises PolicyError."""
    if not isinstance(written, str) or len(written) > _MAX_PATTERN or not _is_text(written):
        raise PolicyError("a pattern is a regular expression", f"use at most {_MAX_PATTERN} characters")
    try:
        return pattern_of(written)
    except PatternError as error:
        raise PolicyError(f"the pattern {written!r:.80} cannot be read: {error}", "write a regular expression") from None


def _is_text(written: str) -> bool:
    """No half of a character, which cannot be stored."""
    try:
        written.encode()
    except UnicodeEncodeError:
        return False
    return True
