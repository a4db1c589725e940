"""What becomes of a message that always fails, by the settings that hold: its attempts, how long it waits, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ..answers.administration import Explained as ExplainedAnswer
from ..answers.parts import Properties
from ..core.amqp.vhost import split
from ..core.redelivery import attempts_allowed, lifetime_ms, lifetime_warning, schedule
from ..core.settings.address_settings import AddressSettings, Origin
from ..core.settings.rules import Action, ReportedFailure, Rule
from ..core.settings.units import counted
from ..core.time_to_live import expiry_warning, never_tried
from .amounts import span
from .prospects import terms_for

#: How many attempts are shown where there is no end.
SHOWN_ATTEMPTS: Final = 12
MOST_ATTEMPTS: Final = 1000


class Explained(NamedTuple):
    """What the broker's call answers, or as much of it as a file can tell."""

    address: str
    origins: list[Origin]
    #: Of a running broker: the address's queues; None where it has no such address.
    queues: list[str] | None = None
    #: Of the queue of that name, where it has one: where its dead letters go instead of a dead-letter address.
    dead_letter_exchange: str | None = None
    #: It was declared over AMQP, and no delay is meant for what AMQP clients return.
    amqp_returns_at_once: bool = False
    #: Where its dead letters end, as far as that is known before.
    dead_letter_queues: Sequence[str] = ()


class Attempts(NamedTuple):
    """What becomes of a message that always fails."""

    settings: AddressSettings
    #: None: without end.
    allowed: int | None
    rows: list[Any]
    #: At least and at most, in ms; None: without end.
    life: tuple[int, int] | None
    warning: str | None
    #: The one that fits the failure that was asked about.
    rule: Rule | None = None
    #: The first attempt that it does not live to see; None: it lives long enough for those that are shown.
    expired_by: int | None = None


def answered(value: ExplainedAnswer) -> Explained:
    """``value``: what the broker answers to ``explain``."""
    origins = [Origin(**each) for each in value["settings"]]
    ends = (value["dead_letter_exchange"], value["amqp_returns_at_once"], value["dead_letter_queues"])
    return Explained(value["address"], origins, value["queues"], *ends)


def attempts_of(
    explained: Explained, shown: int, failure: ReportedFailure | None, headers: Properties, instead: Properties | None = None
) -> Attempts:
    """``instead``: settings that would hold in the place of those. Raises SettingError where they do not go together."""
    values = {origin.key: origin.value for origin in explained.origins}
    settings, _, rule = terms_for(values, failure, headers.get, explained.amqp_returns_at_once, instead)
    allowed = attempts_allowed(settings, None)
    rows = schedule(settings, None, max(shown, allowed or 0) if (allowed or 0) <= MOST_ATTEMPTS else shown)
    # Who says by a rule that it ends at once means it.
    warning = lifetime_warning(settings, None) if rule is None or rule.action is Action.REDELIVER else None
    warning = expiry_warning(settings, len(rows)) or warning
    return Attempts(settings, allowed, rows, lifetime_ms(settings, None), warning, rule, never_tried(settings, rows))


def span_between(low_ms: int, high_ms: int) -> str:
    """Both, where they differ."""
    return span(low_ms) if low_ms == high_ms else f"{span(low_ms)} – {span(high_ms)}"


def ending(found: Attempts, explained: Explained) -> str:
    """Where it ends, in a sentence."""
    settings, life, exchange = found.settings, found.life, explained.dead_letter_exchange
    ends = f"to {' and '.join(explained.dead_letter_queues)}"
    if found.expired_by is not None:
        to = settings.expiry_address
        where = f"goes to {to}" if to else "is removed and counted: no expiry-address is set"
        return f"It expires before attempt {found.expired_by}, and {where}."
    if found.allowed is None or life is None:
        return "It is tried again without end (max-delivery-attempts: -1)."
    times = counted(found.allowed, "attempt")
    total = "at once" if life[1] == 0 else f"after {span_between(*life)}, not counting the time that the attempts take"
    if found.rule is not None and found.rule.action is Action.DROP:
        return "It is removed at its first failure, and counted under the name of the rule."
    if found.rule is not None and (named := found.rule.dead_letter_address):
        return f"After {times}, {total}, it goes to {named}."
    if exchange is not None:
        to = f" {ends}" if explained.dead_letter_queues else ""
        return f"After {times}, {total}, it goes through the exchange {exchange or '(default)'}{to}."
    if settings.dead_letter_address is None:
        parked = settings.without_dead_letter_address == "park"
        fate = "stays parked in its queue" if parked else "is removed and counted"
        return f"After {times}, {total}, it {fate}: no dead-letter-address is set."
    if explained.dead_letter_queues:
        return f"After {times}, {total}, it goes {ends}."
    if settings.dead_letter_address == split(explained.address)[1]:
        return f"After {times}, {total}, it stays parked in its queue, which is on its own dead-letter address."
    return f"After {times}, {total}, it goes to the address {settings.dead_letter_address}, which has no queue for it yet."
