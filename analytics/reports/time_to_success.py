"""How long the messages that failed at first took from sending to success."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: Percentiles are true elements of the data while a group has fewer than this many messages, and off by at most 1/this in rank beyond.
ACCURACY = 10_000


def time_to_success(fates: DataFrame) -> DataFrame:
    """One row for each broker, queue and class of first error, one a queue with ``error_class`` null, and one with all null for all.

    ``messages`` that succeeded after failing; from send to success in milliseconds ``p50_ms``, ``p90_ms``, ``p99_ms`` (the smallest
    time within which that share had succeeded), ``mean_ms``, ``max_ms``; and attempts they needed: ``mean_attempts``, ``max_attempts``.
    """
    nobody = F.lit(None).cast("string")
    # As rows, not as grouping sets, of which Spark no longer knows that they are in one piece, where all is.
    groups = F.array(
        F.struct("broker_id", "queue", "error_class"),
        F.struct("broker_id", "queue", nobody.alias("error_class")),
        F.struct(nobody.alias("broker_id"), nobody.alias("queue"), nobody.alias("error_class")),
    )
    percentiles = F.percentile_approx("success_ms", [0.5, 0.9, 0.99], ACCURACY)
    return (
        fates.where("won AND success_ms IS NOT NULL")
        .select(F.explode(groups).alias("group"), "success_ms", "tries")
        .groupBy("group.broker_id", "group.queue", "group.error_class")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            percentiles.alias("p"),
            F.avg("success_ms").alias("mean_ms"),
            F.max("success_ms").alias("max_ms"),
            F.avg("tries").alias("mean_attempts"),
            F.max("tries").alias("max_attempts"),
        )
        .selectExpr(
            *("broker_id", "queue", "error_class", "messages", "p[0] AS p50_ms", "p[1] AS p90_ms", "p[2] AS p99_ms", "mean_ms", "max_ms"),
            *("mean_attempts", "max_attempts"),
        )
        .orderBy("queue", "error_class", "broker_id")
    )
