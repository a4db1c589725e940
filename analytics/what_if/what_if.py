"""The figures of a what-if: recorded, expected under the new policy, and the 90 % interval, for each queue and for all of them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..spark.session import COMPILED, kept, settled, with_settings
from .details import ALL, DETAILS, and_all, details_played, details_recorded, placed_by_key, play_all, replicates_with_details
from .outages import outages
from .policy import Policies
from .simulate import QUEUE, REPLICATES, chances_of, failed_entries, hazards_of, play, with_policy

LOW, HIGH = 0.05, 0.95
#: Plays of which so many are over before what would play them is compiled.
INTERPRETED = 15_000
BLIND = 0.05
#: figure -> what it is
FIGURES = {
    "deliveries": "deliveries to messages that failed at least once",
    "dead_letters": "messages that were dead-lettered, or parked for want of a dead-letter address",
    "succeeded": "messages that succeeded after failing",
    "time_to_success_ms": "mean time from sending to success, of those that succeeded after failing",
    "peak_per_s": "most retries that ended in one second",
    "out_of_order": "neighbours in sent order, of one key, that succeeded the other way round, one of them after failing",
}


def what_if(
    messages: DataFrame,
    attempts: DataFrame,
    policies: Policies,
    *,
    seed: int = 1,
    replicates: int = REPLICATES,
    details: bool = True,
    small: bool = False,
    recorded: DataFrame | None = None,
    queues: DataFrame | None = None,
    until_us: int | None = None,
) -> DataFrame:
    """One row for each broker and queue (null: all together) and figure: ``recorded``, ``expected``, ``low``, ``high``, ``observed_share``.

    ``observed_share``: of the outcomes that the simulation had to ask for, how many the record itself answers. ``details=False`` leaves
    out peaks and order, which need every single attempt. ``small``: the input is (Manifest.is_small). ``recorded``, ``queues``,
    ``until_us``: as of with_policy and failed_entries. Where more than BLIND of a queue's messages met errors of which nobody saw a second
    attempt, and the new policy makes one, what comes of it cannot be known: ``expected``, ``low`` and ``high`` are null.
    """
    entries = kept(with_policy(failed_entries(messages, attempts, until_us), policies, recorded, queues), small=small)
    chances = kept(chances_of(hazards_of(entries), outages(entries), seed, replicates), small=small)
    record = _recorded(entries)
    if details:
        placed = kept(placed_by_key(messages, entries), small=small)
        record = record.join(details_recorded(entries, placed), list(QUEUE), "left")
        failed = entries.count()
        fewer = replicates_with_details(failed, replicates)
        with with_settings(entries.sparkSession, COMPILED if small and failed * fewer > INTERPRETED else {}):
            every = kept(play_all(entries, placed, chances, seed, fewer), small=small)
            # Where every attempt of every replicate is kept anyway, the sums need no play of their own.
            sums = _sums(every if fewer == replicates else play(entries, chances, seed, replicates))
            played = settled(sums.join(details_played(every, placed, seed, fewer), [*QUEUE, "replicate"], "left"))
    else:
        played = _sums(play(entries, chances, seed, replicates))
    names = [name for name in FIGURES if details or name not in DETAILS]
    # Even replicates look at trouble one way, odd ones the other: simulate.py.
    long = _unpivot(played, [*QUEUE, "replicate"], names).groupBy(*QUEUE, "figure", (F.col("replicate") % 2).alias("way"))
    ends = F.percentile("value", [LOW, 0.5, HIGH])
    ways = long.agg(ends.alias("p"), F.avg("known_share").alias("known_share"), F.bool_and("knowable").alias("knowable"))
    knowable = F.bool_and("knowable")
    whole = ways.groupBy(*QUEUE, "figure").agg(
        F.when(knowable, F.avg(F.col("p")[1])).alias("expected"),
        F.when(knowable, F.min(F.col("p")[0])).alias("low"),
        F.when(knowable, F.max(F.col("p")[2])).alias("high"),
        F.avg("known_share").alias("observed_share"),
    )
    recorded = _unpivot(record, [*QUEUE], names).select(*QUEUE, "figure", F.col("value").alias("recorded"))
    return (
        whole.join(recorded, [*QUEUE, "figure"], "left")
        .select(
            *(F.nullif(name, F.lit(ALL)).alias(name) for name in QUEUE),
            *("figure", "recorded", "expected", "low", "high", "observed_share"),
        )
        .orderBy("queue", "broker_id", "figure")
    )


def _unpivot(frame: DataFrame, keys: list[str], names: list[str]) -> DataFrame:
    known = F.col("known_share") if "known_share" in frame.columns else F.lit(None).cast("double")
    knowable = F.col("knowable") if "knowable" in frame.columns else F.lit(True)
    pairs = F.array(*(F.struct(F.lit(name).alias("figure"), F.col(name).cast("double").alias("value")) for name in names))
    each = frame.select(*keys, known.alias("known_share"), knowable.alias("knowable"), F.explode(pairs).alias("pair"))
    return each.select(*keys, "known_share", "knowable", "pair.*").where("value IS NOT NULL")


def _sums(played: DataFrame) -> DataFrame:
    """One row for each broker, queue and replicate, and one for ALL of them for each replicate."""
    won, weight = F.col("success_ms").isNotNull(), F.first("weight")
    of_queue = played.groupBy(*QUEUE, "replicate").agg(
        F.round(weight * F.sum("deliveries")).alias("deliveries"),
        F.round(weight * F.count_if("dead")).alias("dead_letters"),
        F.round(weight * F.count_if(won)).alias("succeeded"),
        (weight * F.sum(F.when(won, F.col("before_ms") + F.col("success_ms")))).alias("tts"),
        (weight * F.sum("known")).alias("known"),
        (weight * F.sum("asked")).alias("asked"),
        F.count_if("blind").alias("blind"),
        F.count(F.lit(1)).alias("played"),
    )
    return (
        and_all(of_queue)
        .groupBy(*QUEUE, "replicate")
        .agg(*(F.sum(name).alias(name) for name in ("deliveries", "dead_letters", "succeeded", "tts", "known", "asked", "blind", "played")))
        .withColumn("time_to_success_ms", F.try_divide("tts", "succeeded"))
        .withColumns({"known_share": F.try_divide("known", "asked"), "knowable": F.col("blind") <= BLIND * F.col("played")})
        .drop("tts", "known", "asked", "blind", "played")
    )


def _recorded(entries: DataFrame) -> DataFrame:
    won = F.col("success_ms").isNotNull()
    of_queue = entries.groupBy(*QUEUE).agg(
        F.sum(F.col("failed_attempts") + won.cast("int")).alias("deliveries"),
        F.count_if("died").alias("dead_letters"),
        F.count_if(won).alias("succeeded"),
        F.sum(F.when(won, F.col("before_ms") + F.col("success_ms"))).alias("tts"),
    )
    return (
        and_all(of_queue)
        .groupBy(*QUEUE)
        .agg(*(F.sum(name).alias(name) for name in ("deliveries", "dead_letters", "succeeded", "tts")))
        .withColumn("time_to_success_ms", F.try_divide("tts", "succeeded"))
        .drop("tts")
    )
