"""How many attempts and how much time success takes after a failure: distribution and survival curve, by queue and error class.

The curve is Kaplan and Meier's: at each step, the part of those still watched that succeeded there. A message that died or that still
waits has been watched until its last failure and counts until then, so that those who were given up early do not make trouble look
shorter than it was. That takes them to be like those who went on; where only hopeless ones die, the truth is higher: ``not_home``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Times are rounded up to steps of a grid: STEPS for each factor of ten, from FIRST_MS on.
STEPS, FIRST_MS = 20, 100


def survival(fates: DataFrame) -> DataFrame:
    """One row for each queue and error class (null: all together) and step at which anything ended, ``by`` ``time`` or ``attempts``.

    ``at``: the step: milliseconds from the first failure (rounded up to the grid), or the number of the attempt. ``at_risk``: still
    watched and without success before it; ``succeeded`` and ``censored`` (died, waits, gone) at it; ``still_failing``: the curve after
    it, with its standard ``error`` (Greenwood); ``not_home``: the part of all that had not succeeded by then, whatever became of it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    made = F.when(F.col("won"), F.col("tries")).otherwise(F.col("failed_attempts")).cast("long")
    steps = F.array(
        F.struct(F.lit("time").alias("by"), _rounded_up("took_ms").alias("at")),
        F.struct(F.lit("attempts").alias("by"), made.alias("at")),
    )
    nobody = F.lit(None).cast("string")
    groups = F.array(
        F.struct("queue", "error_class"),
        F.struct("queue", nobody.alias("error_class")),
        F.struct(nobody.alias("queue"), nobody.alias("error_class")),
    )
    counted = (
        fates.where("first_at IS NOT NULL")
        .select("queue", "error_class", "won", F.explode(steps).alias("step"))
        .groupBy("queue", "error_class", "step.by", "step.at")
        .agg(F.count_if("won").alias("succeeded"), F.count_if(~F.col("won")).alias("censored"))
        .select(F.explode(groups).alias("group"), "by", "at", "succeeded", "censored")
        .groupBy("group.queue", "group.error_class", "by", "at")
        .agg(F.sum("succeeded").alias("succeeded"), F.sum("censored").alias("censored"))
    )
    whole = Window.partitionBy("queue", "error_class", "by")
    up_to = whole.orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ended = F.col("succeeded") + F.col("censored")
    everyone = F.sum(ended).over(whole)
    risk, d = F.col("at_risk"), F.col("succeeded")
    nobody_left = risk == d
    log_sum = F.sum(F.when(~nobody_left, F.log1p(-d / risk))).over(up_to)
    variance = F.sum(F.when(~nobody_left, d / (risk * (risk - d)))).over(up_to)
    curve = F.when(nobody_left, 0.0).otherwise(F.exp(log_sum))
    return (
        counted.withColumn("at_risk", everyone - F.sum(ended).over(up_to) + ended)
        .withColumn("still_failing", curve)
        .select(
            *("queue", "error_class", "by", "at", "at_risk", "succeeded", "censored", "still_failing"),
            F.when(nobody_left, 0.0).otherwise(F.col("still_failing") * F.sqrt(variance)).alias("error"),
            (1 - F.sum("succeeded").over(up_to) / everyone).alias("not_home"),
        )
        .orderBy("by", "queue", "error_class", "at")
    )


def _rounded_up(name: str) -> Column:
    from pyspark.sql import functions as F

    step = F.ceil(STEPS * F.log10(F.greatest(F.col(name), F.lit(FIRST_MS)) / FIRST_MS))
    return F.round(FIRST_MS * F.pow(F.lit(10.0), step / STEPS)).cast("long")
