"""RabbitMQ's account of deaths, over our hops: one entry for each {queue, reason}, counted and newest first; and what is a cycle.

A death through a dead-letter exchange is a hop like any other, with more on it: ``exchange`` and ``routing_keys`` (how the message had come
in), ``to_exchange``, ``to_keys`` and ``to_hidden`` (how it went on), ``count`` and ``first_ms`` of its pair, and ``keys_replaced``.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from homing.journal.contract import HopDetail

from ..dead_letter import NOT_RETRYABLE, POISON, REJECTED
from ..message import Hop
from .keys import kept, key_of
from .origin import Way
from .vhost import local_name

_WAY: Final = ("to_exchange", "to_keys", "to_hidden")
#: Our reasons in RabbitMQ's four words.
_REASONS: Final = {POISON: REJECTED, NOT_RETRYABLE: REJECTED}


class Death(NamedTuple):
    """One entry of ``x-death``. ``time_ms``: when the first of them was."""

    queue: str
    reason: str
    times: int
    exchange: str
    routing_keys: list[str]
    time_ms: int


def without_way(hops: list[Hop]) -> list[Hop]:
    """The same, but not how it went on: of a message that came back by hand, under the keys that it was published with."""
    if not any("to_exchange" in hop.detail for hop in hops):
        return hops
    return [Hop(hop.sequence, cast(HopDetail, {key: value for key, value in hop.detail.items() if key not in _WAY})) for hop in hops]


def reason_of(hop: Hop) -> str:
    reason = str(hop.detail["reason"])
    return _REASONS.get(reason, reason)


def deaths(hops: list[Hop]) -> list[Death]:
    """The entries, the latest first. Queues have the names that the clients of their virtual host know."""
    found: dict[tuple[str, str], Death] = {}
    for hop in hops:
        detail = hop.detail
        pair = local_name(detail["queue"]), reason_of(hop)
        known = found.get(pair)
        if known is None:
            found[pair] = Death(
                *pair,
                detail.get("count", 1),
                detail.get("exchange", ""),
                list(map(key_of, detail.get("routing_keys") or (local_name(detail["address"]),))),
                int(detail.get("first_ms") or detail["at_ms"]),
            )
        elif "count" not in detail:
            found[pair] = known._replace(times=known.times + 1, time_ms=min(known.time_ms, detail["at_ms"]))
    return list(found.values())


def through_exchange(hop: Hop, before: list[Hop] | None, came: Way, to: Way, keys_replaced: bool) -> Hop:
    """The hop with what x-death says of it. ``before``: the hops until now."""
    detail: HopDetail = {
        **hop.detail,
        "exchange": came.exchange,
        "routing_keys": kept(came.keys),
        "to_exchange": to.exchange,
        "to_keys": kept(to.keys),
        "count": 1,
        "first_ms": hop.detail["at_ms"],
    }
    if to.hidden:
        detail["to_hidden"] = kept(to.hidden)
    if keys_replaced:
        detail["keys_replaced"] = True
    reason = reason_of(hop)
    for death in deaths(before or []):
        if (death.queue, death.reason) == (local_name(detail["queue"]), reason):
            detail["count"] = death.times + 1
            detail["first_ms"] = death.time_ms
    return Hop(hop.sequence, detail)


def bounded(hops: list[Hop], most: int) -> list[Hop]:
    """At most ``most`` hops where that loses nothing but repetitions: the newest of each pair and the very first one stay."""
    if len(hops) <= most:
        return hops
    excess = len(hops) - most
    newest: set[tuple[str, str]] = set()
    repeated: list[int] = []
    for number, hop in enumerate(hops[:-1]):
        pair = str(hop.detail["queue"]), reason_of(hop)
        if pair in newest and "count" in hop.detail:
            repeated.append(number)
        newest.add(pair)
    gone = set(repeated[-excess:])
    return [hop for number, hop in enumerate(hops) if number not in gone]


def is_cycle(queue: str, hops: list[Hop]) -> bool:
    """RabbitMQ's rule: the message was in ``queue`` before, and nobody rejected it since. ``hops``: this death included."""
    if reason_of(hops[0]) == REJECTED:
        return False
    since: list[Hop] = []
    for hop in hops:
        since.append(hop)
        if hop.detail["queue"] == queue:
            return all(reason_of(each) != REJECTED for each in since)
    return False
