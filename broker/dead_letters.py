"""The verbs of what failed, for management: dead letters, their redrives and edits, what waits to be tried again, faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import places
from .administration import Administration
from .auth.access import Who, at_queue, needs, place_named
from .core.edit import Edits
from .core.fault import FaultGroup
from .core.letter_filter import Filter, FilterContent
from .core.message import MessageReference
from .core.queue import Queue
from .core.redrive_job import RedriveJob
from .core.rights import Place, Right
from .delivery import chosen, retrying
from .entries import counting, waiting
from .entries.choosing import choice, in_memory
from .errors import Refused
from .steps import Steps

#: As in administration.py.
FREE: Final[Mapping[str, str]] = {
    "answers to a front end, which asks before it shows them": "dead_in_memory redrives places_of_faults",
    "shows what may be browsed, or nothing": "faults fault_shown",
    "of what the front end was allowed to see": "choice_of chosen_in_memory count_chosen count_in_memory",
}


def _shown(page: tuple[list[Any], Any, Any]) -> int:
    """How many messages the audit says it was."""
    return len(page[0])


def _done(done: tuple[int, Any, Any]) -> int:
    return done[0]


def _edited(done: dict[int, int | Refused]) -> int:
    return sum(isinstance(each, int) for each in done.values())


class DeadLetters(Administration):
    @needs((Right.CONSUME, at_queue), audited=True, counts=int)
    def redrive(self, who: Who, queue: Queue, message_ids: list[int] | None) -> Steps[int]:
        """See Redriving.at_once, of all dead letters of the queue, or these."""
        wanted = FilterContent() if message_ids is None else FilterContent(message_ids=message_ids)
        return self.redriving.at_once(RedriveJob(0, queue.name, who.user, wanted=wanted, stop_above=None))

    @needs((Right.BROWSE, at_queue), audited=True, action="peek-dead-letters", tells=places.chosen, counts=_shown)
    def browse_chosen(
        self, who: Who, queue: Queue, wanted: Filter, after: int, limit: int, newest_first: bool, pages: int
    ) -> Steps[tuple[list[MessageReference], int, int | None]]:
        """See chosen.shown."""
        return chosen.shown(self.state, queue, wanted, after, limit, newest_first, pages, self.limits.answer_bytes)

    @needs((Right.BROWSE, at_queue), audited=True, action="histories", tells=places.chosen, counts=_shown)
    def browse_histories(
        self, who: Who, queue: Queue, wanted: Filter, after: int, limit: int, newest_first: bool
    ) -> Steps[tuple[list[MessageReference], int, int | None]]:
        """See chosen.shown; those whose histories are asked for."""
        return chosen.shown(self.state, queue, wanted, after, limit, newest_first, chosen.PAGES, self.limits.answer_bytes)

    @needs((Right.MANAGE, at_queue), audited=True, action="delete-dead-letters", tells=places.chosen, counts=_done)
    def delete_chosen(self, who: Who, queue: Queue, wanted: Filter, after: int) -> Steps[chosen.Done]:
        """See chosen.delete."""
        return chosen.delete(self.state, queue, wanted, after)

    @needs(
        (Right.CONSUME, at_queue),
        (Right.SEND, places.chosen_to),
        audited=True,
        action="move-dead-letters",
        tells=places.chosen_moved,
        counts=_done,
    )
    def move_chosen(self, who: Who, queue: Queue, target: Queue, wanted: Filter, after: int) -> Steps[chosen.Done]:
        """See chosen.move."""
        return chosen.move(self.state, self.hand, queue, target, wanted, after)

    def redrives(self) -> list[tuple[RedriveJob, Sequence[Place]]]:
        """The jobs, by their numbers, and where each is."""
        return [(each, tuple(places.at_job(self, None, each))) for each in self.state.redrives.jobs.values()]

    @needs((Right.CONSUME, at_queue), (Right.SEND, places.job_target), audited=True, tells=places.job_told)
    def start_redrive(self, who: Who, queue: Queue, target: Queue | None, job: RedriveJob) -> RedriveJob:
        """See Redriving.start."""
        return self.redriving.start(job)

    @needs((Right.CONSUME, places.at_job), audited=True, tells=places.job_named)
    def pause_redrive(self, who: Who, job: RedriveJob) -> None:
        """See Redriving.pause."""
        self.redriving.pause(job)

    @needs((Right.CONSUME, places.at_job), audited=True, tells=places.job_named)
    def resume_redrive(self, who: Who, job: RedriveJob) -> None:
        """See Redriving.resume."""
        self.redriving.resume(job)

    @needs((Right.CONSUME, places.at_job), audited=True, tells=places.job_named)
    def cancel_redrive(self, who: Who, job: RedriveJob) -> None:
        """See Redriving.cancel."""
        self.redriving.cancel(job)

    @needs((Right.BROWSE, at_queue), audited=True, action="peek-retrying", tells=places.chosen, counts=_shown)
    def browse_retrying(
        self, who: Who, queue: Queue, wanted: Filter, after: waiting.Place, limit: int
    ) -> Steps[tuple[list[tuple[MessageReference, FaultGroup | None]], int, waiting.Place | None]]:
        """See retrying.shown."""
        return retrying.shown(self.state, queue, wanted, after, limit)

    @needs((Right.MANAGE, at_queue), audited=True, tells=places.chosen, counts=_done)
    def retry(self, who: Who, queue: Queue, wanted: Filter, due_at_ms: int, release: bool, after: waiting.Place) -> Steps[retrying.Done]:
        """See retrying.retry."""
        return retrying.retry(self.state, queue, wanted, due_at_ms, release, after)

    @needs((Right.CONSUME, at_queue), (Right.SEND, places.edited_to), audited=True, counts=_edited)
    def edit(self, who: Who, queue: Queue, edits: Edits) -> Steps[dict[int, int | Refused]]:
        """See Editing.edit; the right to send is asked of each queue that something goes back to."""

        def check(target: str, address: str) -> None:
            self.access.check(who, Right.SEND, place_named(target, address), verb="edit")

        return self.editing.edit(queue, edits, check)

    def choice_of(self, wanted: Filter) -> Any:
        """What indexes know of the filter, for another thread."""
        return choice(self.state, wanted, self.journal.next_id())

    def count_chosen(self, queue: Queue, wanted: Filter) -> tuple[Counter[tuple[int, str | None]], Any]:
        """See counting.known."""
        return counting.known(self.state, queue, wanted)

    def count_in_memory(self, queue: Queue, wanted: Filter) -> Steps[Counter[tuple[int, str | None]]]:
        """See counting.count."""
        return counting.count(self.state, queue, wanted)

    def dead_in_memory(self) -> Steps[list[Any]]:
        """See counting.dead."""
        return counting.dead(self.state)

    def chosen_in_memory(self, queue: Queue, wanted: Filter) -> Steps[list[int]]:
        """The sequences of those that a filter takes and that stand on no page, in order."""
        others = in_memory(self.state, queue, wanted, self.journal.next_id())
        while not others.looked():
            yield
        return others.sequences

    # -- faults ------------------------------------------------------------------------------------------------------

    def faults(self, who: Who) -> list[FaultGroup]:
        """Those of queues that whoever asks may browse, or might if they were there."""
        return [group for group, place in self.places_of_faults() if self.access.may(who, Right.BROWSE, place)]

    def places_of_faults(self) -> list[tuple[FaultGroup, Place]]:
        """The groups, and where each failed."""
        return [(each, places.of_fault(self, each)) for each in self.state.faults.by_id.values()]

    def fault_shown(self, who: Who, reference: MessageReference) -> FaultGroup | None:
        """The same; None also where whoever asks may not browse the queue that it failed in."""
        group = self.state.faults.group_of(reference.cause)
        return group if group is not None and self.access.may(who, Right.BROWSE, places.of_fault(self, group)) else None

    @needs((Right.MANAGE, places.at_faults), audited=True, tells=places.fault_muted)
    def mute_fault(self, who: Who, groups: Sequence[FaultGroup], muted: bool) -> None:
        """See FaultGroups.mute."""
        for group in groups:
            self.state.faults.mute(group, muted)

    @needs((Right.MANAGE, places.at_faults), audited=True, tells=places.fault_said_fixed)
    def fault_fixed(self, who: Who, groups: Sequence[FaultGroup], version: str | None) -> None:
        """See FaultGroups.fixed."""
        for group in groups:
            self.state.faults.fixed(group, version)
