"""Faults for people: those that they may know of, and what is said of them: nothing more is to be reported, or it is fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..auth.access import Access, Told, Who, needs
from ..core.fault import FaultGroup
from ..core.message import MessageReference
from ..core.rights import Place, Right
from ..core.routing import PostOffice
from ..entries.fault_groups import FaultGroups
from ..topology.places import ByName, place_of


def _at_faults(owner: ByName, groups: Sequence[FaultGroup]) -> Iterable[Place]:
    return dict.fromkeys(place_of(owner, each.queue) for each in groups)


def _told_of_muting(groups: Sequence[FaultGroup], muted: bool) -> Told:
    return {"fault": groups[0].fingerprint, "muted": muted}


def _told_of_fixing(groups: Sequence[FaultGroup], version: str | None) -> Told:
    return {"fault": groups[0].fingerprint, "fixed": "no" if version is None else version or "yes"}


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
        return [(each, place_of(self, each.queue)) for each in self._groups.by_id.values()]

    def of(self, who: Who, reference: MessageReference) -> FaultGroup | None:
        """What it failed of last; None also where whoever asks may not browse the queue that it failed in."""
        group = self._groups.group_of(reference.cause)
        return group if group is not None and self.access.may(who, Right.BROWSE, place_of(self, group.queue)) else None

    @needs((Right.MANAGE, _at_faults), audited=True, action="mute-fault", tells=_told_of_muting)
    def mute(self, who: Who, groups: Sequence[FaultGroup], muted: bool) -> None:
        """Nothing is reported of them, or is again; they are counted all the same."""
        for group in groups:
            group.muted = muted
            self._groups.note(group)

    @needs((Right.MANAGE, _at_faults), audited=True, action="fault-fixed", tells=_told_of_fixing)
    def fixed(self, who: Who, groups: Sequence[FaultGroup], version: str | None) -> None:
        """They are gone from this version on ("": from now on); None: that was not so. Should one come back, that is reported."""
        at_ms = None if version is None else self._now_ms()
        for group in groups:
            group.fixed_in, group.fixed_ms, group.regressed_ms = version, at_ms, None
            self._groups.note(group)
