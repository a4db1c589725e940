"""Why a dead letter is one: its latest hop, and the last attempt that the broker has on record."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from ..answers.failures import Hop, Messages
from ..answers.lives import Attempt, RefusedAttempt
from ..answers.parts import ErrorOfFault, Fields, Properties
from ..core.settings.units import counted
from .amounts import clock
from .timeline import ENDINGS, REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from homing.client import Connection

#: The property with all hops, newest first (docs/protocol.md, 2.6).
HOPS: Final = "_HOMING_HOPS"
#: Queue entries that the broker is asked about in one call.
_AT_A_TIME: Final = 100
#: What stands for the error type of a fault that has none: how its deliveries ended, why its messages were dead-lettered, or many faults.
_NO_ERRORS: Final = (*ENDINGS, *REASONS, "other")

Hops = list[Hop]


@dataclass(frozen=True)
class Death:
    """``fault``: its number; ``error``: type and text; ``said``: the reason given with the failure; None where nobody said, or the history
    has ended, or was never kept: of what is transient. ``fault_text``: of the fault's first failure, where of this one there
    is no attempt on record. ``refused``: the right without which none of this is told."""

    reason: str
    queue: str
    address: str
    attempts: int
    died_at_ms: int
    failed_at_ms: int | None
    outcome: str | None
    fault: str | None
    error_type: str | None
    error: str | None
    said: str | None
    fault_text: str | None = None
    refused: str | None = None

    def shown(self) -> Properties:
        return asdict(self)

    def sentence(self) -> str:
        what, cause = REASONS.get(self.reason, self.reason), self._cause()
        tries = f" after {counted(self.attempts, 'failed attempt')}" if self.attempts else ""
        return f"dead-lettered from {self.queue} at {clock(self.died_at_ms, date=True)}{tries}: {f'{what}; {cause}' if cause else what}"

    def _cause(self) -> str | None:
        """What the last failure was; None where the reason says it."""
        if self.error or self.said:
            return self.error or self.said
        if like := ": ".join(filter(None, (self.error_type, self.fault_text))):
            return f"like others of its fault, {like}"
        if self.outcome:
            return ENDINGS.get(self.outcome, self.outcome) if self.outcome != self.reason else None
        if self.refused:
            return f"what it failed of is told to whoever may {self.refused} {self.queue}"
        if not self.attempts:
            return None
        return "nobody said why" if self.fault else "what it failed of is not known here"


def hops_in(properties: Properties | None) -> Hops:
    """Of a message that was received; empty unless it was dead-lettered before."""
    reported = (properties or {}).get(HOPS)
    return json.loads(reported) if isinstance(reported, str) else []


async def deaths_in(connection: Connection, page: Messages) -> list[Death | None]:
    """The same of each message of an answer of ``peek``, which has its fault also where no attempt is on record any more."""
    messages = page["messages"]
    # One that failed again elsewhere may have another fault by now.
    faults = [None if each["failed"] else each["fault"] for each in messages]
    deaths = await deaths_of(connection, [each["hops"] for each in messages])
    told = zip(deaths, faults, messages, strict=True)
    return [death and _with_fault(replace(death, refused=death.refused or each.get("refused")), fault) for death, fault, each in told]


async def deaths_of(connection: Connection, hops: Sequence[Hops]) -> list[Death | None]:
    """For each message's hops its latest death, None for one that was never dead-lettered."""
    latest = [each[0] for each in hops if each]
    attempts: list[Attempt | RefusedAttempt | None] = []
    for start in range(0, len(latest), _AT_A_TIME):
        entries = [[hop["message_id"], hop["sequence"]] for hop in latest[start : start + _AT_A_TIME]]
        attempts += await connection.call("last-attempts", stays=entries)
    deaths = iter([_death(hop, attempt or {}) for hop, attempt in zip(latest, attempts, strict=True)])
    return [next(deaths) if each else None for each in hops]


def _death(hop: Hop, attempt: Fields) -> Death:
    fault = attempt.get("fault") or {}
    error = ": ".join(str(fault[key]) for key in ("error_type", "error_text") if fault.get(key))
    return Death(
        reason=hop["reason"],
        queue=hop["queue"],
        address=hop["address"],
        attempts=hop["attempts"],
        died_at_ms=hop["at_ms"],
        failed_at_ms=attempt.get("at_ms"),
        outcome=attempt.get("outcome"),
        fault=fault.get("fingerprint"),
        error_type=fault.get("error_type"),
        error=error or None,
        said=fault.get("reason"),
        refused=attempt.get("refused"),
    )


def _with_fault(death: Death, fault: ErrorOfFault | None) -> Death:
    """``fault``: as the broker shows it with the message."""
    if fault is None:
        return death
    error_class = fault["error_class"]
    error_type = None if error_class in _NO_ERRORS else error_class
    text = fault["text"] or None if death.outcome is None else None
    # One without a report is of its deliveries' ending.
    outcome = death.outcome or (error_class if death.attempts and error_class in ENDINGS else None)
    number = death.fault or fault["fault"]
    return replace(death, outcome=outcome, fault=number, error_type=death.error_type or error_type, fault_text=text)
