"""Redrive jobs at work: each sends a page at a time, between two commits, as fast as it may, and waits or stops as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from homing.journal.contract import ReferenceRecord, ReferenceState
from homing.journal.declarations import FilterContent, JobState

from ..auth.access import Access, Told, Who, at_queue, at_target, needs, queue_place
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.redrive_job import CANCELLED, DONE, PAUSED, RUNNING, STOPPED, RedriveJob
from ..core.rights import Place, Right
from ..core.routing import PostOffice
from ..core.scheduled import NEVER
from ..entries.browsing import as_it_is
from ..entries.choosing import ROWS, Choosing, Selection
from ..entries.events import Events
from ..entries.fault_groups import goes_back
from ..entries.page_reads import Asked
from ..entries.redrive_tally import RedriveTally
from ..entries.to_disk import ToDisk
from ..errors import Refused
from ..properties import measured
from ..recording.journal_port import JournalPort
from ..steps import Steps
from ..topology.places import ByName, place_of
from ..topology.resources import Resources
from .by_hand import ByHand, Check
from .transfer import MAKE_ROOM, RoomLeft, Transfer, due_by_hand

#: Where a rate is slow, so often something is sent.
_EVERY_MS: Final = 100
#: Messages of a step where nobody else waits for the disk: some 15 ms, of which the loop is busy for 4.
_MOST_ROWS: Final = 500
#: Where somebody does: so many for each millisecond that the disk takes for a commit, which is what they take themselves. Who waits goes
#: before the step (journal.Journal.read), and so waits for no more than the step before, and a commit of his own.
_A_MS: Final = 40
_LEAST_ROWS: Final = 64
#: What comes from memory or goes there takes more than twice as long as what goes from disk to disk: a step is so much less of it.
_IN_MEMORY: Final = 2
_PARKED: Final = int(ReferenceState.PARKED)


class _Starter(NamedTuple):
    """Whoever started a redrive job, at whatever hour it works."""

    user: str
    peer: str

    @classmethod
    def of(cls, job: RedriveJob) -> _Starter:
        return cls(job.user, f"redrive {job.job_id}")


class _AtOnce:
    """Somebody waits for a job: whether it has ended, and what has stopped it."""

    __slots__ = ("came", "refusal")

    def __init__(self) -> None:
        self.came = False
        self.refusal: Refused | None = None


def _at_job(owner: ByName, job: RedriveJob) -> Iterable[Place]:
    return (place_of(owner, job.queue),)


def _told_of(target: Queue | None, job: RedriveJob) -> Told:
    said = {"to": target and target.name, "rate": job.rate, "limit": job.limit, "canary": job.canary}
    return {"filter": job.wanted, **{name: value for name, value in said.items() if value}}


def _named(job: RedriveJob) -> Told:
    return {"job": job.job_id}


class Redriving:
    def __init__(
        self,
        access: Access,
        journal: JournalPort,
        post_office: PostOffice,
        resources: Resources,
        redrives: RedriveTally,
        choosing: Choosing,
        hand: ByHand,
        transfer: Transfer,
        events: Events,
        to_disk: ToDisk,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self.access = access
        self.post_office = post_office
        self._choosing = choosing
        self._events = events
        self._journal = journal
        self._to_disk = to_disk
        self._now_ms = now_ms
        self._wake = wake
        self._resources = resources
        self._hand = hand
        self._transfer = transfer
        self._tally = redrives
        #: Pages that jobs wait for.
        self._reading: dict[int, Asked] = {}
        #: What jobs send of their queues.
        self._selections: dict[int, Selection] = {}
        #: Jobs that did not take all of their last page.
        self._unfinished: set[int] = set()
        #: Jobs whose last page went from disk to disk.
        self._by_disk: set[int] = set()
        #: ``go_on`` is wanted then for a job that waits for its rate, or for room.
        self.look_at_ms = NEVER
        #: When one that waits for room looks again.
        self._room_ms: dict[int, int] = {}
        #: Jobs that somebody waits for.
        self._awaited: dict[int, _AtOnce] = {}

    # -- by hand -----------------------------------------------------------------------------------------------------

    def with_places(self) -> list[tuple[RedriveJob, Sequence[Place]]]:
        """The jobs, by their numbers, and where each is."""
        return [(each, tuple(_at_job(self, each))) for each in self._tally.jobs.values()]

    @needs((Right.CONSUME, at_queue), (Right.SEND, at_target), audited=True, action="start-redrive", tells=_told_of)
    def start(self, who: Who, queue: Queue, target: Queue | None, job: RedriveJob) -> RedriveJob:
        """Raises Refused where another one is at work on the queue."""
        self._begin(job)
        self._wake()
        return job

    def _begin(self, job: RedriveJob) -> None:
        other = next((each for each in self._tally.active.values() if each.queue == job.queue), None)
        if other is not None:
            raise Refused("redrive-running", f"redrive {other.job_id} is at work on queue {job.queue}", "wait for it, or cancel it")
        self._tally.begin(job, self._now_ms())

    @needs((Right.CONSUME, _at_job), audited=True, action="pause-redrive", tells=_named)
    def pause(self, who: Who, job: RedriveJob) -> None:
        self._change(job, PAUSED)

    @needs((Right.CONSUME, _at_job), audited=True, action="resume-redrive", tells=_named)
    def resume(self, who: Who, job: RedriveJob) -> None:
        self._change(job, RUNNING)
        job.begin_rate(self._now_ms())
        self._wake()

    @needs((Right.CONSUME, _at_job), audited=True, action="cancel-redrive", tells=_named)
    def cancel(self, who: Who, job: RedriveJob) -> None:
        """What it has sent stays where it went."""
        _check_active(job)
        self._end(job, CANCELLED)

    def _change(self, job: RedriveJob, state: JobState) -> None:
        _check_active(job)
        job.state, job.waits_for = state, ""
        self._tally.note(job)

    def _end(self, job: RedriveJob, state: JobState, why: str = "", now_ms: int | None = None) -> None:
        self._forget(job)
        job.state, job.why, job.ended_ms = state, why, self._now_ms() if now_ms is None else now_ms
        self._tally.note(job)
        awaited = self._awaited.pop(job.job_id, None)
        if awaited is None:
            self._events.redrive_ended(job)
        else:
            awaited.came = True
            self._wake()

    def _forget(self, job: RedriveJob) -> None:
        job.waits_for = ""
        self._reading.pop(job.job_id, None)
        self._selections.pop(job.job_id, None)
        self._unfinished.discard(job.job_id)
        self._by_disk.discard(job.job_id)
        self._room_ms.pop(job.job_id, None)

    @needs((Right.CONSUME, at_queue), audited=True, action="redrive", counts=int)
    def at_once(self, who: Who, queue: Queue, message_ids: list[int] | None) -> Steps[int]:
        """Sends back all dead letters of the queue, or these; returns how many went. Raises Refused where it could not send all that it was
        to, also for want of room that a job would wait for: what went before that stays there."""
        wanted = FilterContent() if message_ids is None else FilterContent(message_ids=message_ids)
        job = RedriveJob(0, queue.name, who.user, wanted=wanted, stop_above=None)
        self._begin(job)
        awaited = self._awaited[job.job_id] = _AtOnce()
        self._go_on_with(job)
        while not awaited.came:
            yield awaited
        if job.state == STOPPED:
            raise awaited.refusal or Refused("queue-full", f"after {job.sent} messages: {job.why}", MAKE_ROOM)
        return job.sent

    # -- at work -----------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Once a turn: the next page of each job that may send something. Where the broker stops, jobs go on after its next start."""
        if self._to_disk.stopped:
            return
        self.look_at_ms = NEVER
        for job in list(self._tally.active.values()):
            self._go_on_with(job)

    def _go_on_with(self, job: RedriveJob) -> None:
        try:
            self._step(job)
        except Refused as refusal:
            if (awaited := self._awaited.get(job.job_id)) is not None:
                awaited.refusal = refusal.with_traceback(None)
            self._end(job, STOPPED, f"{refusal.message}: {refusal.fix}")

    def _step(self, job: RedriveJob) -> None:
        asked = self._reading.get(job.job_id)
        if asked is not None:
            if not asked.came:
                return
            del self._reading[job.job_id]
            if not asked.more() and job.job_id not in self._unfinished:
                # Its queue went meanwhile.
                self._end(job, STOPPED if job.why else DONE, job.why)
        if job.state != RUNNING:
            return
        why = job.verdict()
        if why is not None:
            self._end(job, STOPPED, why)
        elif 0 < job.limit <= job.sent:
            self._end(job, DONE)
        else:
            self._read(job)

    def _read(self, job: RedriveJob) -> None:
        now_ms = self._now_ms()
        if (room_ms := self._room_ms.get(job.job_id, 0)) > now_ms:
            self.look_at_ms = min(self.look_at_ms, room_ms)
            return
        most = job.allowance(now_ms)
        if not most:
            if job.rate and not (job.in_canary and job.sent >= job.canary):
                self.look_at_ms = min(self.look_at_ms, now_ms + _EVERY_MS)
            return
        queue = self.post_office.queues.get(job.queue)
        if queue is None:
            raise Refused("no-such-queue", f"queue {job.queue} is gone", "nothing is left to be sent back")
        self.access.check(_Starter.of(job), Right.CONSUME, queue_place(queue), verb="redrive")
        selection = self._selections.get(job.job_id)
        if selection is None or selection.queue is not queue:
            wanted = Filter.of(job.wanted, self._resources.read_selector)
            selection = self._selections[job.job_id] = self._choosing.select(queue, wanted, job.up_to, job.newest_first)
        if not selection.ready():
            self._wake()
            return
        rows = ROWS if selection.scans else min(self._rows(job), most)
        # By the time that there is a second page, all that came before the job began is on disk.
        self._reading[job.job_id] = selection.ask(job.after, rows, partial(self._send, job, selection, most), on_disk=job.after > 0)

    def _rows(self, job: RedriveJob) -> int:
        sync_ms = self._journal.sync_ms
        if sync_ms is None:
            return _MOST_ROWS
        rows = min(max(_LEAST_ROWS, int(_A_MS * sync_ms)), _MOST_ROWS)
        return rows if job.job_id in self._by_disk else rows // _IN_MEMORY

    def _send(self, job: RedriveJob, selection: Selection, most: int, records: list[ReferenceRecord], last: int, more: bool) -> bool:
        """``more``: there is more than these. Whether it wants that."""
        if job.ended_ms is None:
            self._unfinished.add(job.job_id)
        if job.state != RUNNING:
            return True
        now_ms = self._now_ms()
        going: dict[Queue, list[ReferenceRecord]] = {}
        job.waits_for = ""
        try:
            self._choose(job, selection, most, records, going)
            if not records or job.after == records[-1].sequence:
                job.after = last or job.after
                self._unfinished.discard(job.job_id)
        finally:
            for target, chosen in going.items():
                sent, by_disk = self._transfer.send_back(selection.queue, chosen, target, job.job_id, now_ms)
                (self._by_disk.add if by_disk else self._by_disk.discard)(job.job_id)
                job.sent += sent
                job.left += len(chosen) - sent
            if job.waits_for:
                self._room_ms[job.job_id] = now_ms + _EVERY_MS
            if job.job_id in self._unfinished or more:
                self._tally.note(job)
        if job.waits_for and job.job_id in self._awaited:
            self._end(job, STOPPED, _without_room(job.waits_for), now_ms)
        elif not more and job.job_id not in self._unfinished:
            self._end(job, STOPPED if job.why else DONE, job.why, now_ms)
        return True

    def _choose(
        self, job: RedriveJob, selection: Selection, most: int, records: list[ReferenceRecord], going: dict[Queue, list[ReferenceRecord]]
    ) -> None:
        """Up to ``most`` of them join ``going``, by where they go, until one is to wait for room. Raises Refused where one may not."""
        targets: dict[tuple[str, str], RoomLeft | None] = {}
        queue, number = selection.queue, 0
        last: object = targets
        for record in records:
            if number >= most:
                return
            if not selection.scans or selection.wanted.takes(as_it_is(queue, record)):
                # What died together shares what is said of its first death.
                first = record.hops[-1][1] if record.hops else None
                if first is not last:
                    last, room = first, self._room_for(job, queue, record, targets)
                if room is None or not (job.target or goes_back(record.cause, record.hops, record.state & _PARKED)):
                    job.left += 1
                elif self._fits(room, record):
                    going.setdefault(room.queue, []).append(record)
                    number += 1
                elif room.may_come(_size(record)):
                    job.waits_for = room.queue.name
                    return
                else:
                    job.left += 1
                    job.why = _without_room(room.queue.name)
            job.after = record.sequence

    @staticmethod
    def _fits(room: RoomLeft, record: ReferenceRecord) -> bool:
        """Whether there is room for one of that record. What waits for its time does not count there."""
        return not room.limited or due_by_hand(record.failed, record.due_at_ms) is not None or room.take(_size(record))

    def _room_for(
        self, job: RedriveJob, queue: Queue, record: ReferenceRecord, targets: dict[tuple[str, str], RoomLeft | None]
    ) -> RoomLeft | None:
        """``targets``: those of this page, by the queue and address of the first death. Raises Refused where there can be none."""
        first = record.hops[-1][1] if record.hops else None
        key = (first["queue"], first["address"]) if first is not None and job.target is None else ("", "")
        if key not in targets:
            may_send = partial(self.access.check_queue, _Starter.of(job), Right.SEND, verb="redrive")
            target = self._hand.home_of(queue, record.hops, job.sent, may_send) if job.target is None else self._target(job, may_send)
            targets[key] = None if target is None else RoomLeft(target)
        return targets[key]

    def _target(self, job: RedriveJob, may_send: Check) -> Queue:
        found = self.post_office.find_queue(job.target or "")
        if found is None:
            raise Refused("no-such-queue", f"queue {job.target} is gone", "make it, and start another redrive")
        may_send(found.name, found.address)
        return found


def _size(record: ReferenceRecord) -> int:
    """Body and properties."""
    return len(record.message.body) + measured(record.message.properties)[0]


def _check_active(job: RedriveJob) -> None:
    """Raises Refused where it has ended."""
    if job.ended_ms is not None:
        raise Refused("redrive-ended", f"redrive {job.job_id} is {job.state}", "start another one")


def _without_room(queue: str) -> str:
    """Why it has left some."""
    return f"queue {queue} has no room for what was left"
