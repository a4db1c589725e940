"""Whether a message that fails lives until it is tried again: times to live beside delays. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .redelivery import Row, schedule
from .settings.address_settings import KEY_OF_FIELD, AddressSettings
from .settings.units import format_duration_ms

_TIMES_TO_LIVE = ("message_ttl_ms", "max_ttl_ms")
#: Attempts that are looked at.
_SHOWN = 12


def longest_ms(settings: AddressSettings) -> int | None:
    """How long a message lives at most, whatever its sender wished; None: for ever. As references.expires_at bounds it."""
    limits = [limit for limit in (settings.message_ttl_ms, settings.max_ttl_ms) if limit is not None]
    if settings.no_expiry or not limits:
        return None
    longest = max(settings.message_ttl_ms or 0, settings.min_ttl_ms or 0) if settings.message_ttl_ms is not None else min(limits)
    return longest if settings.max_ttl_ms is None else min(longest, settings.max_ttl_ms)


def never_tried(settings: AddressSettings, rows: Iterable[Row]) -> int | None:
    """The first of these attempts that a message which always fails does not live to see."""
    longest = longest_ms(settings)
    if longest is None:
        return None
    return next((row.attempt for row in rows if row.attempt > 1 and row.min_total_ms >= longest), None)


def expiry_warning(settings: AddressSettings, most: int = _SHOWN) -> str | None:
    """A sentence where a message expires before one of the first ``most`` attempts and is gone without a dead letter; else None."""
    if settings.expiry_address is not None:
        return None
    attempt, longest = never_tried(settings, schedule(settings, None, most)), longest_ms(settings)
    if attempt is None or longest is None:
        return None
    named = [name for name in _TIMES_TO_LIVE if getattr(settings, name) is not None]
    keys = " and ".join(f"{KEY_OF_FIELD[name]}: {format_duration_ms(getattr(settings, name))}" for name in named)
    times = "once" if attempt == 2 else f"{attempt - 1} times"
    return f"{keys} ends before attempt {attempt}: what failed {times} expires, and leaves no dead letter"
