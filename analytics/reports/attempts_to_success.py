"""How many attempts the messages that succeeded needed."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def attempts_to_success(messages: DataFrame, deliveries_by_minute: DataFrame) -> DataFrame:
    """One row for each broker, queue and number of attempts in it: ``messages`` that succeeded at exactly that attempt, their ``share``
    among the queue's succeeded ones, and ``cumulative_share``: those that needed no more than that.

    First-try successes are counts (``deliveries_by_minute.first_try``), the later ones rows of ``messages``. Successes older than the
    broker's history retention have lost their row; they are in neither share.
    """
    first = (
        deliveries_by_minute.groupBy("broker_id", "queue")
        .agg(F.lit(1).alias("attempts"), F.sum("first_try").alias("messages"))
        .where("messages > 0")
    )
    later = (
        messages.where("outcome = 'succeeded' AND failed_attempts > 0")
        .groupBy("broker_id", "queue", "attempts")
        .agg(F.count(F.lit(1)).alias("messages"))
    )
    of_queue = Window.partitionBy("broker_id", "queue")
    up_to = of_queue.orderBy("attempts").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    total = F.sum("messages").over(of_queue)
    return (
        first.unionByName(later)
        .select(
            "broker_id",
            "queue",
            "attempts",
            "messages",
            (F.col("messages") / total).alias("share"),
            (F.sum("messages").over(up_to) / total).alias("cumulative_share"),
        )
        .orderBy("queue", "attempts", "broker_id")
    )
