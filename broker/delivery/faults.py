"""Faults for people: those that they may know of, and what is said of them: nothing more is to be reported, or it is fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..auth.access import Access, Who, needs
from ..core.fault import FaultGroup
from ..core.message import MessageReference
from ..core.rights import Place, Right
from ..core.routing import PostOffice
from ..entries.fault_groups import FaultGroups
from ..topology import places


class Faults:
    def __init__(self, access: Access, post_office: PostOffice, faults: FaultGroups, now_ms: Callable[[], int]) -> None:
        self.access = access
        self.post_office = post_office
        self._groups = faults
        self._now_ms = now_ms

    def shown_to(self, who: Who) -> list[FaultGroup]:
        """Those of queues that whoever asks may browse, or might if they were there."""
        return [group for group, place in self.with_places() if self.access.may(who, Right.BROWSE, place)]

    def with_places(self) -> list[tuple[FaultGroup, Place]]:
        """The groups, and where each failed."""
        return [(each, places.of_fault(self, each)) for each in self._groups.by_id.values()]

    def of(self, who: Who, reference: MessageReference) -> FaultGroup | None:
        """What it failed of last; None also where whoever asks may not browse the queue that it failed in."""
        group = self._groups.group_of(reference.cause)
        return group if group is not None and self.access.may(who, Right.BROWSE, places.of_fault(self, group)) else None

    @needs((Right.MANAGE, places.at_faults), audited=True, action="mute-fault", tells=places.fault_muted)
    def mute(self, who: Who, groups: Sequence[FaultGroup], muted: bool) -> None:
        """Nothing is reported of them, or is again; they are counted all the same."""
        for group in groups:
            group.muted = muted
            self._groups.note(group)

    @needs((Right.MANAGE, places.at_faults), audited=True, action="fault-fixed", tells=places.fault_said_fixed)
    def fixed(self, who: Who, groups: Sequence[FaultGroup], version: str | None) -> None:
        """They are gone from this version on ("": from now on); None: that was not so. Should one come back, that is reported."""
        at_ms = None if version is None else self._now_ms()
        for group in groups:
            group.fixed_in, group.fixed_ms, group.regressed_ms = version, at_ms, None
            self._groups.note(group)
