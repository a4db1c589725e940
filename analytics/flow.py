"""How messages move between queues: dead-lettering, expiry and redrive as a picture, and the ways that lead in circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def flow(messages: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """One row for each way from a queue to a queue: ``source``, ``target``, ``why`` (dead-lettered, expired, redriven), ``messages``,
    ``first_at``, ``last_at``, and ``circling``: messages that died their way through a queue they had left by dead-lettering before,
    with no redrive between.
    """
    from pyspark.sql import functions as F

    moved = (
        messages.where("state = 'settled' AND outcome IN ('dead-lettered', 'expired', 'redriven')")
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
