"""A fault group: failures of one queue that look alike, and what is said of them by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias, TypedDict

from homing.journal import contract

from .queue import Queue

#: What a group takes, with the numbers of its messages and of the dead in one queue, and each program that met it, beside their texts
#: (tests/unit/test_memory.py).
_GROUP_BYTES: Final = 1500
_PROGRAM_BYTES: Final = 400
_HOUR_MS: Final = 3_600_000
_GROWN: Final = 10
#: How deliveries ended whose channel, connection or consumer was closed in order: no fault is seen in it, whether it counts or not.
CLOSED: Final = "closed"
#: It was acknowledged, and failed nevertheless, as was reported later.
ACKNOWLEDGED: Final = "acknowledged"
#: How a delivery ended that failed.
AttemptOutcome: TypeAlias = contract.AttemptOutcome
#: client_id, host, version: what a program that met it said of itself.
Program = tuple[str, str, str]


class FailureReport(TypedDict, total=False):
    """What a client said of a failure (docs/protocol.md, 2.4), or the broker in its place."""

    outcome: AttemptOutcome
    reason: str
    #: The name of what was to be done, where the program's library knows tasks by names.
    task: str
    #: What all tries of a task have in common that its library sends as messages of their own.
    story: str
    error_type: str
    bases: list[str]
    error_text: str
    exit_status: int
    traceback: str
    delay_ms: int
    until_ms: int
    retryable: bool
    count: bool


class Dead(NamedTuple):
    """Dead letters in one queue that share a cause (contract.cause)."""

    queue: Queue
    cause: int
    #: OTHER_FAULT, where its group was folded.
    fault_id: int
    #: The queue that they came from; None: not known.
    source: str | None
    reason: str
    sent_back: bool
    messages: int


@dataclass(slots=True, eq=False)
class FaultGroup:
    """Times are broker milliseconds. Its counts stand in the journal."""

    fault_id: int
    fingerprint: str
    #: Where they failed: queues of one name are one, however often it was made.
    queue: str
    error_class: str
    #: Of the first of them, the beginning.
    text: str
    first_ms: int
    last_ms: int
    #: Of some of the latest, oldest first.
    message_ids: list[int] = field(default_factory=list)
    #: When each met it first and last.
    programs: dict[Program, tuple[int, int]] = field(default_factory=dict)
    #: Messages were dead-lettered for it, and may be in a queue still.
    dead_lettered: bool = False
    #: Nothing is reported of it.
    muted: bool = False
    #: The version that it is said to be gone from ("": whichever ran then), since when that is said, and when it was back.
    fixed_in: str | None = None
    fixed_ms: int | None = None
    regressed_ms: int | None = None
    #: When this was recorded last.
    noted_ms: int = 0
    #: Dead letters of it: of each queue that has some, and of each reason (bits of contract.cause), how many.
    dead: dict[tuple[Queue, int], int] = field(default_factory=dict)
    #: What it is charged, in bytes.
    charged: int = 0
    #: Not kept: the hour that failures are counted in, how many came in it, and how many are to be reported next.
    hour: int = -1
    in_hour: int = 0
    report_at: int = 0

    @property
    def weight(self) -> int:
        """What it takes in memory, in bytes."""
        said = len(self.fingerprint) + len(self.queue) + len(self.error_class) + len(self.text)
        return _GROUP_BYTES + said + sum([_PROGRAM_BYTES + sum(map(len, each)) for each in self.programs])

    def is_called(self, name: str) -> bool:
        """Whether its fingerprint is this or begins so. The version in front may be left out, or be an older one."""
        version, _, digits = name.rpartition("-")
        return self.fingerprint.startswith(name) or (version < self.fingerprint.partition("-")[0] and self._digits.startswith(digits))

    @property
    def _digits(self) -> str:
        return self.fingerprint.partition("-")[2]

    def grown(self, number: int, now_ms: int) -> int:
        """Counts failures. How many of this hour are to be reported now: 10, 100, 1,000, …; else 0."""
        hour = now_ms // _HOUR_MS
        if hour != self.hour:
            self.hour, self.in_hour, self.report_at = hour, 0, _GROWN
        self.in_hour += number
        if self.in_hour < self.report_at:
            return 0
        while self.in_hour >= 10 * self.report_at:
            self.report_at *= 10
        grown, self.report_at = self.report_at, 10 * self.report_at
        return grown

    def is_back(self, version: str) -> bool:
        """Whether a failure under this version of the program ("": not reported) says that it is not fixed, and is the first that does."""
        if self.fixed_in is None or self.regressed_ms is not None:
            return False
        return not self.fixed_in or not version or _numbers(version) >= _numbers(self.fixed_in)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
