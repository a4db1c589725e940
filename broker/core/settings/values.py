"""Values of settings, from what a file or a client wrote to the field's own type and unit. Pure."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from .units import DURATION_EXAMPLES, SIZE_EXAMPLES, parse_duration_ms, parse_size_bytes

_INT64_MAX: Final = 2**63 - 1
#: Characters of a value that an error shows.
_MOST_SHOWN: Final = 60


class SettingError(ValueError):
    """A setting that is not known, or a value that does not fit it. ``expected`` is what would have been right, ``fix`` what to do."""

    code = "config-invalid"

    def __init__(self, key: str, value: object, expected: str, fix: str) -> None:
        super().__init__(f"{key}: got {_shown(value)}, expected {expected}" + (f"; {fix}" if fix else ""))
        self.key = key
        self.value = value
        self.expected = expected
        self.fix = fix


def _shown(value: object) -> str:
    """What is longer than a line is known by how it begins."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class Bounds(NamedTuple):
    """What a value may be, beyond its type."""

    low: float | None = None
    above: float | None = None
    high: float | None = None
    #: -1 stands for "without end".
    endless: bool = False
    choices: tuple[str, ...] = ()


def read_value(key: str, type_text: str, bounds: Bounds, value: Any) -> Any:
    """``value`` in the type that the annotation ``type_text`` names. Which unit follows from the annotation and the key.

    Raises SettingError. ``null`` means "not set" where the field may be None.
    """
    optional = type_text.endswith(" | None")
    if value is None and optional:
        return None
    plain = type_text.removesuffix(" | None")
    if plain == "bool":
        return _read_bool(key, value)
    if plain == "str" or bounds.choices:
        return _read_text(key, bounds, value, optional)
    if plain == "float":
        return _read_float(key, bounds, value)
    if plain.startswith("tuple"):
        return _read_list(key, plain, value)
    if key in _PLAIN_NUMBERS:
        return _read_int(key, bounds, value)
    return _read_quantity(key, bounds, value, optional)


#: Integers that are neither a duration nor a size.
_PLAIN_NUMBERS: Final = frozenset(
    {
        *("max-delivery-attempts", "max-redelivery-records", "max-length", "default-max-consumers", "consumer-prefetch"),
        *("dead-letter-quota", "dead-letters-threshold"),
    }
)


def _read_bool(key: str, value: object) -> bool:
    if type(value) is not bool:
        raise SettingError(key, value, "true or false", "")
    return value


def _read_text(key: str, bounds: Bounds, value: object, optional: bool) -> str:
    if bounds.choices and value not in bounds.choices:
        raise SettingError(key, value, "one of " + ", ".join(bounds.choices), "")
    if type(value) is not str:
        raise SettingError(key, value, "a text", "put it in quotes")
    if optional and not value:
        raise SettingError(key, value, "a name, or null for none", "")
    if any(ord(each) < 32 or 0xD800 <= ord(each) < 0xE000 for each in value):
        raise SettingError(key, value, "a text without control characters", "")
    return value


def _read_float(key: str, bounds: Bounds, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise SettingError(key, value, "a finite number", "")
    _check_bounds(key, bounds, value)
    return float(value)


def _read_int(key: str, bounds: Bounds, value: object) -> int:
    if type(value) is not int or abs(value) > _INT64_MAX:
        raise SettingError(key, value, "a whole number" + (", -1 for without end" if bounds.endless else ""), "")
    if not (bounds.endless and value == -1):
        _check_bounds(key, bounds, value)
    return value


def _check_bounds(key: str, bounds: Bounds, value: float) -> None:
    end = ", or -1 for without end" if bounds.endless else ""
    if bounds.low is not None and value < bounds.low:
        raise SettingError(key, value, f"at least {bounds.low:g}{end}", "")
    if bounds.above is not None and value <= bounds.above:
        raise SettingError(key, value, f"more than {bounds.above:g}", "")
    if bounds.high is not None and value > bounds.high:
        raise SettingError(key, value, f"at most {bounds.high:g}", "")


def _read_quantity(key: str, bounds: Bounds, value: object, optional: bool) -> int:
    size = key.endswith("-bytes")
    expected = (SIZE_EXAMPLES if size else DURATION_EXAMPLES) + (", or null for none" if optional else "")
    try:
        read = parse_size_bytes(value) if size else parse_duration_ms(value)
    except ValueError:
        raise SettingError(key, value, expected, "") from None
    _check_bounds(key, bounds, read)
    return read


def _read_list(key: str, plain: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise SettingError(key, value, "a list in brackets", f"write [{value}]")
    if plain.startswith("tuple[int"):
        return tuple(_read_quantity(key, Bounds(), each, False) for each in value)
    return tuple(_read_text(key, Bounds(), each, False) for each in value)
