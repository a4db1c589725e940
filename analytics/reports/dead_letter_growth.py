"""Whether deaths grow: deaths hour by hour, and each queue's trend."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .storms import fine_from, is_recent

#: Fewer deaths than this show no trend.
ENOUGH = 20
#: The time is cut into so many equal parts to look for a trend.
PARTS = 12
#: A trend is one where the halves are further apart than so many standard errors of their difference, and the slope over the parts than
#: so many of its own: one bad hour is no trend.
ERRORS = 3.0
#: Nor is a difference between the halves of less than this part of all deaths, however sure it is.
NOTICED = 0.2


def dead_letter_growth(deaths: DataFrame) -> DataFrame:
    """One row for each broker, queue and hour with dead letters: ``deaths``, and ``so_far``: those until its end."""
    queue = Window.partitionBy("broker_id", "queue").orderBy("hour").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        deaths.groupBy("broker_id", "queue", F.date_trunc("hour", "died_at").alias("hour"))
        .agg(F.sum("deaths").alias("deaths"))
        .withColumn("so_far", F.sum("deaths").over(queue))
        .orderBy("hour", "queue", "broker_id")
    )


def dead_letter_trend(deaths: DataFrame, deliveries_by_minute: DataFrame, exported_at_us: int) -> DataFrame:
    """One row for each broker and queue, most deaths first: ``deaths``; ``hours`` to the export from the first count by the minute (of any
    queue): history forgets deaths that are older, but for those that are still somewhere, so these do not count here; ``per_day`` over
    them; ``early`` and ``late``: deaths in either half of that time; ``slope_per_day``: by how much the deaths of a day
    grow from day to day (least squares over PARTS equal parts of the time); ``verdict``: ``growing``, ``falling``, ``steady``,
    ``uneven`` (the halves differ, but for some bad hours and not a trend), ``too-few``.
    """
    fine = F.broadcast(deliveries_by_minute.groupBy("broker_id").agg(fine_from(F.lit(True)).alias("fine_from")))
    counted = deliveries_by_minute.join(fine, "broker_id").where(F.expr("minute >= fine_from") | is_recent(exported_at_us))
    began = counted.agg(F.unix_micros(F.min("minute")).alias("began_us"))
    first = deaths.agg(F.unix_micros(F.min("died_at")).alias("first_us"))
    start = first.crossJoin(F.broadcast(began)).select(F.coalesce("began_us", "first_us").alias("from_us"))
    whole_us = F.greatest(F.lit(exported_at_us) - F.col("from_us"), F.lit(1))
    part = F.least(F.floor((F.unix_micros("died_at") - F.col("from_us")) * PARTS / whole_us), F.lit(PARTS - 1))
    days = whole_us / 86_400_000_000
    d, n, off = F.col("part_deaths"), F.lit(float(PARTS)), F.col("part") - (PARTS - 1) / 2
    across = PARTS * (PARTS * PARTS - 1) / 12
    moments = (
        deaths.crossJoin(F.broadcast(start))
        .where(F.unix_micros("died_at") >= F.col("from_us"))
        .groupBy("broker_id", "queue", "from_us", part.alias("part"))
        .agg(F.sum("deaths").alias("part_deaths"))
        .groupBy("broker_id", "queue", "from_us")
        .agg(
            F.sum(d).alias("deaths"),
            F.sum(F.when(F.col("part") < PARTS // 2, d).otherwise(0)).alias("early"),
            F.sum(F.when(F.col("part") >= PARTS // 2, d).otherwise(0)).alias("late"),
            (F.sum(d * off) / across).alias("slope"),
            F.sum(d * d).alias("squares"),
        )
    )
    rest = F.col("squares") - F.col("deaths") * F.col("deaths") / n - F.col("slope") * F.col("slope") * across
    slope_error = F.sqrt(F.greatest(rest, F.lit(0.0)) / (PARTS - 2) / across)
    change = F.col("late") - F.col("early")
    differ, trend = F.abs(change) > F.greatest(ERRORS * F.sqrt("deaths"), NOTICED * F.col("deaths")), F.abs("slope") > ERRORS * slope_error
    verdict = (
        F.when(F.col("deaths") < ENOUGH, "too-few")
        .when(~differ, "steady")
        .when(~trend, "uneven")
        .when(F.col("slope") > 0, "growing")
        .otherwise("falling")
    )
    return moments.select(
        *("broker_id", "queue", "deaths", (days * 24).alias("hours"), (F.col("deaths") / days).alias("per_day"), "early", "late"),
        # Deaths a part, a part: PARTS parts to `days` days, twice over.
        (F.col("slope") * F.pow(n / days, F.lit(2))).alias("slope_per_day"),
        verdict.alias("verdict"),
    ).orderBy(F.desc("deaths"), "queue", "broker_id")
