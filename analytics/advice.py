"""Settings in force against what happened, one row for each queue and error class, with what the numbers recommend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analytics.words import number, plural, share, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Fewer messages than this are no ground for advice.
ENOUGH = 20
#: Part of the successes after failing that came with the last or last but one attempt allowed: more attempts would save more.
LATE = 0.1
#: Part of the retries of a class that succeed; below this retrying is wasted.
HOPELESS = 0.02


def advice(messages: DataFrame, attempts: DataFrame, policies: DataFrame) -> DataFrame:
    """One row for each queue and error class of the first failure.

    ``failed`` messages; ``succeeded`` after failing, ``died``; ``within_ms``: 93 % of those that succeeded had, so long after the first
    failure; ``gives_up_ms``: the median from first failure to death; ``most_attempts``: of any message; ``last_two``: succeeded with one
    of the last two attempts that anyone had; ``retries`` and ``retries_won``; ``wasted``: retries of messages that died;
    ``max_delivery_attempts``, ``redelivery_delay_ms``: of the policy in force at the latest failure; ``kind``: what is recommended:
    ``longer``, ``not-retryable``, ``fine``, ``too-few``.
    """
    from pyspark.sql import functions as F

    key = ["broker_id", "sequence"]
    one = F.struct("attempt", "at", "error_class", "policy")
    told = attempts.groupBy(*key).agg(F.min(one).alias("first"), F.max(one).alias("last"))
    won = F.col("outcome") == "succeeded"
    died = F.col("outcome").isin("dead-lettered", "dropped")
    took = (F.unix_micros("settled_at") - F.unix_micros(F.col("first.at"))) / 1000
    each = (
        messages.where("failed_attempts > 0")
        .select(*key, "queue", "outcome", "failed_attempts", "attempts", "settled_at")
        .join(told, key)
        .select(
            "queue",
            F.coalesce("first.error_class", F.lit("not on record")).alias("error_class"),
            "outcome",
            "failed_attempts",
            "attempts",
            took.alias("took_ms"),
            F.struct("last.at", "last.policy").alias("last"),
        )
    )
    # The allowed attempts as the dead show them; where none died, as many as anyone had.
    most = each.groupBy("queue").agg(F.coalesce(F.max(F.when(died, F.col("attempts"))), F.max("attempts")).alias("most_attempts"))
    summed = (
        each.join(F.broadcast(most), "queue")
        .groupBy("queue", "error_class", "most_attempts")
        .agg(
            F.count(F.lit(1)).alias("failed"),
            F.count_if(won).alias("succeeded"),
            F.count_if(died).alias("died"),
            F.percentile_approx(F.when(won, F.col("took_ms")), 0.93).alias("within_ms"),
            F.percentile_approx(F.when(died, F.col("took_ms")), 0.5).alias("gives_up_ms"),
            F.count_if(won & (F.col("attempts") >= F.col("most_attempts") - 1) & (F.col("most_attempts") > 2)).alias("last_two"),
            F.sum(F.col("attempts") - 1).alias("retries"),
            F.sum(F.when(died, F.col("failed_attempts") - 1).otherwise(0)).alias("wasted"),
            F.max("last").alias("last"),
        )
        .withColumn("policy", F.col("last.policy"))
    )
    in_force = policies.groupBy("policy").agg(F.max_by("settings_json", "from_at").alias("json"))
    setting = {name: F.get_json_object("json", f"$.{name}").cast("bigint") for name in ("max_delivery_attempts", "redelivery_delay_ms")}
    late = (F.col("last_two") >= LATE * F.col("succeeded")) & (F.col("succeeded") > 0) & (F.col("died") > 0)
    kind = (
        F.when(F.col("failed") < ENOUGH, "too-few")
        .when((F.col("succeeded") <= HOPELESS * F.col("failed")) & (F.col("wasted") > 0), "not-retryable")
        .when(late, "longer")
        .otherwise("fine")
    )
    return (
        summed.join(F.broadcast(in_force), "policy", "left")
        .withColumns(setting | {"kind": kind})
        .select(
            *("queue", "error_class", "kind", "failed", "succeeded", "died", "within_ms", "gives_up_ms", "most_attempts", "last_two"),
            *("retries", "wasted", "policy", "max_delivery_attempts", "redelivery_delay_ms"),
        )
        .orderBy(F.desc("died"), F.desc("wasted"), "queue", "error_class")
    )


def sentence(row: Mapping[str, Any]) -> str:
    """One row of ``advice`` as a recommendation."""
    where = f"{row['queue']}, {row['error_class']}"
    if row["kind"] == "not-retryable":
        return (
            f"{where}: retrying does not help. {number(row['succeeded'])} of {plural(row['failed'], 'message')} came home, and "
            f"{plural(row['wasted'], 'retry was', 'retries were')} wasted. Fail it with retryable=False, or allow fewer attempts."
        )
    if row["kind"] == "longer":
        lasts = f"; {row['most_attempts']} attempts give up after {span(row['gives_up_ms'])}" if row["gives_up_ms"] is not None else ""
        return (
            f"{where}: 93 % of what succeeds after a failure does so within {span(row['within_ms'])}{lasts}. "
            f"{share(row['last_two'], row['succeeded'])} of the successes came with one of the last two attempts, so more would have come "
            f"with later ones: let the attempts reach {span(2 * max(row['within_ms'], row['gives_up_ms'] or 0))}, and try that with "
            "homing simulate."
        )
    if row["kind"] == "fine":
        return f"{where}: {share(row['succeeded'], row['failed'])} of what failed came home; nothing to change."
    return f"{where}: {plural(row['failed'], 'message')}, too few to say."
