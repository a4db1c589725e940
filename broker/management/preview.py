"""What failures on record would have come to under other settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from homing.journal.contract import Failed, Fault, PolicyInForce

from ..answers.administration import PreviewedSettings, PreviewRow
from ..auth.access import Who, needs, place_named
from ..broker import Broker
from ..core.redelivery import ConsumerPolicy, Terms, attempts_allowed, foreseen, under
from ..core.rights import Right
from ..core.settings.address_settings import DEFAULTS, AddressSettings
from ..core.settings.rules import Action, fitting, reported_failure
from ..core.settings.wildcard import pattern_matches
from . import arguments as read
from .process import Process, in_steps, in_thread
from .settings import GivenLayers, checked, of_layers, wanted_layers

_DAY_MS: Final = 86_400_000
#: Rows of the journal that are looked at, the latest: each is of up to a thousand deliveries.
_MOST: Final = 20_000
#: Kinds of failures that are distinguished; the rest of a queue's stand under one name.
_KINDS: Final = 1_000
_SHOWN: Final = 100
_OTHERS: Final = "(others)"
#: Characters of a fault's text: as many as its group has.
_MOST_TEXT: Final = 256
#: What ended so was ended by the application, whatever its count.
_VERDICTS: Final = ("poison", "rejected")


@dataclass(slots=True)
class _Row:
    queue: str
    address: str
    error_class: str
    #: The fault's fingerprint, and of the latest of its failures how its text begins. None: nothing was reported of it.
    fault: str | None
    text: str
    #: The rule that had a say then, and the one that has now; None: none.
    rule_then: str | None
    rule: str | None
    failures: int = 0
    then: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    #: Of those that come back now, in ms; None: none does.
    least_ms: int | None = None
    most_ms: int | None = None

    def shown(self) -> PreviewRow:
        return {
            "queue": self.queue,
            "fault": self.fault,
            "error_class": self.error_class,
            "text": self.text,
            "failures": self.failures,
            "then": dict(self.then),
            "rule_then": self.rule_then,
            "now": dict(self.now),
            "rule": self.rule,
            "min_delay_ms": self.least_ms,
            "max_delay_ms": self.most_ms,
        }


@needs((Right.MANAGE, of_layers), action="preview-settings")
async def preview(
    broker: Broker, who: Who, *, process: Process, layers: GivenLayers, rows: Annotated[int, read.number(1, _MOST)] = _MOST
) -> PreviewedSettings:
    """Of the last day's failures in queues that the patterns of ``layers`` match and whoever asks may browse: what came of them, and what
    would have. Attempts on record tell neither headers, so that a rule that asks for one fits none, nor delays that came with a failure.
    """
    wanted, patterns = wanted_layers(broker, layers)
    would = checked(broker, wanted, patterns)

    def meant(address: str) -> bool:
        return any(pattern_matches(each, address) for each in patterns)

    # A queue that was made anew is the one that it was, and one that is gone would be made under these settings.
    held = {queue.name: each if meant(queue.address) else None for queue, each in await in_steps(broker, broker.in_force.would_hold(would))}
    since_ms = broker.now_ms() - _DAY_MS
    account = _Account(held, lambda address: would.resolve(address) if meant(address) else None)
    looked_at = await in_thread(lambda: account.count(process.past().failures(since_ms, rows)))
    found = [each for each in account.rows.values() if broker.access.may(who, Right.BROWSE, place_named(each.queue, each.address))]
    # Of failures without a report the group is known by how they ended.
    unreported = {(each.queue, each.error_class): each.fingerprint for each in broker.faults.shown_to(who) if not each.text}
    for each in found:
        each.fault = each.fault or unreported.get((each.queue, each.error_class))
    found = sorted(found, key=lambda each: (-each.failures, each.queue, each.error_class, each.text))
    return {
        "since_ms": since_ms,
        "failures": sum(each.failures for each in found),
        "rows": [each.shown() for each in found[:_SHOWN]],
        "more_rows": max(0, len(found) - _SHOWN),
        "whole": looked_at < rows,
        "header_rules": sorted({rule.name for settings in held.values() if settings for rule in settings.rules if rule.header}),
    }


class _Account:
    """``held``: what would hold for a queue, None where that is not asked; ``gone``: what would hold for the address of a deleted one."""

    def __init__(self, held: dict[str, AddressSettings | None], gone: Callable[[str], AddressSettings | None]) -> None:
        self._held = held
        self._gone = gone
        self.rows: dict[tuple[str, ...], _Row] = {}
        #: By policy in force: how many attempts there were; None: without end.
        self._allowed: dict[str, int | None] = {}

    def count(self, failures: Iterable[Failed]) -> int:
        """Returns how many rows there were."""
        looked_at = 0
        for failed in failures:
            looked_at += 1
            if failed.queue not in self._held:
                self._held[failed.queue] = self._gone(failed.address)
            if (settings := self._held[failed.queue]) is not None:
                self._add(settings, failed)
        return looked_at

    def _add(self, settings: AddressSettings, failed: Failed) -> None:
        detail, fault = failed.detail, failed.detail.fault or Fault()
        error_class = fault.get("error_type") or detail.outcome
        rule = next((each for each in fitting(settings.rules, reported_failure(fault, detail.outcome)) if not each.header), None)
        policy = failed.in_force.get("consumer_policy")
        terms = Terms(settings, ConsumerPolicy(**policy) if policy else None)
        terms = under(rule, terms.settings, terms.policy) if rule else terms
        action, least_ms, most_ms = foreseen(terms, detail.failed)
        if action is Action.REDELIVER and self._was_a_verdict(failed):
            action = Action.DEAD_LETTER
        row = self._row(failed, error_class, fault, rule.name if rule else None)
        row.failures += failed.number
        row.then[detail.decision] += failed.number
        row.now[action.value] += failed.number
        if action is Action.REDELIVER:
            row.least_ms = least_ms if row.least_ms is None else min(row.least_ms, least_ms)
            row.most_ms = most_ms if row.most_ms is None else max(row.most_ms, most_ms)

    def _row(self, failed: Failed, error_class: str, fault: Fault, now: str | None) -> _Row:
        queue, then, fingerprint = failed.queue, failed.detail.rule, fault.get("fingerprint")
        text = (fault.get("error_text") or fault.get("reason", ""))[:_MOST_TEXT]
        key = (queue, error_class, str(fingerprint), str(then), str(now))
        if key not in self.rows and len(self.rows) >= _KINDS:
            error_class, fingerprint, text = _OTHERS, None, ""
            key = (queue, error_class, str(fingerprint), str(then), str(now))
        return self.rows.setdefault(key, _Row(queue, failed.address, error_class, fingerprint, text, then, now))

    def _was_a_verdict(self, failed: Failed) -> bool:
        """It was dead-lettered before its limit, and by no rule."""
        detail = failed.detail
        if detail.decision != Action.DEAD_LETTER.value or detail.rule:
            return False
        if detail.policy not in self._allowed:
            self._allowed[detail.policy] = _allowed_under(failed.in_force)
        allowed = self._allowed[detail.policy]
        return detail.outcome in _VERDICTS or allowed is None or detail.failed < allowed


def _allowed_under(in_force: PolicyInForce) -> int | None:
    policy = in_force.get("consumer_policy")
    settings = replace(
        DEFAULTS,
        max_delivery_attempts=in_force.get("max_delivery_attempts", DEFAULTS.max_delivery_attempts),
        allow_consumer_policy=in_force.get("allow_consumer_policy", DEFAULTS.allow_consumer_policy),
    )
    return attempts_allowed(settings, ConsumerPolicy(**policy) if policy else None)
