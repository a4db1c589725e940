"""Settings in force against what happened, one row for each queue, policy and error class, with what the numbers recommend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .settings_in_force import DECIDING, known, most_specific

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Fewer messages than this are no ground for advice.
ENOUGH = 20
#: More attempts would save more where this part of the successes after failing came with the last or last but one attempt allowed; or
#: in the later half of the time tried, and LOST of the messages died.
LATE, LOST = 0.1, 0.05
#: Part of the messages that succeed after failing; at this or below, retrying is wasted.
HOPELESS = 0.02
#: How much of what fails should come home, in the advice on how long to try.
WANTED = 0.99
#: Longer than so many times what was tried, nothing is said about.
REACH = 50


def advice(fates: DataFrame, policies: DataFrame, settings: DataFrame) -> DataFrame:
    """One row for each queue, policy (of the last failure) and error class (of the first).

    ``pattern``: of the settings to change; ``current``: no other policy has taken over in the queue since; ``failed`` messages;
    ``succeeded`` after failing, ``died``; ``within_ms``: 93 % of those that succeeded had, so long after the first failure;
    ``gives_up_ms``: the median from first failure to death; ``most_attempts``: of any message under the policy; ``last_two``: succeeded
    with one of the last two attempts that anyone had; ``late_wins``: in the later half of the time to ``gives_up_ms``; ``retries``;
    ``wasted``: retries of messages that died; the settings of DECIDING; ``kind``: what is recommended: ``longer``, ``not-retryable``,
    ``fine``, ``too-few``. ``needs_ms``, where ``longer``: modelled, not observed: so long after the first failure WANTED of the
    messages would have come home, if those that died went on to succeed as fast as others did in the later half of the time tried;
    null: that would be more than REACH times as long.
    """
    from pyspark.sql import functions as F

    group = ["queue", "policy", "error_class"]
    each = fates.where("first_at IS NOT NULL AND policy IS NOT NULL")
    died, won, took = F.col("died"), F.col("won"), F.col("took_ms")
    # The allowed attempts as the dead show them; where none died, as many as anyone had.
    most = each.groupBy("queue", "policy").agg(
        F.coalesce(F.max(F.when(died, F.col("tries"))), F.max("tries")).alias("most_attempts"),
        F.max("address").alias("address"),
        F.max("last_at").alias("until"),
        F.min("first_at").alias("from_at"),
    )
    lasted = each.groupBy(*group).agg(F.percentile_approx(F.when(died, took), 0.5).alias("gives_up_ms"))
    half = F.col("gives_up_ms") / 2
    summed = (
        each.join(F.broadcast(most.select("queue", "policy", "most_attempts")), ["queue", "policy"])
        .join(F.broadcast(lasted), group)
        .groupBy(*group, "most_attempts", "gives_up_ms")
        .agg(
            F.count(F.lit(1)).alias("failed"),
            F.count_if(won).alias("succeeded"),
            F.count_if(died).alias("died"),
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
        .join(F.broadcast(_where(most, settings)), ["queue", "policy"])
        .join(F.broadcast(known(policies)), "policy", "left")
        .select(
            *("queue", "error_class", "kind", "pattern", "current", "failed", "succeeded", "died", "within_ms", "gives_up_ms"),
            *("needs_ms", "most_attempts", "last_two", "late_wins", "retries", "wasted", "policy", *DECIDING, "settings_json"),
        )
        .orderBy(F.desc("current"), F.desc("died"), F.desc("wasted"), "queue", "error_class", "policy")
    )


def _kind() -> Column:
    from pyspark.sql import functions as F

    at_the_end = (F.col("last_two") >= LATE * F.col("succeeded")) & (F.col("died") > 0)
    still = (F.col("late_wins") >= LATE * F.col("succeeded")) & (F.col("died") >= LOST * F.col("failed"))
    late = (F.col("succeeded") > 0) & (at_the_end | still)
    return (
        F.when(F.col("failed") < ENOUGH, "too-few")
        .when((F.col("succeeded") <= HOPELESS * F.col("failed")) & (F.col("wasted") > 0), "not-retryable")
        .when(late, "longer")
        .otherwise("fine")
    )


def _where(most: DataFrame, settings: DataFrame) -> DataFrame:
    """queue and policy -> ``pattern`` and ``current``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    current = F.col("until") >= F.max("from_at").over(Window.partitionBy("queue"))
    of_address = most_specific(most.select("address").distinct(), settings)
    named = most.join(F.broadcast(of_address), "address", "left")
    return named.select("queue", "policy", "pattern", current.alias("current"))
