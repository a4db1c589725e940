"""How many fault groups there are is bounded: the least recent is folded into one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from homing.broker.core.fault import FaultGroup
from homing.broker.core.message import Message, MessageReference
from homing.broker.core.queue import Queue
from homing.broker.core.settings.address_settings import AddressSettings
from homing.broker.recording import fault_groups
from homing.broker.recording.fault_groups import OTHER, FaultGroups
from homing.journal.commit.batch import WriteBatch
from homing.journal.contract import FaultStat


def failed(groups: FaultGroups, kind: str, number: int = 1) -> MessageReference:
    queue = Queue(1, "q", "q", "anycast", AddressSettings(), created_at_ms=0)
    references = [MessageReference(Message(n, "q", b""), queue, n, 0) for n in range(number)]
    groups.failed("q", references, (f"2-{kind}", kind, "text", ""), None, 1_000)
    return references[0]


def test_the_least_recent_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_groups, "MOST", 3)
    batch = WriteBatch()
    groups = FaultGroups(cast(Any, SimpleNamespace(batch=batch)), lambda: 1_000)
    first = failed(groups, "a")
    failed(groups, "b")
    failed(groups, "c")
    failed(groups, "a")
    failed(groups, "d")
    assert [each.error_class for each in groups.by_id.values()] == ["a", "c", "other", "d"]
    ((gone, into),) = batch.faults().folded.items()
    assert into == OTHER
    # What failed so is counted where its group went.
    folded = failed(groups, "a")
    folded.cause = gone << 4
    groups.ended(folded, succeeded=True)
    assert batch.faults().counts(OTHER, 1_000)[FaultStat.SUCCEEDED] == 1
    assert first.cause == next(iter(groups.by_id)) << 4


@pytest.mark.parametrize(
    ("fixed_in", "version", "back"),
    [("1.5", "1.4.9", False), ("1.5", "1.5", True), ("1.5", "1.10", True), ("1.5", "", True), ("", "0.1", True), (None, "9", False)],
)
def test_a_failure_of_a_fixed_release_is_a_return(fixed_in: str | None, version: str, back: bool) -> None:
    group = FaultGroup(2, "2-a", "q", "E", "", 0, 0, fixed_in=fixed_in, fixed_ms=0)
    assert group.is_back(version) is back
    group.regressed_ms = 5
    assert not group.is_back(version)
