"""Every figure of a report beside what the clients know of it."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from homing.analytics.input.schema import MANIFEST_NAME
from tests.truth.account import Account, reported, within
from tests.truth.bounds import MINUTE_US, Within, near
from tests.truth.expected import LIMITED, TABLES, WHOLE, Table, ends_of, groups_of
from tests.truth.lives import Row, Rows, failed_lives
from tests.truth.over_time import Maybe
from tests.truth.second_opinion import incidence


class Figure(NamedTuple):
    broker: int | None
    table: str
    row: tuple[Any, ...]
    name: str
    true: Any
    reported: Any

    @property
    def agrees(self) -> bool:
        return bool(self.reported == self.true)

    def __str__(self) -> str:
        return f"{self.table} {self.row}: {self.name} is {self.reported}, not {self.true}"


def whole_from(manifests: list[dict[str, Any]]) -> int:
    """From when on, by the whole minute, all of a broker's history is in its exports together, as they say of themselves."""
    latest, *earlier = sorted(manifests, key=lambda each: -each["exported_at_us"])
    begin_us = latest["history_from_us"] or 0
    for each in earlier:
        if each["exported_at_us"] >= begin_us:
            begin_us = min(begin_us, each["history_from_us"] or 0)
    return -(-begin_us // MINUTE_US) * MINUTE_US


def compared(
    accounts: list[Account], dumps: list[list[Path]], report: Path, since_us: int = 0, until_us: int | None = None
) -> list[Figure]:
    """Of each broker and of all together; ``dumps``: what was exported of each, the last one first; and which time was asked for."""
    names = {each.name for each in (report / "parquet").iterdir()}
    assert names <= TABLES.keys(), f"nobody knows what {names - TABLES.keys()} should be"
    tables = {name: pq.read_table(report / "parquet" / name).to_pylist() for name in names}
    manifests = [[json.loads((dump / MANIFEST_NAME).read_text()) for dump in each] for each in dumps]
    exported_us = min(max(each["exported_at_us"] for each, *_ in manifests), until_us or sys.maxsize)
    cut = []
    for account, each in zip(accounts, manifests, strict=True):
        begin_us, end_us = max(since_us, whole_from(each)), until_us or sys.maxsize
        fine_us = each[0]["exported_at_us"] - account.history_us if account.history_us else 0
        cut.append(within(account, begin_us, end_us, fine_us))
    whole = reported(cut, exported_us)
    found = list(_of_one(None, None, whole, tables))
    for number, (account, (manifest, *_)) in enumerate(zip(cut, manifests, strict=True)):
        found += _of_one(number, manifest["broker_id"], account, tables)
    return found


def _of_one(number: int | None, broker_id: str | None, account: Account, tables: dict[str, list[Row]]) -> Iterator[Figure]:
    """``broker_id`` None: of all brokers together, where what is told has no queue."""
    for name, all_rows in tables.items():
        if name not in WHOLE if broker_id is None else name == "recent_load":
            continue
        table, rows = TABLES[name], [row for row in all_rows if row.get("broker_id") == broker_id and row.get("by") != "time"]
        expected = {key: row for key, row in table.reckon(account).items() if name not in WHOLE or _is_of(key[0], broker_id)}
        of_all = len(all_rows) < LIMITED.get(name, len(all_rows) + 1)
        yield from _of_table(number, name, table, expected, in_turn(rows) if name == "outages" else rows, of_all)
    by_time = [row for row in tables.get("survival", []) if row["by"] == "time" and row["broker_id"] == broker_id]
    yield from _by_time(number, broker_id, account, by_time)


def _of_table(number: int | None, name: str, table: Table, expected: Rows, rows: list[Row], of_all: bool) -> Iterator[Figure]:
    """``of_all``: no row was left out for want of room."""
    yield Figure(number, name, (), "rows of one name", 1, max(Counter(key_of(table, row) for row in rows).values(), default=1))
    found = {key_of(table, row): row for row in rows}
    open_queues = {key[0] for key in expected if key[1:] == ("open",)}
    for key, row in found.items():
        if key[0] in open_queues:
            continue
        if key not in expected:
            yield Figure(number, name, key, "the row", None, row)
            continue
        for column in row.keys() - {*table.key, *table.unknown, "broker_id"}:
            # A column that nobody reckons differs from everything.
            yield Figure(number, name, key, column, expected[key].get(column, "unknown"), row[column])
    if of_all:
        for key, figures in expected.items():
            if key not in found and not isinstance(figures, Maybe) and key[0] not in open_queues:
                yield Figure(number, name, key, "the row", figures, None)


def key_of(table: Table, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in table.key)


def in_turn(rows: list[Row]) -> list[Row]:
    """Each with its number among those of its queue and error class, by time."""
    turns: Counter[tuple[str, str]] = Counter()
    found = []
    for row in sorted(rows, key=lambda row: row["from_at"]):
        fault = row["queue"], row["error_class"]
        found.append(row | {"turn": turns[fault]})
        turns[fault] += 1
    return found


def _is_of(queue: Any, broker_id: str | None) -> bool:
    """Of all brokers together what is told of queues has none; a second, too, is no queue."""
    return isinstance(queue, str) == (broker_id is not None)


def _by_time(number: int | None, broker_id: str | None, account: Account, reported: list[Row]) -> Iterator[Figure]:
    """The curves by time: who had ended by when, within the clients' bounds; and what follows from the rows' own counts."""
    of_group: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in reported:
        of_group[row["queue"], row["error_class"]].append(row)
    every = groups_of([life for life in failed_lives(account) if life.seen])
    groups = {key: group for key, group in every.items() if _is_of(key[0], broker_id)}
    for key in of_group.keys() - groups.keys():
        yield Figure(number, "survival", key, "the curve", None, of_group[key])
    for key, group in groups.items():
        rows = sorted(of_group[key], key=lambda row: row["at"])
        for name in ("succeeded", "died", "censored"):
            times = [life.took for life in group if ends_of(life) == name]
            so_far = 0
            for row in rows:
                so_far += row[name]
                bounds = Within(sum(each[1] <= row["at"] for each in times), sum(each[0] - 1 <= row["at"] for each in times))
                yield Figure(number, "survival", (*key, "time", row["at"]), f"{name} so far", bounds, so_far)
            yield Figure(number, "survival", (*key, "time"), f"{name} in all", len(times), so_far)
        curve = incidence({row["at"]: (row["succeeded"], row["died"], row["censored"]) for row in rows})
        for row, (left, home, dead) in zip(rows, curve.values(), strict=True):
            for name, true in (("at_risk", left), ("came_home", near(home)), ("dead", near(dead)), ("rounded", False)):
                yield Figure(number, "survival", (*key, "time", row["at"]), name, true, row[name])
