"""How long the messages that failed at first took to succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Upper ends of the histogram's bins in milliseconds; the last bin has none.
BIN_ENDS_MS = (100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000)
#: Percentiles are true elements of the data while a queue has fewer than this many messages, and off by at most 1/this in rank beyond.
ACCURACY = 10_000


def _took_ms() -> Column:
    from pyspark.sql import functions as F

    return F.expr("timestampdiff(MILLISECOND, sent_at, settled_at)")


def _succeeded_later(messages: DataFrame) -> DataFrame:
    return messages.where("outcome = 'succeeded' AND failed_attempts > 0 AND sent_at IS NOT NULL").select("queue", _took_ms().alias("ms"))


def time_to_success(messages: DataFrame) -> DataFrame:
    """One row a queue, and one with ``queue`` null for all of them.

    ``messages`` that succeeded after failing; and from send to success in milliseconds ``p50_ms``, ``p90_ms``, ``p99_ms`` (the
    smallest time within which that share had succeeded), ``mean_ms``, ``max_ms``.
    """
    from pyspark.sql import functions as F

    percentiles = F.percentile_approx("ms", [0.5, 0.9, 0.99], ACCURACY)
    return (
        _succeeded_later(messages)
        .rollup("queue")
        .agg(F.count(F.lit(1)).alias("messages"), percentiles.alias("p"), F.avg("ms").alias("mean_ms"), F.max("ms").alias("max_ms"))
        .selectExpr("queue", "messages", "p[0] AS p50_ms", "p[1] AS p90_ms", "p[2] AS p99_ms", "mean_ms", "max_ms")
        .where("messages > 0")
        .orderBy("queue")
    )


def time_to_success_histogram(messages: DataFrame) -> DataFrame:
    """One row for each queue and bin that has any: ``bin`` (0, 1, …), ``from_ms`` ≤ time < ``to_ms`` (null: no end), ``messages``."""
    from pyspark.sql import functions as F

    number = F.lit(len(BIN_ENDS_MS))
    for index in range(len(BIN_ENDS_MS) - 1, -1, -1):
        number = F.when(F.col("ms") < BIN_ENDS_MS[index], index).otherwise(number)
    ends = F.array(*(F.lit(end) for end in BIN_ENDS_MS))
    return (
        _succeeded_later(messages)
        .groupBy("queue", number.alias("bin"))
        .agg(F.count(F.lit(1)).alias("messages"))
        .select(
            "queue",
            "bin",
            F.coalesce(F.get(ends, F.col("bin") - 1), F.lit(0)).cast("long").alias("from_ms"),
            F.get(ends, F.col("bin")).cast("long").alias("to_ms"),
            "messages",
        )
        .orderBy("queue", "bin")
    )
