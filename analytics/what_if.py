"""The figures of a what-if: recorded, expected under the new policy, and the 90 % interval, for each queue and for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.policy import Policies
from analytics.simulate import REPLICATES, failed_stays, play

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOW, HIGH = 0.05, 0.95
#: Stands for all queues together while frames are joined; no queue has this name.
ALL = "\0"
#: figure -> what it is
FIGURES = {
    "deliveries": "deliveries to messages that failed at least once",
    "dead_letters": "messages that died",
    "succeeded": "messages that came home after failing",
    "time_to_success_ms": "mean time from sending to success, of those that came home after failing",
    "peak_per_s": "most retries that ended in one second",
    "out_of_order": "neighbours in sent order (of the messages that failed) that succeeded the other way round",
}
#: Replicates for which every single attempt is kept: peaks and order. Even: both ways of looking.
DETAILED = 8


def what_if(
    messages: DataFrame, attempts: DataFrame, policies: Policies, *, seed: int = 1, replicates: int = REPLICATES, details: bool = True
) -> DataFrame:
    """One row for each queue (null: all together) and figure: ``recorded``, ``expected``, ``low``, ``high``, ``observed_share``.

    ``observed_share``: of the outcomes that the simulation had to ask for, how many the record itself answers. ``details=False`` leaves
    out peaks and order, which need every single attempt.
    """
    from pyspark.sql import functions as F

    stays = failed_stays(messages, attempts).persist()
    played = _sums(play(stays, policies, seed, replicates))
    record = _recorded(stays)
    if details:
        detailed = play(stays, policies, seed, DETAILED, times=True).persist()
        played = played.unionByName(_details(detailed, ["replicate", "by_time"]), allowMissingColumns=True)
        record = record.unionByName(_recorded_details(stays), allowMissingColumns=True)
    names = [name for name in FIGURES if details or name not in ("peak_per_s", "out_of_order")]
    long = _unpivot(played, ["queue", "replicate", "by_time"], names).groupBy("queue", "figure", "by_time")
    ends = F.percentile("value", [LOW, 0.5, HIGH])
    ways = long.agg(ends.alias("p"), F.avg("known_share").alias("known_share"))
    whole = ways.groupBy("queue", "figure").agg(
        F.avg(F.col("p")[1]).alias("expected"),
        F.min(F.col("p")[0]).alias("low"),
        F.max(F.col("p")[2]).alias("high"),
        F.avg("known_share").alias("observed_share"),
    )
    recorded = _unpivot(record, ["queue"], names).select("queue", "figure", F.col("value").alias("recorded"))
    same = recorded["queue"].eqNullSafe(whole["queue"]) & (recorded["figure"] == whole["figure"])
    return (
        whole.join(recorded, same, "left")
        .select(whole["queue"], whole["figure"], "recorded", "expected", "low", "high", "observed_share")
        .orderBy("queue", "figure")
    )


def _unpivot(frame: DataFrame, keys: list[str], names: list[str]) -> DataFrame:
    from pyspark.sql import functions as F

    known = F.col("known_share") if "known_share" in frame.columns else F.lit(None).cast("double")
    pairs = F.array(*(F.struct(F.lit(name).alias("figure"), F.col(name).cast("double").alias("value")) for name in names))
    each = frame.select(*keys, known.alias("known_share"), F.explode(pairs).alias("pair"))
    return each.select(*keys, "known_share", "pair.*").where("value IS NOT NULL")


def _sums(played: DataFrame) -> DataFrame:
    """One row for each queue and replicate, and one with ``queue`` null for each replicate."""
    from pyspark.sql import functions as F

    won = F.col("success_ms").isNotNull()
    return (
        played.groupBy("queue", "replicate", "by_time")
        .agg(
            F.sum("deliveries").alias("deliveries"),
            F.count_if("dead").alias("dead_letters"),
            F.count_if(won).alias("succeeded"),
            F.sum(F.when(won, F.col("before_ms") + F.col("success_ms"))).alias("tts"),
            F.sum("known").alias("known"),
            F.sum("asked").alias("asked"),
        )
        .withColumn("queue", F.explode(F.array("queue", F.lit(None).cast("string"))))
        .groupBy("queue", "replicate", "by_time")
        .agg(*(F.sum(name).alias(name) for name in ("deliveries", "dead_letters", "succeeded", "tts", "known", "asked")))
        .withColumn("time_to_success_ms", F.try_divide("tts", "succeeded"))
        .withColumn("known_share", F.try_divide("known", "asked"))
        .drop("tts", "known", "asked")
    )


def _recorded(stays: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    won = F.col("success_ms").isNotNull()
    return (
        stays.groupBy("queue")
        .agg(
            F.sum(F.col("failed_attempts") + won.cast("int")).alias("deliveries"),
            F.count_if("died").alias("dead_letters"),
            F.count_if(won).alias("succeeded"),
            F.sum(F.when(won, F.col("before_ms") + F.col("success_ms"))).alias("tts"),
        )
        .withColumn("queue", F.explode(F.array("queue", F.lit(None).cast("string"))))
        .groupBy("queue")
        .agg(*(F.sum(name).alias(name) for name in ("deliveries", "dead_letters", "succeeded", "tts")))
        .withColumn("time_to_success_ms", F.try_divide("tts", "succeeded"))
        .drop("tts")
    )


# --- peaks and order ---------------------------------------------------------------------------------------------------


def _details(played: DataFrame, keys: list[str]) -> DataFrame:
    from pyspark.sql import functions as F

    joined = _peaks(played, keys).join(_disorder(played, keys), ["both", *keys], "full")
    return joined.withColumn("queue", F.nullif("both", F.lit(ALL))).drop("both")


def _recorded_details(stays: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    times = F.when(F.col("success_ms").isNull(), F.col("failures_ms")).otherwise(F.array_append("failures_ms", F.col("success_ms")))
    return _details(stays.withColumn("times_ms", times), [])


def _both() -> Column:
    """The queue, and once more as a part of all."""
    from pyspark.sql import functions as F

    return F.explode(F.array("queue", F.lit(ALL)))


def _peaks(played: DataFrame, keys: list[str]) -> DataFrame:
    """Retries only: the first attempts are the producers' doing, not the policy's."""
    from pyspark.sql import functions as F

    retries = F.explode(F.slice("times_ms", F.lit(2), F.greatest(F.size("times_ms") - 1, F.lit(0))))
    second = F.floor(F.unix_millis("first_at") / 1000 + F.col("retry_ms") / 1000)
    return (
        played.withColumn("retry_ms", retries)
        .groupBy(*keys, "queue", second.alias("second"))
        .count()
        .withColumn("both", _both())
        .groupBy(*keys, "both", "second")
        .agg(F.sum("count").alias("count"))
        .groupBy(*keys, "both")
        .agg(F.max("count").alias("peak_per_s"))
    )


def _disorder(played: DataFrame, keys: list[str]) -> DataFrame:
    """The export carries no key of a message yet, so the key is the queue: a pair is two neighbours in sent order that both succeed."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.partitionBy(*keys, "queue").orderBy("sequence", "broker_id")
    at = F.unix_millis("first_at") + F.col("success_ms")
    return (
        played.where("success_ms IS NOT NULL")
        .withColumn("at", at)
        .withColumn("before", F.lag("at").over(in_order))
        .groupBy(*keys, "queue")
        .agg(F.count_if(F.col("at") < F.col("before")).alias("out_of_order"))
        .withColumn("both", _both())
        .groupBy(*keys, "both")
        .agg(F.sum("out_of_order").alias("out_of_order"))
    )
