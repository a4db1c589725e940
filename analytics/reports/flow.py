"""How messages move between queues: dead-lettering, expiry and redrive as a picture, and the ways that lead in circles."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: Whole ways in the table.
LIMIT = 1_000
#: Of a message's moves so many are looked at and written down; what goes in circles goes there for long.
MOVES = 40
_MOVED = "state = 'settled' AND outcome IN ('dead-lettered', 'expired', 'redriven', 'moved', 'edited', 'delayed')"
#: What somebody moved goes no circle by itself, nor does what was only to wait.
MEANT = ("redriven", "moved", "edited", "delayed")


def flow(messages: DataFrame) -> DataFrame:
    """One row for each broker and way from a queue to a queue: ``source``, ``target``, ``why`` (the outcome that sent them),
    ``messages`` (moves), ``first_at``, ``last_at``, and ``circling``: of these moves those of messages that came back to the source by
    themselves: they had left it before, and nobody sent them back or had them wait since.
    """
    moves = messages.where(_MOVED).withColumn("target", F.explode_outer("target_queues")).where("target IS NOT NULL")
    way = Window.partitionBy("broker_id", "message_id").orderBy("sequence")
    redrives = F.sum(F.col("outcome").isin(*MEANT).cast("int")).over(way)
    again = Window.partitionBy("broker_id", "message_id", "redrives", "queue", "target").orderBy("sequence")
    circling = (F.row_number().over(again) > 1) & ~F.col("outcome").isin(*MEANT)
    return (
        moves.withColumn("redrives", redrives)
        .withColumn("circling", circling)
        .groupBy("broker_id", F.col("queue").alias("source"), "target", F.col("outcome").alias("why"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if("circling").alias("circling"),
            F.min("settled_at").alias("first_at"),
            F.max("settled_at").alias("last_at"),
        )
        .select("broker_id", "source", "target", "why", "messages", "circling", "first_at", "last_at")
        .orderBy(F.desc("circling"), F.desc("messages"), "source", "target", "why", "broker_id")
    )


def journeys(messages: DataFrame, limit: int = LIMIT) -> DataFrame:
    """The ``limit`` most frequent whole ways of messages that moved: ``broker_id``, ``way`` (queue → queue → …, to where the message is or
    was last; a move that was meant, by hand or to wait, is ⇒; of more than MOVES moves the first), ``hops`` (moves),
    ``messages`` that went it, ``circles``: it leads
    back to a queue without such a move. Of a message that several queues got, the ways of all copies in the order of their moves.
    """
    one = F.struct("sequence", "queue", "outcome", F.get("target_queues", F.lit(0)).alias("target"))
    moved = (
        messages.where(_MOVED)
        .where(F.size("target_queues") > 0)  # the others were removed
        .groupBy("broker_id", "message_id")
        .agg(F.count(F.lit(1)).alias("hops"), F.sort_array(F.collect_list(one)).alias("all"))
        .withColumn("moves", F.slice("all", 1, MOVES))
    )
    return (
        moved.groupBy("broker_id", _way().alias("way"), "hops", _circles().alias("circles"))
        .agg(F.count(F.lit(1)).alias("messages"))
        .select("broker_id", "way", "hops", "messages", "circles")
        .orderBy(F.desc("circles"), F.desc("messages"), "way", "broker_id")
        .limit(limit)
    )


def _way() -> Column:
    """``moves`` as text."""

    def step(move: Column) -> Column:
        arrow = F.when(move["outcome"].isin(*MEANT), " ⇒ ").otherwise(" → ")
        return F.concat(arrow, F.coalesce(move["target"], F.lit("nowhere")))

    whole = F.concat(F.get("moves", F.lit(0))["queue"], F.array_join(F.transform("moves", step), ""))
    return F.when(F.col("hops") > MOVES, F.concat(whole, F.lit(" → …"))).otherwise(whole)


def _circles() -> Column:
    """Whether ``moves`` lead through a queue twice with no such move between."""
    nothing = F.struct(F.array().cast("array<string>").alias("seen"), F.lit(False).alias("circles"))

    def go(so_far: Column, move: Column) -> Column:
        seen = F.when(move["outcome"].isin(*MEANT), F.array().cast("array<string>")).otherwise(
            F.array_append(so_far["seen"], move["queue"])
        )
        back = ~move["outcome"].isin(*MEANT) & F.array_contains(seen, F.coalesce(move["target"], F.lit("")))
        return F.struct(seen.alias("seen"), (so_far["circles"] | back).alias("circles"))

    return F.aggregate("moves", nothing, go)["circles"]
