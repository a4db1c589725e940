"""Deliveries that a client of a channel refuses, or reported as failed before it went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...core.consumer import Consumer
from ...core.dead_letter import REJECTED
from ...core.fault import AttemptOutcome, FailureReport
from ...core.message import MessageReference
from ...core.redelivery import Failure
from .reports import Reports
from .unacked import Unacked

#: How a delivery was refused -> what that is to the broker, and the word for it in the history.
_REFUSALS: Final[dict[str, tuple[Failure, AttemptOutcome]]] = {
    REJECTED: (Failure(poison=True), REJECTED),
    "reject": (Failure(), "nack"),
    "nack": (Failure(returned=True), "nack"),
    "recover": (Failure(returned=True), "recover"),
    # Reported of, and not refused before its channel was closed, or its connection lost.
    "closed": (Failure(), "nack"),
    "lost": (Failure(), "connection-lost"),
}


def refused(
    ended: list[Unacked], how: str, reports: Reports
) -> Iterator[tuple[Consumer, list[MessageReference], Failure | None, AttemptOutcome, FailureReport]]:
    """What fails together, and how: as the method says, and as was reported of it (None: as that has it)."""
    failure, outcome = _REFUSALS[how]
    silent = list[Unacked]() if reports else ended
    for entry in ended if reports else ():
        report = reports.take(entry[2])
        if report is None:
            silent.append(entry)
            continue
        for consumer, references in still_unacked([entry]).items():
            yield consumer, references, failure if failure.poison else None, outcome, report
    for consumer, references in still_unacked(silent).items():
        yield consumer, references, failure, outcome, {}


def still_unacked(entries: list[Unacked], acknowledged: Reports | None = None) -> dict[Consumer, list[MessageReference]]:
    """The deliveries of each consumer; what the broker took back meanwhile is passed over. ``acknowledged``: of those that are now."""
    found: dict[Consumer, list[MessageReference]] = {}
    last: Consumer | None = None
    for consumer, own, tag in entries:
        reference = consumer.unsettled.get(own)
        if reference is not None:
            if reference.cause and acknowledged is not None:
                acknowledged.succeeded(tag, reference)
            if consumer is not last:
                last, references = consumer, found.setdefault(consumer, [])
            references.append(reference)
    return found
