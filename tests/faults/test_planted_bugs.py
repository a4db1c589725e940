"""The referee is only worth something if it finds faults: brokers with a planted one are killed until it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.kill_loop.checker import Kind
from tests.faults.kill_loop.loop import KillLoop, Options

#: Long enough for messages to fail often enough to die.
LIVES_MS = (900, 1500)
MOST_ROUNDS = 12

pytestmark = [pytest.mark.timeout(150), pytest.mark.slow]


def _found(directory: Path, fault: str, kind: Kind, paged: bool = False) -> list[str]:
    least_ms, most_ms = LIVES_MS
    module = f"tests.faults.planted.{fault}"
    options = Options(rounds=MOST_ROUNDS, seed=1, least_ms=least_ms, most_ms=most_ms, module=module, paged=paged, until=kind)
    result = KillLoop(directory, options).run()
    return [violation.text for violation in result.violations if violation.kind is kind]


def test_an_answer_before_the_commit_is_found_as_a_loss(tmp_path: Path) -> None:
    assert _found(tmp_path, "ack_before_commit", Kind.LOST)


def test_a_delivery_count_that_a_restart_forgets_is_found_as_a_fall(tmp_path: Path) -> None:
    assert _found(tmp_path, "count_reset", Kind.COUNT_FELL)


@pytest.mark.plain
def test_a_failed_message_that_is_not_kept_is_found_as_a_loss(tmp_path: Path) -> None:
    assert _found(tmp_path, "failed_not_kept", Kind.LOST)


@pytest.mark.plain
def test_a_dead_letter_left_in_its_queue_is_found_in_two_queues(tmp_path: Path) -> None:
    found = _found(tmp_path, "dead_letter_left", Kind.IN_TWO_QUEUES)
    assert found
    # A redrive may have sent the dead letter back to where it had been left.
    assert all(re.search(r"DLQ\.|(work\.\d+) and .*\1", text) for text in found)


def test_a_confirm_of_a_group_that_the_journal_dropped_is_found_as_a_loss(tmp_path: Path) -> None:
    assert _found(tmp_path, "batch_dropped", Kind.LOST)


@pytest.mark.campaign
def test_a_page_that_shows_what_is_being_deleted_is_found_as_a_duplicate(tmp_path: Path) -> None:
    assert _found(tmp_path, "page_shows_deleted", Kind.DUPLICATED, paged=True)


@pytest.mark.plain
@pytest.mark.campaign
def test_a_cursor_that_passes_over_messages_is_found_when_they_never_come(tmp_path: Path) -> None:
    options = Options(rounds=1, seed=1, module="tests.faults.planted.cursor_skips", paged=True, settle_s=4.0)
    violations = KillLoop(tmp_path, options).run().violations
    assert Kind.STUCK in {violation.kind for violation in violations}
