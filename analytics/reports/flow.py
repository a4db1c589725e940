"""How messages move between queues: dead-lettering, expiry and redrive as a picture, and the ways that lead in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Whole ways in the table.
LIMIT = 1_000


def flow(messages: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """One row for each way from a queue to a queue: ``source``, ``target``, ``why`` (the outcome that sent them), ``messages``,
    ``first_at``, ``last_at``, and ``circling``: messages that died their way through a queue they had left by dead-lettering before,
    with no redrive between.
    """
    from pyspark.sql import functions as F

    moved = (
        messages.where("state = 'settled' AND outcome IN ('dead-lettered', 'expired', 'redriven', 'moved')")
        .withColumn("target", F.explode("target_queues"))
        .groupBy(F.col("queue").alias("source"), "target", F.col("outcome").alias("why"))
        .agg(F.count(F.lit(1)).alias("messages"), F.min("settled_at").alias("first_at"), F.max("settled_at").alias("last_at"))
    )
    names = F.transform("hops", lambda hop: hop["queue"])
    circles = (
        dead_letters.where(F.size("hops") > F.size(F.array_distinct(names)))
        .withColumn("target", F.explode("target_queues"))
        .groupBy(F.col("queue").alias("source"), "target")
        .agg(F.countDistinct("broker_id", "message_id").alias("circling"))
        .withColumn("why", F.lit("dead-lettered"))
    )
    return (
        moved.join(circles, ["source", "target", "why"], "left")
        .fillna(0, ["circling"])
        .select("source", "target", "why", "messages", "circling", "first_at", "last_at")
        .orderBy(F.desc("circling"), F.desc("messages"), "source", "target", "why")
    )


def journeys(dead_letters: DataFrame, limit: int = LIMIT) -> DataFrame:
    """The ``limit`` most frequent whole ways: ``way`` (queue → queue → …, where the message died last included), ``hops`` (moves),
    ``messages`` that went it, ``circles``: it leads through a queue twice, with no redrive between. Of each message its longest way.
    """
    from pyspark.sql import functions as F

    names = F.reverse(F.transform("hops", lambda hop: hop["queue"]))
    end = F.coalesce(F.get("target_queues", F.lit(0)), F.lit("nowhere"))
    one = F.struct(F.size("hops").alias("hops"), "died_at", F.array_append(names, end).alias("queues"))
    return (
        dead_letters.where(F.size("hops") > 0)
        .groupBy("broker_id", "message_id")
        .agg(F.max(one).alias("longest"))
        .groupBy(
            F.array_join("longest.queues", " → ").alias("way"),
            F.col("longest.hops").alias("hops"),
            (F.size("longest.queues") > F.size(F.array_distinct("longest.queues"))).alias("circles"),
        )
        .agg(F.count(F.lit(1)).alias("messages"))
        .select("way", "hops", "messages", "circles")
        .orderBy(F.desc("circles"), F.desc("messages"), "way")
        .limit(limit)
    )
