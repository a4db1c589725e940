"""The rival and the second opinion: overview, attempts to success and dead letters by DuckDB, from the same files, in SQL of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

OVERVIEW = """
WITH counts AS (
  SELECT queue, {sums} FROM read_parquet('{dump}/deliveries_by_minute/*.parquet') GROUP BY queue
), still AS (
  SELECT queue, count(*) FILTER (state = 'ready') AS ready, count(*) FILTER (state = 'scheduled') AS scheduled,
         count(*) FILTER (state = 'parked') AS parked
  FROM read_parquet('{dump}/messages/*.parquet') WHERE state <> 'settled' GROUP BY queue
)
SELECT queue, {counts}, coalesce(ready, 0), coalesce(scheduled, 0), coalesce(parked, 0),
       coalesce(ready, 0) + coalesce(scheduled, 0) + coalesce(parked, 0)
FROM counts FULL JOIN still USING (queue)
"""
COUNTS = "sent moved_in delivered succeeded first_try failed dead_lettered expired dropped purged moved_out".split()

ATTEMPTS = """
WITH each AS (
  SELECT queue, 1 AS attempts, sum(first_try)::BIGINT AS messages FROM read_parquet('{dump}/deliveries_by_minute/*.parquet')
  GROUP BY queue HAVING sum(first_try) > 0
  UNION ALL
  SELECT queue, attempts, count(*) FROM read_parquet('{dump}/messages/*.parquet')
  WHERE outcome = 'succeeded' AND failed_attempts > 0 GROUP BY queue, attempts
)
SELECT queue, attempts, messages FROM each
"""

DEAD_LETTERS = """
SELECT queue, coalesce(error_class, reason, 'not on record') AS kind,
       CASE WHEN age_s < 3600 THEN 0 WHEN age_s < 86400 THEN 1 WHEN age_s < 604800 THEN 2 ELSE 3 END AS age,
       count(*), count(*) FILTER (len(lies_in) > 0), min(died_us), max(died_us)
FROM (SELECT *, epoch_us(died_at) AS died_us, ({exported_at_us} - epoch_us(died_at)) / 1000000 AS age_s
      FROM read_parquet('{dump}/dead_letters/*.parquet'))
GROUP BY ALL
"""


def tables(dump: Path, exported_at_us: int, threads: int | None = None) -> dict[str, list[tuple[Any, ...]]]:
    """table -> rows, sorted. Columns: queue and counts; queue, attempts, messages; queue, class, age, deaths, remaining, first, last."""
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in COUNTS)
    counts = ", ".join(f"coalesce({name}, 0)" for name in COUNTS)
    asked = {"overview": OVERVIEW, "attempts_to_success": ATTEMPTS, "dead_letters": DEAD_LETTERS}
    with duckdb.connect(config={} if threads is None else {"threads": threads}) as connection:
        connection.execute("SET enable_progress_bar = false")
        filled = {name: sql.format(dump=dump, sums=sums, counts=counts, exported_at_us=exported_at_us) for name, sql in asked.items()}
        return {name: sorted(connection.execute(sql).fetchall()) for name, sql in filled.items()}
