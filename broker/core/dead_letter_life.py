"""How long dead letters stay, and how many of one source: what is too much, by the settings of where they came from. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from .settings.address_settings import AddressSettings, AddressSettingsRepository

#: Why a dead letter was removed; an outcome's reason.
RETENTION: Final = "dead-letter-retention"
QUOTA: Final = "dead-letter-quota"


class DeadLetters(Protocol):
    """Those in one queue that share a cause (journal.contract)."""

    @property
    def queue_id(self) -> int: ...

    @property
    def source(self) -> str | None: ...

    @property
    def messages(self) -> int: ...

    @property
    def oldest_ms(self) -> int: ...


class Excess(NamedTuple):
    """Dead letters in one queue that came from another: those that came before ``until_ms``, or the ``number`` oldest."""

    queue_id: int
    source: str
    why: str
    archived: bool
    until_ms: int | None = None
    number: int | None = None


def limits_anything(settings: AddressSettingsRepository) -> bool:
    """Whether there may be an excess at all."""
    return any(settings.values_of(name) != {None} for name in ("dead_letter_retention_ms", "dead_letter_quota"))


def excess(dead: Iterable[DeadLetters], settings_of: Callable[[str], AddressSettings], now_ms: int) -> Iterator[Excess]:
    """What has no source stays."""
    by_source: dict[tuple[int, str], list[DeadLetters]] = {}
    for each in dead:
        if each.source:
            by_source.setdefault((each.queue_id, each.source), []).append(each)
    for (queue_id, source), parts in by_source.items():
        settings, number = settings_of(source), sum(each.messages for each in parts)
        retention_ms, quota, archived = settings.dead_letter_retention_ms, settings.dead_letter_quota, settings.dead_letter_archive
        if retention_ms is not None and min(each.oldest_ms for each in parts) < now_ms - retention_ms:
            yield Excess(queue_id, source, RETENTION, archived, until_ms=now_ms - retention_ms)
        elif quota is not None and number > quota:
            yield Excess(queue_id, source, QUOTA, archived, number=number - quota)
