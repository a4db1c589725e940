"""A second opinion on tables of the report: what DuckDB says of the same export, in SQL by definitions of its own.

duck.py has the three that are raced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

#: table -> its columns and the SQL that says the same of the files, by definitions of its own; of one broker.
OPINIONS = {
    "retry_load": (
        "queue minute succeeded_first succeeded_retry failed_first failed_retry retries wasted failed_ms",
        """
WITH wasted AS (
  SELECT queue, date_trunc('minute', settled_at) AS minute, sum(failed_attempts - 1)::BIGINT AS wasted FROM {messages}
  WHERE failed_attempts > 1 AND outcome IN ('dead-lettered', 'dropped') GROUP BY ALL
), load AS (
  SELECT queue, minute, sum(first_try) AS f, sum(succeeded) AS s, sum(failed_first) AS ff, sum(failed) AS x, sum(failed_ms) AS ms
  FROM {deliveries_by_minute} WHERE succeeded + failed > 0 GROUP BY ALL
)
SELECT queue, minute, coalesce(f, 0), coalesce(s - f, 0), coalesce(ff, 0), coalesce(x - ff, 0), coalesce(s - f + x - ff, 0),
       coalesce(wasted, 0), coalesce(ms, 0) FROM load FULL JOIN wasted USING (queue, minute)""",
    ),
    "recent_load": (
        "second failed_first failed_retry succeeded_retry",
        """
SELECT date_trunc('second', "at") AS second, count(*) FILTER (n = 1), count(*) FILTER (n > 1), count(*) FILTER (n = 0) FROM (
  SELECT "at", attempt AS n FROM {attempts} UNION ALL
  SELECT settled_at, 0 FROM {messages} WHERE outcome = 'succeeded' AND failed_attempts > 0)
WHERE epoch_us("at") >= {at_us} - 600000000 GROUP BY second""",
    ),
    "thundering_herds": (
        "queue second due herded",
        """
WITH seconds AS (
  SELECT queue, date_trunc('second', due_at) AS second, count(*) AS due, epoch_us(max("at")) - epoch_us(min("at")) AS spread_us
  FROM {attempts} WHERE due_at IS NOT NULL GROUP BY ALL
), beside AS (SELECT *, sum(due) OVER q - due AS rest, count(*) OVER q - 1 AS others FROM seconds WINDOW q AS (PARTITION BY queue))
SELECT queue, second, due, spread_us > 5000000 FROM beside
WHERE due >= 20 AND due >= 8 * CASE WHEN others > 0 THEN rest / others ELSE 1 END""",
    ),
    "due_error": (
        "queue retries early max_ms within_10_ms later",
        """
WITH each AS (SELECT *, lag(due_at) OVER e AS was_due, lag(attempt) OVER e AS before FROM {attempts}
  WINDOW e AS (PARTITION BY sequence ORDER BY attempt)),
late AS (SELECT queue, (epoch_us(assigned_at) - epoch_us(was_due) + 999) // 1000 AS ms FROM each
  WHERE before = attempt - 1 AND was_due IS NOT NULL AND assigned_at IS NOT NULL)
SELECT queue, count(*), count(*) FILTER (ms < 0), max(ms) FILTER (ms >= 0), count(*) FILTER (ms BETWEEN 0 AND 10),
       count(*) FILTER (ms > 10000)
FROM late GROUP BY queue""",
    ),
    "flow": (
        "source target why messages first_at last_at",
        """
SELECT queue, target, outcome, count(*), min(settled_at), max(settled_at)
FROM (SELECT *, unnest(target_queues) AS target FROM {messages} WHERE outcome NOT IN ('succeeded', 'dropped', 'purged')) GROUP BY ALL""",
    ),
    "journeys": (
        "way hops messages",
        """
