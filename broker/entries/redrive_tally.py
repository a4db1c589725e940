"""What becomes of messages that a redrive job sent, entered in the batch of what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, cast

from homing.journal.contract import Outcome
from homing.journal.declarations import DeclarationRecord, RedriveContent

from ..core.message import MessageReference
from ..core.redrive_job import RedriveJob
from ..recording.journal_port import JournalPort

log = logging.getLogger("homing")

_KIND: Final = "redrive"
#: Jobs that have ended and are still shown.
_KEPT: Final = 100


class RedriveTally:
    def __init__(self, journal: JournalPort, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._journal = journal
        self.jobs: dict[int, RedriveJob] = {}
        #: Of these, the ones that have not ended.
        self.active: dict[int, RedriveJob] = {}

    def restore(self, declarations: Iterable[DeclarationRecord]) -> None:
        """What the journal kept, in the order of their numbers."""
        for record in declarations:
            if record.kind == _KIND:
                try:
                    job = RedriveJob(**cast(RedriveContent, record.content))
                except TypeError as error:
                    log.error("declaration-unreadable: redrive %s in the journal is not understood any more (%s)", record.name, error)
                else:
                    # What it sent that was not durable is gone with the process.
                    job.gone += job.transient
                    job.judged = min(job.sent, job.judged + job.transient)
                    job.transient = 0
                    self.jobs[job.job_id] = job
        self.jobs = dict(sorted(self.jobs.items()))
        self.active = {number: job for number, job in self.jobs.items() if job.ended_ms is None}

    def begin(self, job: RedriveJob, now_ms: int) -> None:
        """It has the next number from here on, and is at work. The oldest of too many that have ended go."""
        job.job_id, job.started_ms, job.up_to = max(self.jobs, default=0) + 1, now_ms, self._journal.next_id()
        job.begin_rate(now_ms)
        self.jobs[job.job_id] = self.active[job.job_id] = job
        for ended in [each for each in self.jobs.values() if each.job_id not in self.active][:-_KEPT]:
            del self.jobs[ended.job_id]
            self._journal.batch.delete_declaration(_KIND, str(ended.job_id))
        self.note(job)

    def note(self, job: RedriveJob) -> None:
        """As it stands now, in this batch."""
        if job.ended_ms is not None:
            self.active.pop(job.job_id, None)
        self._journal.batch.declare(DeclarationRecord(_KIND, str(job.job_id), content_of(job)))

    def sent_in_memory(self, job_id: int) -> None:
        """One of those that a job sends is not durable where it goes."""
        job = self.jobs.get(job_id)
        if job is not None:
            job.transient += 1

    def kept(self, reference: MessageReference) -> None:
        """One that was in memory alone is durable from here on."""
        job = self.jobs.get(abs(reference.redrive))
        if job is not None:
            job.transient -= 1
            self.note(job)

    def bounced(self, reference: MessageReference) -> None:
        """It failed as it had before it was sent back."""
        job = self.jobs.get(reference.redrive)
        reference.redrive = -reference.redrive
        if job is not None:
            job.bounced += 1
            job.judged += 1
            self._noted(job)

    def not_over(self, reference: MessageReference) -> None:
        """One that was counted as acknowledged is to end otherwise."""
        job = self.jobs.get(abs(reference.redrive))
        if job is not None:
            job.judged -= reference.redrive > 0
            job.transient += reference.in_memory_only
            job.succeeded -= 1
            self.note(job)

    def ended(self, reference: MessageReference, outcome: Outcome) -> None:
        """It leaves the queue that it was sent to."""
        job = self.jobs.get(abs(reference.redrive))
        if job is not None:
            job.judged += reference.redrive > 0
            job.transient -= reference.in_memory_only
            job.succeeded += outcome == "succeeded"
            job.died += outcome == "dead-lettered"
            job.gone += outcome not in ("succeeded", "dead-lettered")
            self._noted(job)

    def _noted(self, job: RedriveJob) -> None:
        self.note(job)
        if job.ended_ms is None:
            self._wake()


def content_of(job: RedriveJob) -> RedriveContent:
    """A job as the journal keeps it."""
    return RedriveContent(
        job_id=job.job_id,
        queue=job.queue,
        user=job.user,
        target=job.target,
        wanted=job.wanted,
        rate=job.rate,
        limit=job.limit,
        newest_first=job.newest_first,
        canary=job.canary,
        stop_above=job.stop_above,
        started_ms=job.started_ms,
        ended_ms=job.ended_ms,
        state=job.state,
        why=job.why,
        after=job.after,
        up_to=job.up_to,
        sent=job.sent,
        left=job.left,
        succeeded=job.succeeded,
        died=job.died,
        gone=job.gone,
        bounced=job.bounced,
        judged=job.judged,
        transient=job.transient,
    )
