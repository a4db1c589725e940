"""The figures of a what-if for which every single attempt is needed: how many retries end in one second, and who overtakes whom.

Order is shown for **neighbours**: two messages of one key that follow each other in sent order, of those on record, one of which failed at
least once. A pair is out of order when both succeed, the later one first. The key is what ``message-key-property`` named
(docs/settings.md); a queue of whose failed messages none has a key counts as one key. Messages that succeed at once are on record, and
so among the neighbours, where the broker keeps all history (``history: full``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .simulate import KEY, QUEUE, play, uniform

#: Stands for all queues of all brokers together; nothing has this name.
ALL = "\0"
DETAILS = ("peak_per_s", "out_of_order")
#: Plays of which every attempt is kept; with many messages there are fewer replicates, but never fewer than FEWEST.
PLAYS, FEWEST = 1_500_000, 6


def replicates_with_details(entries: int, replicates: int) -> int:
    """How many of the replicates can keep every attempt of so many entries."""
    return min(replicates, max(FEWEST, PLAYS // max(entries, 1) // 2 * 2))


def play_all(entries: DataFrame, placed: DataFrame, chances: DataFrame, seed: int, replicates: int) -> DataFrame:
    """play, of all entries, with every attempt, and with ``same``, and ``order_key`` and ``before`` of placed_by_key."""
    ordered = entries.join(placed.where("failed").select(*KEY, "order_key", "before"), list(KEY), "left")
    return play(ordered, chances, seed, replicates, times=True, keep=("order_key", "before", "same"))


def details_played(played: DataFrame, placed: DataFrame, seed: int, replicates: int) -> DataFrame:
    """``broker_id``, ``queue``, ``replicate``, ``peak_per_s``, ``out_of_order``. ``played``: play_all."""
    others = placed.where("NOT failed").withColumn("replicate", F.explode(F.sequence(F.lit(0), F.lit(replicates - 1))))
    # That these messages failed, and those did not, was a throw of the dice too: a pair counts as often as one more throw has it, but for
    # what stays as it was.
    return _details(played, others, ["replicate"], _poisson(uniform(seed, "again", "replicate", *KEY)))


def _poisson(drawn: Column) -> Column:
    """How often something happens that happens once on average; ``drawn`` from (0, 1)."""
    chances = [sum(math.exp(-1) / math.factorial(n) for n in range(most + 1)) for most in range(7)]
    return reduce(operator.add, [(drawn > F.lit(chance)).cast("int") for chance in chances])


def details_recorded(entries: DataFrame, placed: DataFrame) -> DataFrame:
    """``broker_id``, ``queue``, ``peak_per_s``, ``out_of_order``. ``placed``: placed_by_key."""
    times = F.when(F.col("success_ms").isNull(), F.col("failures_ms")).otherwise(F.array_append("failures_ms", F.col("success_ms")))
    ordered = entries.join(placed.where("failed").select(*KEY, "order_key", "before"), list(KEY), "left").withColumn("times_ms", times)
    return _details(ordered, placed.where("NOT failed"), [], F.lit(1))


def _details(played: DataFrame, others: DataFrame, keys: list[str], weight: Column) -> DataFrame:
    joined = _peaks(played, keys).join(_disorder(played, others, keys, weight), [*QUEUE, *keys], "full")
    return joined.select(*QUEUE, *keys, *(F.coalesce(name, F.lit(0)).alias(name) for name in DETAILS))


def and_all(frame: DataFrame) -> DataFrame:
    """Each row of a broker and queue, and once more as a part of ALL."""
    every = F.array(F.struct(*QUEUE), F.struct(*(F.lit(ALL).alias(name) for name in QUEUE)))
    return frame.withColumn("both", F.explode(every)).select("both.*", *(name for name in frame.columns if name not in QUEUE))


def _peaks(played: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Retries only: the first attempts are the producers' doing, not the policy's."""
    retries = F.explode(F.slice("times_ms", F.lit(2), F.greatest(F.size("times_ms") - 1, F.lit(0))))
    second = F.floor((F.unix_micros("first_at") + F.round(F.col("retry_ms") * 1000)) / 1_000_000)
    exploded = played.select(*keys, *QUEUE, "first_at", retries.alias("retry_ms"))
    return (
        and_all(exploded.groupBy(*keys, *QUEUE, second.alias("second")).count())
        .groupBy(*keys, *QUEUE, "second")
        .agg(F.sum("count").alias("count"))
        .groupBy(*keys, *QUEUE)
        .agg(F.max("count").alias("peak_per_s"))
    )


def placed_by_key(messages: DataFrame, entries: DataFrame) -> DataFrame:
    """Where each message stands among those of its key: ``order_key``, ``before`` (sequence of the one sent just before; null: none).

    ``failed``: one of ``entries``; the others, which succeeded at once at ``at_us``, are here where a neighbour failed.
    """
    queues = entries.groupBy(*QUEUE).agg(F.bool_or(F.col("message_key").isNotNull()).alias("has_keys"))
    failed = entries.select(*KEY, "queue", "message_key", F.lit(True).alias("failed"), F.lit(None).cast("long").alias("at_us"))
    at_once = messages.where("failed_attempts = 0 AND outcome = 'succeeded'").select(
        *KEY, "queue", "message_key", F.lit(False).alias("failed"), F.unix_micros("settled_at").alias("at_us")
    )
    one = Window.partitionBy("broker_id", "queue", "order_key").orderBy("sequence")
    return (
        failed.unionByName(at_once)
        .join(F.broadcast(queues), list(QUEUE))
        .where("NOT has_keys OR message_key IS NOT NULL")
        .withColumn("order_key", F.coalesce("message_key", F.lit("")))
        .withColumns({"before": F.lag("sequence").over(one), "near": F.lag("failed").over(one), "next": F.lead("failed").over(one)})
        .where("failed OR near OR next")
        .select(*KEY, "queue", "order_key", "before", "failed", "at_us")
    )


def _disorder(played: DataFrame, others: DataFrame, keys: Sequence[str], weight: Column) -> DataFrame:
    at_us = F.unix_micros("first_at") + F.round(F.col("success_ms") * 1000).cast("long")
    names = [*keys, *KEY, "queue", "order_key", "before", "failed", "at_us", "same"]
    placed = played.where("order_key IS NOT NULL").withColumns({"failed": F.lit(True), "at_us": at_us}).select(*names)
    one = Window.partitionBy(*keys, "broker_id", "queue", "order_key").orderBy("sequence")
    neighbours = F.lag("sequence").over(one) == F.col("before")
    overtaken = neighbours & (F.col("failed") | F.lag("failed").over(one)) & (F.col("at_us") < F.lag("at_us").over(one))
    of_queue = (
        placed.unionByName(others.withColumn("same", F.lit(True)).select(*names))
        .withColumns({"overtaken": overtaken, "counts": F.when(F.col("same") & F.lag("same").over(one), 1).otherwise(weight)})
        .groupBy(*keys, *QUEUE)
        .agg(F.sum(F.when(F.col("overtaken"), F.col("counts")).otherwise(0)).alias("out_of_order"))
    )
    return and_all(of_queue).groupBy(*keys, *QUEUE).agg(F.sum("out_of_order").alias("out_of_order"))
