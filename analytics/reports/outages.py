"""When what a queue depends on was down: from when to when, as the attempts show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..what_if.outages import FAULT, outages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT = 200


def outage_windows(entries: DataFrame, limit: int = LIMIT) -> DataFrame:
    """From simulate.failed_entries, the ``limit`` outages with most failures: ``broker_id``, ``queue``, ``error_class``, ``from_at`` and
    ``to_at``: the first and the last failure; ``up_before`` and ``up_after``: the last success before and the first one after, between
    which it began and ended (null: none on record); ``failures`` in it, and ``messages`` that failed first in it.

    Only of messages that failed: what succeeds at once is counted by the minute.
    """
    from pyspark.sql import functions as F

    each = outages(entries).select(*FAULT, F.explode("outages").alias("each"))
    times = {"from_at": "from_us", "to_at": "to_us", "up_before": "after_us", "up_after": "before_us"}
    return (
        each.select(
            *FAULT,
            *(F.timestamp_micros(F.col("each")[column]).alias(name) for name, column in times.items()),
            F.col("each.count").alias("failures"),
            F.col("each.met").alias("messages"),
        )
        .orderBy(F.desc("failures"), "queue", "from_at", "error_class", "broker_id")
        .limit(limit)
    )
