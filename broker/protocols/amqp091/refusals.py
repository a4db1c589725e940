"""Deliveries that a client of a channel refuses, and what it reported of them before: a message to the exchange ``homing.failure`` whose
header ``delivery_tag`` names the delivery (docs/interoperability.md).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final

from ...core.consumer import Consumer
from ...core.dead_letter import REJECTED
from ...core.fault import FailureReport
from ...core.memory import Owner
from ...core.message import MessageReference
from ...core.redelivery import Failure
from ..failures import KINDS, checked_report, failure_of
from .codec import PublishEvent
from .codec_methods import NUMBER
from .codec_properties import read_properties
from .errors import precondition_failed
from .message_mapping import headers_of

#: An unacknowledged delivery: who holds it, under which of the consumer's own tags, and the channel's tag.
Unacked = tuple[Consumer, int, int]
#: How a delivery was refused -> what that is to the broker, and the word for it in the history.
_REFUSALS: Final = {
    REJECTED: (Failure(poison=True), REJECTED),
    "reject": (Failure(), "nack"),
    "nack": (Failure(returned=True), "nack"),
    "recover": (Failure(returned=True), "recover"),
}
_TAG: Final = "delivery_tag"
_PUBLISH: Final = NUMBER["basic.publish"]
#: What the reports of one channel may take, and about what one takes beside its properties.
_MOST_BYTES: Final = 1 << 20
_REPORT_BYTES: Final = 1000


class Reports:
    """Of one channel, until its deliveries are refused, or the channel ends. ``owner``: is charged with them."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        #: By the channel's tag: what was reported, and its size.
        self._reports: dict[int, tuple[FailureReport, int]] = {}
        self._bytes = 0

    def take_in(self, event: PublishEvent, unacked: Container[int]) -> None:
        """Raises AmqpError where that is no report, or of no delivery, or too much."""
        tag, report = _read(event)
        if tag not in unacked:
            raise precondition_failed(f"unknown delivery tag {tag}", _PUBLISH)
        self._forget(tag)
        size = _REPORT_BYTES + 2 * len(event.properties)
        if self._bytes + size > _MOST_BYTES:
            for settled in [each for each in self._reports if each not in unacked]:
                self._forget(settled)
        if self._bytes + size > _MOST_BYTES:
            raise precondition_failed(f"failure reports of one channel take up to {_MOST_BYTES} bytes: settle what was reported", _PUBLISH)
        self._reports[tag] = report, size
        self._charge(size)

    def take(self, tag: int) -> FailureReport | None:
        """What was reported of the delivery, once."""
        return self._forget(tag) if tag in self._reports else None

    def _forget(self, tag: int) -> FailureReport:
        report, size = self._reports.pop(tag, ({}, 0))
        self._charge(-size)
        return report

    def _charge(self, size: int) -> None:
        self._bytes += size
        self._owner.charge(size)

    def clear(self) -> None:
        self._reports.clear()
        self._charge(-self._bytes)

    def __len__(self) -> int:
        return len(self._reports)


def _read(event: PublishEvent) -> tuple[int, FailureReport]:
    """The delivery's tag, and what is reported of it; headers of other meanings are passed over. Raises AmqpError."""
    headers = headers_of(read_properties(event.properties))
    tag = headers.get(_TAG)
    if type(tag) is not int:
        raise precondition_failed(f"a failure report names its delivery in the header {_TAG}, a whole number", _PUBLISH)
    try:
        return tag, checked_report({name: _text(headers[name]) for name in KINDS if name in headers})
    except ValueError as error:
        raise precondition_failed(f"the failure report {error}", _PUBLISH) from None


def _text(value: Any) -> Any:
    """Bytes are text that is not quite UTF-8."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def refused(
    ended: list[Unacked], how: str, reports: Reports
) -> Iterator[tuple[Consumer, list[MessageReference], Failure, str, FailureReport]]:
    """What fails together, and how: as the method says, and as was reported of it."""
    failure, outcome = _REFUSALS[how]
    silent = list[Unacked]() if reports else ended
    for entry in ended if reports else ():
        report = reports.take(entry[2])
        if report is None:
            silent.append(entry)
            continue
        for consumer, references in still_unacked([entry]).items():
            yield consumer, references, failure if failure.poison else failure_of(report), outcome, report
    for consumer, references in still_unacked(silent).items():
        yield consumer, references, failure, outcome, {}


def still_unacked(entries: list[Unacked]) -> dict[Consumer, list[MessageReference]]:
    """The deliveries of each consumer; what the broker took back meanwhile is passed over."""
    found: dict[Consumer, list[MessageReference]] = {}
    last: Consumer | None = None
    for consumer, tag, _ in entries:
        reference = consumer.unsettled.get(tag)
        if reference is not None:
            if consumer is not last:
                last, references = consumer, found.setdefault(consumer, [])
            references.append(reference)
    return found
