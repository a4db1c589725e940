"""The policies that decided about failed messages: each is in the journal once, and attempts name it."""

from __future__ import annotations

from typing import Final

from homing.journal.contract import PolicyRecord

from ..core.policy_in_force import policy_in_force
from ..core.redelivery import ConsumerPolicy
from ..core.settings.address_settings import AddressSettings
from .journal_port import JournalPort

#: Those entered last: clients bring as many as they like, and the journal keeps some times as many (journal/upkeep/leftovers.py), so that
#: one that is in use is there.
_KNOWN: Final = 500


class PoliciesInForce:
    def __init__(self, journal: JournalPort) -> None:
        self._journal = journal
        #: By what they were made of, and by name, in the order in which they were entered.
        self._name_of: dict[tuple[int, int], tuple[AddressSettings, ConsumerPolicy | None, str]] = {}
        self._entered: dict[str, None] = {}

    def name(self, settings: AddressSettings, policy: ConsumerPolicy | None, now_ms: int) -> str:
        """The name of what these come to; it is in the journal from here on."""
        key = (id(settings), id(policy))
        known = self._name_of.get(key)
        if known is not None and known[0] is settings and known[1] is policy:
            return known[2]
        name, in_force = policy_in_force(settings, policy)
        if len(self._name_of) >= _KNOWN:
            self._name_of.clear()
        self._name_of[key] = (settings, policy, name)
        if name not in self._entered:
            if len(self._entered) >= _KNOWN:
                del self._entered[next(iter(self._entered))]
            self._entered[name] = None
            self._journal.batch.policy(PolicyRecord(name, now_ms, in_force))
        return name
