"""Settings in force against what happened, one row for each queue, policy and error class, with what the numbers recommend."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .deaths import OTHERWISE
from .policy_periods import DECIDING

#: Fewer messages than this are no ground for advice.
ENOUGH = 20
#: More attempts would save more where this part of the successes after failing came with the last or last but one attempt allowed; or
#: in the later half of the time tried, and LOST of the messages were dead-lettered.
LATE, LOST = 0.1, 0.05
#: Part of the messages that succeed after failing; at this or below, retrying is wasted.
HOPELESS = 0.02
#: How much of what fails should succeed, in the advice on how long to try.
WANTED = 0.99
#: Longer than so many times what was tried, nothing is said about.
REACH = 50


def advice(fates: DataFrame, periods: DataFrame) -> DataFrame:
    """One row for each broker, queue, policy and rule (of the last failure; null: none had a say) and error class (of the first).

    ``pattern`` and ``current``: of the policy, as in ``periods``; ``failed`` messages; ``succeeded`` after failing, ``died``
    for failing, ``verdicts`` of these because the consumer said that trying again is of no use, ``died_otherwise`` (expired, over length);
    ``within_ms``: 93 % of those that succeeded had, so long after the first failure;
    ``gives_up_ms``: the median from first failure to death; ``most_attempts``: of any message under the policy; ``last_two``: succeeded
    with one of the last two attempts that anyone had; ``late_wins``: in the later half of the time to ``gives_up_ms``; ``retries``;
    ``wasted``: retries of dead letters; ``first_at``, ``last_at``: when it was met; the settings of DECIDING; ``kind``: what is
    recommended: ``longer``, ``not-retryable``,
    ``room`` (failing was not the reason), ``fine``, ``too-few``. ``needs_ms``, where ``longer``: modelled, not observed: so long after
    the first failure WANTED of the messages would have succeeded, if the dead letters went on to succeed as fast as others did in the
    later half of the time tried; null: that would be more than REACH times as long.
    """
    queue = ["broker_id", "queue", "policy", "rule"]
    group = [*queue, "error_class"]
    each = fates.where("first_at IS NOT NULL AND policy IS NOT NULL")
    failing = F.col("died") & ~F.col("reason").isin(*OTHERWISE)
    each = each.withColumns(
        {"otherwise": (F.col("outcome") == "expired") | (F.col("died") & ~failing), "died": F.coalesce(failing, F.lit(False))}
    )
    died, won, took = F.col("died"), F.col("won"), F.col("took_ms")
    # The allowed attempts as those show them that used them up; where none did, as many as anyone had.
    at_limit = died & (F.col("reason") == "delivery_limit")
    most = each.groupBy(*queue).agg(F.coalesce(F.max(F.when(at_limit, F.col("tries"))), F.max("tries")).alias("most_attempts"))
    lasted = each.groupBy(*group).agg(F.percentile_approx(F.when(died, took), 0.5).alias("gives_up_ms"))
    half = F.col("gives_up_ms") / 2
    summed = (
        each.join(F.broadcast(most), queue)
        .join(F.broadcast(lasted), group)
        .groupBy(*group, "most_attempts", "gives_up_ms")
        .agg(
            F.count(F.lit(1)).alias("failed"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            F.count_if(won).alias("succeeded"),
            F.count_if(died).alias("died"),
            F.count_if(died & (F.col("reason") == "not-retryable")).alias("verdicts"),
            F.count_if("otherwise").alias("died_otherwise"),
            F.percentile_approx(F.when(won, took), 0.93).alias("within_ms"),
            F.count_if(won & (F.col("tries") >= F.col("most_attempts") - 1) & (F.col("most_attempts") > 2)).alias("last_two"),
            F.sum(F.col("tries") - 1).alias("retries"),
            F.sum(F.when(died, F.col("failed_attempts") - 1).otherwise(0)).alias("wasted"),
            F.count_if(won & (took > half)).alias("late_wins"),
            F.sum(F.greatest(F.least(took.cast("double"), F.col("gives_up_ms").cast("double")) - half, F.lit(0.0))).alias("late_ms"),
        )
    )
    needs = F.col("gives_up_ms") + F.log(F.col("died") / F.col("failed") / (1 - WANTED)) * F.try_divide("late_ms", "late_wins")
    return (
        summed.withColumn("kind", _kind())
        .withColumn("needs_ms", F.when((F.col("kind") == "longer") & (needs <= REACH * F.col("gives_up_ms")), F.round(needs).cast("long")))
        .join(F.broadcast(periods), queue)
        .select(
            *("broker_id", "queue", "error_class", "kind", F.nullif("rule", F.lit("")).alias("rule"), "pattern", "current"),
            *("failed", "succeeded", "died", "verdicts", "died_otherwise"),
            *("within_ms", "gives_up_ms", "needs_ms", "most_attempts", "last_two", "late_wins", "retries", "wasted", "policy"),
            *("first_at", "last_at"),
            *(*DECIDING, "settings_json"),
        )
        .orderBy(F.desc("current"), F.desc("died"), F.desc("wasted"), "queue", "error_class", "policy", "broker_id")
    )


def _kind() -> Column:
    at_the_end = (F.col("last_two") >= LATE * F.col("succeeded")) & (F.col("died") > 0)
    still = (F.col("late_wins") >= LATE * F.col("succeeded")) & (F.col("died") >= LOST * F.col("failed"))
    late = (F.col("succeeded") > 0) & (at_the_end | still)
    return (
        F.when(F.col("failed") < ENOUGH, "too-few")
        # Its consumers say so already where most deaths are verdicts.
        .when(
            (F.col("succeeded") <= HOPELESS * F.col("failed")) & (F.col("wasted") > 0) & (2 * F.col("verdicts") < F.col("died")),
            "not-retryable",
        )
        .when(late, "longer")
        .when(F.col("died_otherwise") >= LOST * F.col("failed"), "room")
        .otherwise("fine")
    )
