"""How a dead letter would fare where it would be sent back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..answers.administration import Explained
from ..answers.lives import History, Source
from ..answers.parts import Properties
from ..core.settings.rules import Action, Lookup, ReportedFailure, first, fitting, reported_failure
from ..core.settings.units import counted
from .amounts import span

if TYPE_CHECKING:
    from ..core.redelivery import Terms


def sources_of(found: History) -> list[Source]:
    """For each place it is in as a dead letter: the queue and address it would be sent back to."""
    return [
        {"lies_in": reference["queue"], "queue": reference["hops"][-1]["queue"], "address": reference["hops"][-1]["address"]}
        for reference in found["references"]
        if reference["hops"] and reference["queue"] != reference["hops"][-1]["queue"]
    ]


def prospect(source: Source, explained: Explained, found: History) -> Source:
    """How it would fare there under what ``explain`` says holds now, should it always fail as it did last: attempts, total life, and the
    rule for such failures."""
    from ..core.redelivery import attempts_allowed, lifetime_ms

    last = found["attempts"][-1] if found["attempts"] else None
    failure = reported_failure(last["fault"] or {}, last["outcome"]) if last else None
    message = found["message"]
    headers = ((message and message.get("properties")) or {}).get
    values = {each["key"]: each["value"] for each in explained["settings"]}
    resolved, _, rule = terms_for(values, failure, headers, explained["amqp_returns_at_once"])
    return {
        **source,
        "attempts": attempts_allowed(resolved, None),
        "life_ms": lifetime_ms(resolved, None),
        "rule": None if rule is None else {"name": rule.name, "action": rule.action.value},
    }


def terms_for(
    values: Properties,
    failure: ReportedFailure | None,
    headers: Lookup,
    returned_at_once: bool = False,
    instead: Properties | None = None,
) -> Terms:
    """What holds where an address has these settings, and ``instead`` of some of them others: by the first rule for such a failure, where
    there is one. Raises SettingError where they do not go together."""
    from ..core.redelivery import Terms, at_once, under
    from ..core.settings.address_settings import AddressSettingsRepository

    settings = AddressSettingsRepository({"#": values}).laid_over({"#": instead or {}}).resolve("any")
    if returned_at_once:
        settings = at_once(settings)
    rule = first(fitting(settings.rules, failure), headers) if failure is not None else None
    return Terms(settings, None) if rule is None else under(rule, settings, None)


def chances(source: Source) -> str:
    """The end of a sentence that begins with the queue it goes to."""
    if "attempts" not in source:
        return f"; homing explain {source['address']} shows how it is tried there."
    rule = source["rule"]
    again = f". Should it fail as it did last, rule {rule['name']} holds: it" if rule else ", and"
    if rule and rule["action"] != Action.REDELIVER.value:
        return f"{again} is {'removed' if rule['action'] == Action.DROP.value else 'dead-lettered'} at its first failure."
    if source["attempts"] is None:
        return f"{again} is tried without end."
    text, life = f"{again} has {counted(source['attempts'], 'attempt')} there", source["life_ms"]
    if source["attempts"] > 1:
        text += f", over {span(life[1])} at most" if life and life[1] else ", without any wait between them"
    return f"{text}."
