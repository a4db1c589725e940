"""Dead-letter and expiry resources: their names, the selector that keeps each source apart, and hops.

Artemis's rules (``DLQ.`` + address, one multicast queue per source on the dead-letter address), fixed: every hop is kept, not only the
last. Pure: the dead-letter office acts on what is said here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import product
from typing import Final, NamedTuple

from homing.journal.contract import Death, HopDetail

from .amqp.vhost import split
from .message import SHARED_QUEUE, Hop, MessageReference
from .settings.address_settings import AddressSettings, AddressSettingsRepository

#: Why a message left its queue without success.
DELIVERY_LIMIT: Final = "delivery_limit"
POISON: Final = "poison"
NOT_RETRYABLE: Final = "not-retryable"
EXPIRED: Final = "expired"
MAX_LENGTH: Final = "maxlen"
REJECTED: Final = "rejected"
#: All of these.
REASONS: Final[tuple[Death, ...]] = (DELIVERY_LIMIT, POISON, NOT_RETRYABLE, EXPIRED, MAX_LENGTH, REJECTED)
#: It was deleted by hand, alone: that is recorded, whatever else is not.
DELETED: Final = "deleted"


#: Properties that are the same for all that are dead-lettered together; a way that depends on nothing else is the same for all.
SAID_BY_THE_DEATH: Final = frozenset({"_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_ROUTING_TYPE", "_HOMING_REASON", SHARED_QUEUE})
#: Why, and the settings that give such a message's queue its name.
_NAMED_BY: Final[tuple[tuple[Death, str, str], ...]] = (
    (DELIVERY_LIMIT, "dead_letter_queue_prefix", "dead_letter_queue_suffix"),
    (EXPIRED, "expiry_queue_prefix", "expiry_queue_suffix"),
)
#: The longest name that AMQP can say, in bytes; and what stands in a made one for the end of a source that is too long for that.
_LONGEST_NAME: Final = 255
_SHORTENED: Final = re.compile("~[0-9a-f]{16}")
#: What UTF-8 takes for a character: one that is cut in two is left out.
_WIDEST: Final = 4


class Target(NamedTuple):
    """Where a dead message goes. ``queue`` is the queue to create there, None when none is to be made; ``source`` the address that it is
    named after. ``full_name``: what the queue would be called if names had no end; one that has been made so takes what comes.
    """

    address: str
    queue: str | None
    source: str
    full_name: str | None = None


def _made_name(prefix: str, source: str, suffix: str) -> str:
    """Prefix, source and suffix, where AMQP can name that; else the source is cut, and what it was is told by a hash of it."""
    room = _LONGEST_NAME - len((prefix + suffix).encode())
    if len(source.encode()) <= room:
        return f"{prefix}{source}{suffix}"
    mark = "~" + sha256(source.encode()).hexdigest()[:16]
    kept = source.encode()[: max(0, room - len(mark))].decode(errors="ignore")
    return f"{prefix}{kept}{mark}{suffix}"


def is_shortened(queue: str) -> bool:
    """Whether it is the name that was made of one too long."""
    return _SHORTENED.search(queue) is not None and len(queue.encode()) > _LONGEST_NAME - _WIDEST


def shared_target(settings: AddressSettings, source_address: str, reason: Death) -> Target | None:
    """Where dead letters of temporary queues go, of which many come and go: one queue for all. None: it is not wanted."""
    name = settings.temporary_dead_letter_queue
    return target(settings, split(source_address)[0] + name, reason) if name else None


def target(settings: AddressSettings, source_address: str, reason: Death) -> Target | None:
    """Where messages of ``source_address`` go that ended for ``reason``; None: nowhere.

    They stay in their virtual host. Overflow is no failure: what had to make room goes only where somebody meant it to.
    """
    if reason == MAX_LENGTH and not settings.dead_letters_meant:
        return None
    if reason == EXPIRED:
        address, create = settings.expiry_address, settings.auto_create_expiry_resources
        prefix, suffix = settings.expiry_queue_prefix, settings.expiry_queue_suffix
    else:
        address, create = settings.dead_letter_address, settings.auto_create_dead_letter_resources
        prefix, suffix = settings.dead_letter_queue_prefix, settings.dead_letter_queue_suffix
    if not address:
        return None
    host, source = split(source_address)
    if not create or source == address:
        return Target(host + address, None, source_address)
    return Target(host + address, host + _made_name(prefix, source, suffix), source_address, f"{host}{prefix}{source}{suffix}")


def targets_named(queue: str, settings: AddressSettingsRepository, addresses: Iterable[str] = ()) -> Iterator[Target]:
    """Where dead letters and expired messages go for which a queue of this name would be made; of several sources that it could be named
    after the one first that more of the name speaks for. A shortened name is that of one of these addresses, or of none.
    """
    for reason, *fields in _NAMED_BY:
        for prefix, suffix in sorted(product(*map(settings.values_of, fields)), key=lambda pair: -len(pair[0] + pair[1])):
            for source in _sources(queue, prefix, suffix, addresses):
                found = target(settings.resolve(source), source, reason)
                if found is not None and found.queue == queue:
                    yield found


def _sources(queue: str, prefix: str, suffix: str, addresses: Iterable[str]) -> list[str]:
    """What it may be named after."""
    source = queue[len(prefix) : len(queue) - len(suffix)]
    if not source or queue != f"{prefix}{source}{suffix}":
        return []
    mark = _SHORTENED.search(source)
    kept = source[: mark.start()] if mark is not None and is_shortened(queue) else None
    return [source] if kept is None else [address for address in addresses if address.startswith(kept)]


def origin_selector(source_address: str, queue: str, shared: bool) -> str:
    """The selector of an auto-created dead-letter queue; ``shared``: also for those of temporary queues."""
    own = f"_AMQ_ORIG_ADDRESS = {_quoted(source_address)}"
    return f"{SHARED_QUEUE} = {_quoted(queue)} OR {own}" if shared else own


def _quoted(text: str) -> str:
    """Quotes are doubled as SQL wants them."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def hop(reference: MessageReference, reason: Death, now_ms: int, shared_queue: str | None = None) -> Hop:
    """One step of a message's way, as it is stored, shown and exported; ``shared_queue``: of temporary queues, where it leads."""
    queue = reference.queue
    detail: HopDetail = {
        "reason": reason,
        "queue": queue.name,
        "address": queue.address,
        "routing_type": queue.routing_type,
        "at_ms": now_ms,
        "attempts": reference.failed,
        "delivery_count": reference.delivery_count,
        "expires_at_ms": reference.expires_at_ms,
    }
    if shared_queue is not None:
        detail["shared_queue"] = shared_queue
    return Hop(reference.sequence, detail)


def hop_like(hop: Hop, reference: MessageReference) -> Hop:
    """The hop of another message, which left the queue for that reason at that moment, too."""
    detail, failed, count, expires_at_ms = hop.detail, reference.failed, reference.delivery_count, reference.expires_at_ms
    if failed != detail["attempts"] or count != detail["delivery_count"] or expires_at_ms != detail["expires_at_ms"]:
        detail = {**detail, "attempts": failed, "delivery_count": count, "expires_at_ms": expires_at_ms}
    return Hop(reference.sequence, detail)