WITH ways AS (
  SELECT message_id, count(*) AS hops, arg_min(queue, sequence)
         || string_agg(CASE WHEN outcome IN ('moved', 'redriven', 'edited', 'delayed') THEN ' ⇒ ' ELSE ' → ' END
                       || target_queues[1], '' ORDER BY sequence) AS way
  FROM {messages} WHERE outcome NOT IN ('succeeded', 'dropped', 'purged') AND len(target_queues) > 0 GROUP BY message_id
)
SELECT way, hops, count(*) FROM ways GROUP BY ALL""",
    ),
    "failed_most": (
        "message_id failed_attempts address queue state last_error_class last_error_text last_failed_at",
        """
WITH failed AS (
  SELECT message_id, sum(failed_attempts)::BIGINT AS failed, max(address) AS address, arg_max(queue, sequence) AS queue,
         arg_max(state, sequence) AS state FROM {messages} GROUP BY message_id HAVING failed > 0 ORDER BY failed DESC, message_id LIMIT 50
), last AS (
  SELECT DISTINCT ON (message_id) message_id, error_class, error_text, "at" FROM {attempts}
  ORDER BY message_id, "at" DESC, sequence DESC, attempt DESC
)
SELECT message_id, failed, address, queue, state, error_class, error_text, "at" FROM failed LEFT JOIN last USING (message_id)""",
    ),
    "dead_letter_growth": (
        "queue hour deaths so_far",
        """
WITH hours AS (SELECT queue, date_trunc('hour', "at") AS hour, count(*) AS deaths FROM (
  SELECT queue, died_at AS "at" FROM {dead_letters} UNION ALL
  SELECT queue, settled_at FROM {messages} WHERE outcome IN ('expired', 'dropped')) GROUP BY ALL)
SELECT queue, hour, deaths, sum(deaths) OVER (PARTITION BY queue ORDER BY hour)::BIGINT FROM hours""",
    ),
    "time_to_success": (
        "queue messages p50_ms p90_ms p99_ms max_ms max_attempts",
        """
WITH home AS (
  SELECT message_id, queue, sum(failed_attempts) AS failed, sum(attempts) AS tries, arg_max(outcome, sequence) AS outcome,
         (epoch_us(max(settled_at)) - epoch_us(min(sent_at))) // 1000 AS ms FROM {messages} WHERE queue = home_queue GROUP BY ALL
)
SELECT queue, count(*), quantile_disc(ms, 0.5), quantile_disc(ms, 0.9), quantile_disc(ms, 0.99), max(ms), max(tries)::BIGINT
FROM home WHERE failed > 0 AND outcome = 'succeeded' GROUP BY queue""",
    ),
    "faults": (
        "queue fingerprint failures dead attempts",
        """
WITH last AS (SELECT queue, fingerprint, CASE WHEN attempt = max(attempt) OVER e THEN attempt - count(*) OVER e ELSE 0 END AS lost
  FROM {attempts} WINDOW e AS (PARTITION BY sequence)),
met AS (SELECT queue, fingerprint, sum(1 + lost)::BIGINT AS attempts FROM last GROUP BY ALL)
SELECT queue, fingerprint, failures, dead, coalesce(attempts, 0) FROM {faults} FULL JOIN met USING (queue, fingerprint)""",
    ),
    "redrive_yield": (
        "dead_letter_queue queue fingerprint lie",
        """
SELECT place, queue, fingerprint, count(*) FROM (SELECT *, unnest(lies_in) AS place FROM {dead_letters}) GROUP BY ALL""",
    ),
}


def opinions(dump: Path, report: Path, exported_at_us: int) -> dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]]:
    """table -> the rows of the report of one export, and those by SQL; both sorted."""
    files = {each.name: f"read_parquet('{each}/**/*.parquet', hive_partitioning=false)" for each in dump.iterdir() if each.is_dir()}
    found = {}
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        for name, (columns, sql) in OPINIONS.items():
            written = f"SELECT {', '.join(columns.split())} FROM '{report}/parquet/{name}/*.parquet'"
            if name == "time_to_success":  # it has the same by error class, and of all queues
                written += " WHERE queue IS NOT NULL AND error_class IS NULL"
            both = (written, sql.format(**files, at_us=exported_at_us))
            ours, theirs = (sorted(connection.execute(each).fetchall(), key=repr) for each in both)
            found[name] = ours, theirs
    return found
