"""Would the kill loop notice an export that is not one moment? Exports made by hand beside the logs of one client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.kill_loop.accounting import table
from tests.faults.kill_loop.checker import Rules
from tests.faults.kill_loop.history import History
from tests.faults.kill_loop.moment import Taken, moment

WORK = "work.0"
BEGAN, ENDED = 500.0, 900.0
COUNTS = ("sent", "moved_in", "succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out")
Row = dict[str, Any]


def write(out: Path, name: str, rows: list[Row]) -> None:
    (out / name).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), out / name / "part-00000.parquet")


def export(out: Path, here: list[int], settled: list[int], sent: int, tokens: int = 1, by_consumer: int | None = None) -> Taken:
    """``here`` and ``settled``: numbers of messages; those that succeeded at once are in no row."""
    rows: list[Row] = [{"message_id": number, "queue": WORK, "state": "ready", "outcome": None} for number in here]
    rows += [{"message_id": number, "queue": WORK, "state": "settled", "outcome": "succeeded"} for number in settled]
    rows += [{"message_id": 900 + number, "queue": "tokens.a", "state": "ready", "outcome": None} for number in range(tokens)]
    write(out, "messages", rows)
    succeeded = sent - len(here)
    nothing = dict.fromkeys((*COUNTS, *(f"transient_{name}" for name in COUNTS), "kept"), 0)
    minutes = [nothing | {"queue": WORK, "sent": sent, "succeeded": succeeded}, nothing | {"queue": "tokens.a", "sent": tokens}]
    write(out, "deliveries_by_minute", minutes)
    write(out, "deliveries_by_consumer", [{"queue": WORK, "succeeded": succeeded if by_consumer is None else by_consumer}])
    write(out, "redrives", [{"sent": 0}])
    write(out, "attempts", [{"message_id": number, "queue": WORK, "delivery_count": 1} for number in [0, *settled]])
    return Taken(out, BEGAN, ENDED)


def story(number: int, sent: float, acked: float) -> list[Row]:
    """One message: confirmed 10 ms after it was sent, delivered 20 ms after, its acknowledgement known to be on disk after 10 ms."""
    key, entry = f"k{number}", {"id": number, "queue": WORK}
    events = [
        {"t": sent, "e": "send", "key": key, "queue": WORK},
        {"t": sent + 10, "e": "sent", "key": key, "outcome": "ok"},
        {"t": sent + 20, "e": "deliver", "key": key, "count": 1, "mode": "CLIENT", **entry},
        {"t": acked, "e": "ack", **entry},
        {"t": acked + 10, "e": "acked", "outcome": "ok", **entry},
    ]
    return [{"w": event["t"], "c": "c"} | event for event in events]


def failed(number: int, t: float) -> list[Row]:
    return [{"t": t, "w": t, "c": "c", "e": "fail", "id": number, "queue": WORK, "count": 1, "delay_ms": 0, "how": "nack"}]


#: 1 is gone before, 2 comes and goes while the export is taken, 3 is there all the time, 4 fails before and succeeds meanwhile.
EVENTS = sorted(
    [*story(1, 100, 200), *story(2, 600, 800), *story(3, 300, 1000), *failed(4, 400), *story(4, 350, 850)], key=lambda e: e["t"]
)


def broken(taken: Taken) -> list[str]:
    return [str(violation) for violation in moment(taken, History(EVENTS), Rules(tokens=1)).violations() if "tokens" not in violation.text]


@pytest.mark.parametrize(
    ("here", "settled", "sent"),
    [([3, 4], [], 3), ([2, 3, 4], [], 4), ([3], [4], 4)],
    ids=["before 2 came", "while 2 was there", "after 4 had succeeded"],
)
def test_every_moment_is_as_good_as_another(tmp_path: Path, here: list[int], settled: list[int], sent: int) -> None:
    taken = export(tmp_path / "export", here, settled, sent)
    found = moment(taken, History(EVENTS), Rules(tokens=1))
    # What this account leaves out: the token was sent by nobody here.
    assert [str(v) for v in found.violations() if not v.text.startswith("sent")] == []
    assert found.facts >= 3


def test_a_message_of_before_beside_one_of_after_is_no_moment(tmp_path: Path) -> None:
    """2 is there still, and 4, which was acknowledged after 2 was known to be gone, has succeeded."""
    (text,) = (text for text in broken(export(tmp_path / "export", [2, 3], [4], 4)) if "no moment" in text)
    assert "message 4 of work.0 has succeeded, and was about to be acknowledged" in text
    assert "message 2 of work.0 was acknowledged on disk, and it is still there" in text


def test_the_past_and_the_future_are_no_moment_of_the_export(tmp_path: Path) -> None:
    assert any("another time than its own" in text for text in broken(export(tmp_path / "past", [1, 3, 4], [], 3)))
    assert any("another time than its own" in text for text in broken(export(tmp_path / "future", [], [4], 4)))


@pytest.mark.parametrize(("ttl_ms", "noticed"), [(0, True), (50, False)])
def test_what_expires_unseen_under_another_number_says_nothing(tmp_path: Path, ttl_ms: int, noticed: bool) -> None:
    """5 is delivered before it is on disk, and lost by a kill; sent again it has another number, which nobody sees."""
    send, confirmed, delivered, *_ = story(5, 200, 230)
    events = sorted([*EVENTS, send | {"ttl_ms": ttl_ms}, confirmed, delivered], key=lambda e: e["t"])
    found = moment(export(tmp_path / "export", [3], [4], 4), History(events), Rules(tokens=1))
    assert any("message 5 of work.0 was confirmed, and it is not there" in str(each) for each in found.violations()) is noticed


def test_sums_that_do_not_agree_are_told(tmp_path: Path) -> None:
    assert any("by its consumers" in text for text in broken(export(tmp_path / "export", [3, 4], [], 3, by_consumer=5)))
    assert any("the clients counted" in text for text in broken(export(tmp_path / "more", [3, 4], [], 30)))
    torn = moment(export(tmp_path / "torn", [3, 4], [], 3, tokens=2), History(EVENTS), Rules(tokens=1))
    assert any("the export shows 2 tokens, and there are 0 to 1" in violation.text for violation in torn.violations())


def test_rows_are_read_whatever_the_partitions(tmp_path: Path) -> None:
    export(tmp_path / "export", [3, 4], [], 3)
    assert {row["queue"] for row in table(tmp_path / "export", "messages", ["queue"])} == {WORK, "tokens.a"}
