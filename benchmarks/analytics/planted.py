"""What generate.py planted against what a report on it found: ``python -m benchmarks.analytics.planted DUMP REPORT``.

Read from the report's own files, with the planted truth from beside the export. Consumers and deaths by poison must be equal; an outage
must stand out in the retry load: that is what it is seen by.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.analytics.generate import PLANTED_NAME

#: Outages of fewer messages are noise.
LEAST_MESSAGES = 200
#: Failures a minute in an outage against the hour before it. Ordinary times keep a third of the troubles, an outage nearly all.
TIMES = 1.5


def compare(dump: Path, report: Path) -> dict[str, bool]:
    """What was planted -> whether the report has it, and nothing else of its kind."""
    planted = json.loads((dump / PLANTED_NAME).read_text(encoding="utf-8"))
    consumers = _table(report, "consumers")
    deaths: dict[tuple[str, str], int] = {}
    for row in _table(report, "dead_letters"):
        key = row["queue"], row["error_class"]
        deaths[key] = deaths.get(key, 0) + row["deaths"]
    return {
        "slow": _named(consumers, "slow") == _named(planted["slow"]),
        "hoarders": _named(consumers, "hoards") == _named(planted["hoarders"]),
        "poison": all(deaths.get((each["queue"], each["error_class"])) == each["deaths"] for each in planted["poison"]),
        "outages": _stand_out(_table(report, "retry_load"), planted["outages"]),
    }


def _table(report: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(report / "parquet" / name).to_pylist()
    return rows


def _named(rows: list[dict[str, Any]], flag: str | None = None) -> set[tuple[str, str]]:
    return {(row["queue"], row["consumer"]) for row in rows if flag is None or row[flag]}


def _stand_out(load: list[dict[str, Any]], outages: list[dict[str, Any]]) -> bool:
    failed = {(row["queue"], row["minute"].astimezone(UTC)): row["failed_first"] for row in load}
    large = [each for each in outages if each["messages"] >= LEAST_MESSAGES]
    return bool(large) and all(_rate(failed, each, 0) >= TIMES * _rate(failed, each, 60) for each in large)


def _rate(failed: dict[tuple[str, datetime], int], outage: dict[str, Any], before: int) -> float:
    """First failures a minute, in whole minutes of an outage, or in the ``before`` minutes before it."""
    begin, end = (datetime.fromtimestamp(outage[name] // 60_000_000 * 60, UTC) for name in ("from_us", "to_us"))
    first, count = (
        (begin - timedelta(minutes=before), before) if before else (begin + timedelta(minutes=1), (end - begin) // timedelta(minutes=1) - 1)
    )
    return sum(failed.get((outage["queue"], first + timedelta(minutes=n)), 0) for n in range(count)) / max(count, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analytics.planted", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("report", type=Path)
    given = parser.parse_args()
    found = compare(given.dump, given.report)
    print(json.dumps(found))
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
