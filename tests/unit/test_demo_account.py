"""The demo's account must notice: every promise it checks is broken here once, on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.demo.account import ClientAccount, ExportAccount, client_account, read_logs, verdict
from examples.demo.events import read_events, sample_events
from examples.demo.processes import DemoError
from examples.make_sample import sample_lines


def entry(what: str, line: int, delivery: int = 1, **more: Any) -> dict[str, Any]:
    return {"what": what, "line": line, "delivery": delivery, "mode": "CLIENT", "at_ns": 0, **more}


def done(line: int, delivery: int = 1) -> list[dict[str, Any]]:
    return [entry(what, line, delivery) for what in ("given", "handled", "confirmed")]


def failures(clients: ClientAccount, dead: set[int], export: ExportAccount) -> list[str]:
    return [check.what for check in verdict(clients, dead, export) if not check.holds]


GOOD_EXPORT = ExportAccount(sent=3, succeeded=2, dead_lettered=1, dead_letters_here=1)


def test_a_good_run_passes() -> None:
    clients = client_account({1, 2, 3}, [*done(1), *done(2), entry("given", 3), entry("failed", 3, error="KeyError")])
    assert failures(clients, {3}, GOOD_EXPORT) == []
    assert (clients.attempts, clients.failures["KeyError"], clients.succeeded_by_mode["CLIENT"]) == (3, 1, {1, 2})


def test_a_lost_message_is_noticed() -> None:
    found = failures(client_account({1, 2, 3}, done(1)), {3}, GOOD_EXPORT)
    assert "nothing lost" in found
    assert "sent = succeeded + dead-lettered" in found


def test_a_message_in_two_places_is_noticed() -> None:
    clients = client_account({1, 2}, [*done(1), *done(2)])
    assert "nothing both succeeded and dead-lettered" in failures(clients, {2}, GOOD_EXPORT)


def test_a_delivery_after_a_confirmed_acknowledgement_is_noticed() -> None:
    clients = client_account({1, 2, 3}, [*done(1), *done(2), entry("given", 1, 2)])
    assert failures(clients, {3}, GOOD_EXPORT) == ["nothing given again after a confirmed acknowledgement"]


def test_a_repeat_after_an_unconfirmed_acknowledgement_is_allowed_and_told() -> None:
    clients = client_account({1, 2, 3}, [entry("given", 1), entry("handled", 1), *done(1, 2), *done(2)])
    assert failures(clients, {3}, GOOD_EXPORT) == []
    assert clients.repeated == {1}


def test_a_count_that_falls_is_noticed() -> None:
    clients = client_account({1, 2, 3}, [entry("given", 1, 3), *done(1, 2), *done(2)])
    assert failures(clients, {3}, GOOD_EXPORT) == ["no delivery count ever fell"]


def test_what_a_killed_consumer_held_must_not_get_stuck() -> None:
    clients = client_account({1, 2, 3}, [entry("held", 2), *done(1)])
    assert "nothing that the killed consumer held got stuck" in failures(clients, {3}, GOOD_EXPORT)


@pytest.mark.parametrize(
    ("export", "broken"),
    [
        (ExportAccount(sent=4, succeeded=2, dead_lettered=1, dead_letters_here=1), "the export alone balances"),
        (ExportAccount(sent=3, succeeded=3, dead_letters_here=1), "the export says what the clients counted"),
        (ExportAccount(sent=3, succeeded=2, dead_lettered=1, dead_letters_here=2), "the export says what the clients counted"),
    ],
)
def test_an_export_that_says_otherwise_is_noticed(export: ExportAccount, broken: str) -> None:
    assert broken in failures(client_account({1, 2, 3}, [*done(1), *done(2)]), {3}, export)


def test_the_torn_last_line_of_a_killed_worker_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "worker.jsonl"
    log.write_text(json.dumps(entry("given", 1)) + "\n" + '{"what": "hand')
    assert [each["what"] for each in read_logs([log])] == ["given"]


def test_the_sample_is_the_same_every_time_and_of_every_size() -> None:
    lines = list(sample_lines())
    assert lines == list(sample_lines())
    assert lines != list(sample_lines(seed=8))
    sizes = sorted(map(len, lines))
    assert len(lines) == 300
    assert 500 <= sizes[0] < 1024
    assert 15_000 < sizes[-1] <= 24_000
    events = sample_events()
    assert {event.address for event in events} >= {"github.push", "github.pull_request", "github.membership"}
    assert 20 <= sum(not event.about_repository for event in events) <= 60


def test_lines_without_an_event_go_to_one_place(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"event": "push", "payload": {"repository": {}}}\n\n{"a": 1}\n{"event": 7}\n')
    found = [(event.line, event.address, event.about_repository) for event in read_events(path)]
    assert found == [(1, "github.push", True), (3, "demo.other", False), (4, "demo.other", False)]


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n"])
def test_input_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(text)
    with pytest.raises(DemoError, match="JSON objects"):
        read_events(path)
    with pytest.raises(DemoError, match="cannot be read"):
        read_events(tmp_path / "missing.jsonl")
