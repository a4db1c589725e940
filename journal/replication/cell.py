"""What the database tells of a cell in one answer: how the log stands, who led before, and what each member said of itself. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from .leadership import Hindrance
from .log import Standing

#: Of a member that is there something is heard each second.
HEARD_S: Final = 5.0


class Seen(NamedTuple):
    """A member, as it said ``seen_s`` ago. ``process``: "" once it stopped in order. ``addresses``: of its listeners, by protocol, in JSON;
    ``reads``: up to which version of entries. ``behind_ms``: for how long it has lacked something. ``lost``: the
    position of its last entry, packed, where the log lacks that."""

    node: str
    process: str
    addresses: str
    version: str
    reads: int
    applied: int
    durable: int
    behind_ms: int
    hindrance: str
    lost: bytes | None
    seen_s: float


class Cell(NamedTuple):
    """``clock_ms``: the database's. ``led_s``: for how long whoever leads has served; None: it does not yet. ``before``: who led before,
    ``why`` no longer, "" where nobody did, and for how long nobody was served then. ``fail_overs``: leaders that were taken for gone."""

    standing: Standing
    broker_id: str = ""
    clock_ms: int = 0
    led_s: float | None = None
    before: str = ""
    why: str = ""
    gap_s: float | None = None
    fail_overs: int = 0
    #: What the log's tables take.
    log_bytes: int = 0
    members: tuple[Seen, ...] = ()

    @property
    def gap_ms(self) -> int | None:
        return None if self.gap_s is None else round(self.gap_s * 1000)

    def member(self, node: str) -> Seen | None:
        return next((each for each in self.members if each.node == node), None)

    def behind(self, member: Seen) -> int:
        """How many entries it lacks. A leader lacks nothing, and what it says is a second old."""
        return 0 if self.leads(member) else max(0, self.standing.last - member.applied)

    def behind_s(self, member: Seen) -> float:
        """For how long it has lacked any, also where it is gone."""
        silent_s = member.seen_s if member.seen_s > HEARD_S else 0.0
        return 0.0 if self.leads(member) else max(member.behind_ms / 1000, silent_s)

    def leads(self, member: Seen) -> bool:
        return bool(member.process) and member.process == self.standing.process

    def state(self, member: Seen) -> str:
        if member.lost is not None:
            return "log-lost"
        if not member.process:
            return "stopped"
        if member.seen_s > HEARD_S:
            return "away"
        if member.hindrance == Hindrance.COPY:
            return "rebuilding"
        return "leading" if self.leads(member) else "standby"
