"""What a client of a channel reports of a delivery that failed: a message to the exchange ``homing.failure`` whose header ``delivery_tag``
names the delivery (docs/interoperability.md).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, NamedTuple

from ...core.fault import FailureReport
from ...core.memory import Owner
from ...core.message import MessageReference, Trouble
from ...errors import Refused
from ..failures import KINDS, checked_report
from .codec import AckEvent, AmqpError, PublishEvent
from .codec_methods import NUMBER
from .codec_properties import read_properties
from .codec_tables import Fields, TableError
from .errors import precondition_failed, unknown_tag
from .message_mapping import headers_of

_TAG: Final = "delivery_tag"
_QUIET: Final = "quiet"
_ALSO_ACKNOWLEDGED: Final = "also_acknowledged"
_PUBLISH: Final = NUMBER["basic.publish"]
#: What the reports of one channel may take, and about what one takes beside its properties.
_MOST_BYTES: Final = 1 << 20
_REPORT_BYTES: Final = 1000
#: Of those that came after the settlement: each counts once.
_REMEMBERED: Final = 10_000
#: Of those that had failed before and were acknowledged, and what one takes.
_SUCCEEDED: Final = 1000
_SUCCEEDED_BYTES: Final = 200


class Settled(NamedTuple):
    """A report of a delivery that was settled before."""

    event: PublishEvent
    headers: Fields
    report: FailureReport
    #: What it was counted as when it was acknowledged, where it had failed before.
    before: Trouble | None = None


class Reports:
    """Of one channel, until its deliveries are refused, or the channel ends.

    ``owner``: is charged with them. ``introduced``: called with what a program says of itself, by name; ``settled``: with what is reported
    of a delivery that was settled before, once.
    """

    def __init__(self, owner: Owner, introduced: Callable[[dict[str, str]], None], settled: Callable[[Settled], None]) -> None:
        self._owner = owner
        self._introduced = introduced
        self._settled = settled
        #: By tag: those that were settled before.
        self._counted: dict[int, None] = {}
        #: By tag: of what has succeeded, for all that is known, and had failed before.
        self._succeeded: dict[int, Trouble] = {}
        #: By the channel's tag: what was reported, its size, and all of it where it counts after an acknowledgement, too.
        self._reports: dict[int, tuple[FailureReport, int, Settled | None]] = {}
        self._bytes = 0

    def take_in(self, event: PublishEvent, unacked: Container[int], next_tag: int) -> bool:
        """Whether it is to be confirmed. ``next_tag``: lower ones were given out. Raises AmqpError where that is no report, or of no
        delivery, or too much; Refused where the broker refuses it.

        With ``quiet``, as what instruments programs has it, nothing is raised, and it does not count among what the channel publishes.
        """
        headers = headers_of(read_properties(event.properties))
        quiet = headers.get(_QUIET) is True
        try:
            if quiet and _TAG not in headers:
                self._introduced({name: value for name, value in headers.items() if isinstance(value, str)})
            else:
                tag, report = _read(headers)
                if tag in unacked:
                    self._keep(tag, Settled(event, headers, report), unacked)
                elif 0 < tag < next_tag:
                    self._count(tag, Settled(event, headers, report))
                else:
                    raise unknown_tag(tag, _PUBLISH)
        except (AmqpError, Refused, TableError):
            if not quiet:
                raise
        return not quiet

    def _count(self, tag: int, settled: Settled) -> None:
        if tag in self._counted:
            return
        self._settled(settled._replace(before=self._forget_success(tag)))
        self._counted[tag] = None
        if len(self._counted) > _REMEMBERED:
            del self._counted[next(iter(self._counted))]

    def _keep(self, tag: int, settled: Settled, unacked: Container[int]) -> None:
        self._forget(tag)
        event, also = settled.event, settled.headers.get(_ALSO_ACKNOWLEDGED) is True
        size = _REPORT_BYTES + 2 * len(event.properties)
        if self._bytes + size > _MOST_BYTES:
            for done in [each for each in self._reports if each not in unacked]:
                self._forget(done)
        if self._bytes + size > _MOST_BYTES:
            raise precondition_failed(f"failure reports of one channel take up to {_MOST_BYTES} bytes: settle what was reported", _PUBLISH)
        carried = len(event.body or b"") if also else 0
        if self._bytes + size + carried > _MOST_BYTES:
            # It is reported, and no dead letter can be made of it.
            settled, carried = settled._replace(event=event._replace(body=None)), 0
        size += carried
        self._reports[tag] = settled.report, size, settled if also else None
        self._charge(size)

    def acknowledged(self, event: AckEvent) -> None:
        """Of these nothing was told, or what counts nevertheless."""
        tags = event.tags
        if event.multiple:
            tags = [each for each in self._reports if each <= max(tags) or 0 in tags]
        for tag in tags:
            settled = self._reports[tag][2] if tag in self._reports else None
            self._forget(tag)
            if settled is not None:
                self._count(tag, settled)

    def succeeded(self, tag: int, reference: MessageReference) -> None:
        """One that had failed before is acknowledged. The last of them are remembered: a report may still take it back."""
        self._succeeded[tag] = reference.trouble
        self._owner.charge(_SUCCEEDED_BYTES)
        if len(self._succeeded) > _SUCCEEDED:
            self._forget_success(next(iter(self._succeeded)))

    def _forget_success(self, tag: int) -> Trouble | None:
        found = self._succeeded.pop(tag, None)
        if found is not None:
            self._owner.charge(-_SUCCEEDED_BYTES)
        return found

    def take(self, tag: int) -> FailureReport | None:
        """What was reported of the delivery, once."""
        return self._forget(tag) if tag in self._reports else None

    def _forget(self, tag: int) -> FailureReport:
        report, size, _ = self._reports.pop(tag, ({}, 0, None))
        self._charge(-size)
        return report

    def _charge(self, size: int) -> None:
        self._bytes += size
        self._owner.charge(size)

    @property
    def tags(self) -> list[int]:
        return list(self._reports)

    def clear(self) -> None:
        self._reports.clear()
        self._charge(-self._bytes)
        self._owner.charge(-_SUCCEEDED_BYTES * len(self._succeeded))
        self._succeeded.clear()

    def __len__(self) -> int:
        return len(self._reports)


def _read(headers: Fields) -> tuple[int, FailureReport]:
    """The delivery's tag, and what is reported of it; headers of other meanings are passed over. Raises AmqpError."""
    tag = headers.get(_TAG)
    if type(tag) is not int:
        raise precondition_failed(f"a failure report names its delivery in the header {_TAG}, a whole number", _PUBLISH)
    try:
        report = checked_report({name: _text(headers[name]) for name in KINDS if name in headers})
    except ValueError as error:
        raise precondition_failed(f"the failure report {error}", _PUBLISH) from None
    if isinstance(story := headers.get("story"), str) and story:
        report["story"] = story
    return tag, report


def _text(value: object) -> object:
    """Bytes are text that is not quite UTF-8."""
    if isinstance(value, list):
        return [_text(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
