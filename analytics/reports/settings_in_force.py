"""The settings that were in force, period by period, against what happened under them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from .policy_periods import DECIDED, DECIDING

#: The part that was dead-lettered must change by more than so many standard errors to be better or worse.
ERRORS = 3.0
_QUEUE = ("broker_id", "queue")


def settings_in_force(fates: DataFrame, periods: DataFrame) -> DataFrame:
    """One row for each broker, queue, policy and ``rule`` (null: none) that attempts of it were decided by, in order of ``from_at``: when
    the settings were loaded that were in force at the first of them, or that first attempt where they were loaded before any other policy
    decided. What a rule decides is no change of settings: its rows stand beside the others, and are held against those of the same rule.
    ``periods``: of policy_periods.

    ``until``: the last attempt; ``current``: no settings were loaded since, and no other policy has decided; ``pattern``: the most
    specific address pattern that says anything about redelivery of this queue's messages and agrees with the policy (null: none on
    record; the queue was declared with its own, or its consumers brought theirs); the settings of DECIDING, and all in
    ``settings_json``. What happened to the messages whose last failure it decided: ``failed``, ``succeeded``, ``died``, ``within_ms``
    (93 % of those that succeeded had, so long after the first failure), ``gives_up_ms`` (median from first failure to death),
    ``retries``, ``wasted`` (retries of dead letters), ``died_share`` (of those that are over). ``verdict`` on the change of that
    share against the period before: ``better``, ``worse``, ``same``; ``first`` where there was none.
    """
    took = F.col("took_ms")
    over = F.col("succeeded") + F.col("died")
    summed = (
        fates.where("policy IS NOT NULL")
        .groupBy(*DECIDED)
        .agg(
            F.count(F.lit(1)).alias("failed"),
            F.count_if("won").alias("succeeded"),
            F.count_if("died").alias("died"),
            F.percentile_approx(F.when(F.col("won"), took), 0.93).alias("within_ms"),
            F.percentile_approx(F.when(F.col("died"), took), 0.5).alias("gives_up_ms"),
            F.sum(F.col("tries") - 1).alias("retries"),
            F.sum(F.when(F.col("died"), F.col("failed_attempts") - 1).otherwise(0)).alias("wasted"),
        )
        .withColumn("died_share", F.when(over > 0, F.col("died") / over))
    )
    judged = periods.join(summed, list(DECIDED))
    in_order = Window.partitionBy(*_QUEUE, "rule").orderBy("from_at", "until", "policy")
    before, n_before = F.lag("died_share").over(in_order), F.lag(over).over(in_order)
    pooled = (F.lag("died").over(in_order) + F.col("died") + 1) / (n_before + over + 2)
    error = F.sqrt(pooled * (1 - pooled) * (F.try_divide(F.lit(1), n_before) + F.try_divide(F.lit(1), over)))
    change = F.col("died_share") - before
    verdict = (
        F.when(F.row_number().over(in_order) == 1, "first")
        .when(change > ERRORS * error, "worse")
        .when(change < -ERRORS * error, "better")
        .otherwise("same")
    )
    return (
        judged.withColumn("verdict", verdict)
        .select(
            *(*_QUEUE, "policy", F.nullif("rule", F.lit("")).alias("rule"), "pattern", "from_at", "until", "current", *DECIDING),
            *("failed", "succeeded", "died", "died_share"),
            *("within_ms", "gives_up_ms", "retries", "wasted", "verdict", "settings_json"),
        )
        .orderBy("queue", "from_at", "until", "policy", "broker_id")
    )
