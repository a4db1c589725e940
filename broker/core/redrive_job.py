"""A job that sends dead letters back: what it is to do, how far it is, what became of what it sent; and when it is to wait or stop."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from homing.journal.declarations import FilterContent, JobState

RUNNING: Final = "running"
PAUSED: Final = "paused"
DONE: Final = "done"
STOPPED: Final = "stopped"
CANCELLED: Final = "cancelled"
#: A share says something once so many have shown how they fare.
ENOUGH: Final = 20
#: Per cent of those that failed again as they had before, above which a job stops.
STOP_ABOVE: Final = 20
_UNBOUNDED: Final = 1 << 62


@dataclass(slots=True, eq=False)
class RedriveJob:
    """Times are broker milliseconds. ``wanted``: the filter as it was said (message_filter.Filter.of)."""

    job_id: int
    queue: str
    user: str
    #: Where to; None: to the queue of the first death.
    target: str | None = None
    wanted: FilterContent = field(default_factory=FilterContent)
    #: Messages a second, and in all; 0: as many as there are.
    rate: int = 0
    limit: int = 0
    newest_first: bool = False
    #: So many are sent first, and it goes on when they are through.
    canary: int = 0
    #: Per cent that bounce or are dead-lettered again; None: whatever becomes of them.
    stop_above: int | None = STOP_ABOVE
    started_ms: int = 0
    #: None: it is at work, or paused.
    ended_ms: int | None = None
    state: JobState = RUNNING
    #: Why it stopped, or will have where it has left some for want of room.
    why: str = ""
    #: Behind this sequence it goes on; what came from ``up_to`` on, after it began, is not meant.
    after: int = 0
    up_to: int = 0
    sent: int = 0
    #: No dead letters, held by a consumer, or without room where they were to go: they stay.
    left: int = 0
    #: Of those sent.
    succeeded: int = 0
    died: int = 0
    gone: int = 0
    #: Failed, at their first attempt, as they had before; and how many have shown how they fare, so or by their end.
    bounced: int = 0
    judged: int = 0
    #: Of those waiting: they are gone with the process.
    transient: int = 0
    #: Not kept: the queue in which it waits for room.
    waits_for: str = ""
    #: Nor are these: when the rate began to count, and what was sent by then.
    _rate_from_ms: int = 0
    _rate_sent: int = 0

    @property
    def waiting(self) -> int:
        """Sent, and not at their end."""
        return self.sent - self.succeeded - self.died - self.gone

    @property
    def in_canary(self) -> bool:
        """The first ones are to show first how they fare."""
        return self.judged < self.canary

    def begin_rate(self, now_ms: int) -> None:
        """The rate counts from now on."""
        self._rate_from_ms, self._rate_sent = now_ms, self.sent

    def allowance(self, now_ms: int) -> int:
        """How many may be sent now."""
        most = self.limit - self.sent if self.limit else _UNBOUNDED
        if self.in_canary:
            most = min(most, self.canary - self.sent)
        if self.rate:
            most = min(most, self._due(now_ms))
        return max(0, most)

    def _due(self, now_ms: int) -> int:
        """How many its rate has come to. What it did not use is not made up for, as where it waited for its canary or for a restart."""
        due = self.rate * (now_ms - self._rate_from_ms) // 1000 + 1 - (self.sent - self._rate_sent)
        if due > self.rate:
            self.begin_rate(now_ms)
            return 1
        return due

    def verdict(self) -> str | None:
        """Why it is to stop; None: it may go on."""
        if self.stop_above is None:
            return None
        least = self.canary if self.in_canary else ENOUGH if not self.canary else min(ENOUGH, self.canary)
        # Of these some may be both: there are so many at least.
        back = max(self.bounced, self.died)
        if 100 * back > self.stop_above * max(least, self.judged):
            how = "failed again as before" if self.bounced >= self.died else "are dead again"
            return f"{back:,} of the first {self.judged:,} that came to anything {how}, more than {self.stop_above} %"
        return None

    def describe(self) -> dict[str, object]:
        """For people."""
        return {each.name: getattr(self, each.name) for each in fields(self) if not each.name.startswith("_")}
