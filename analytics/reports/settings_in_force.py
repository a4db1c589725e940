"""The settings that were in force, period by period, against what happened under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The settings that decide when and how often a message is tried again; policies hold them under these names.
DECIDING = ("max_delivery_attempts", "redelivery_delay_ms", "redelivery_delay_multiplier", "max_redelivery_delay_ms")
#: The part that died must change by more than so many standard errors to be better or worse.
ERRORS = 3.0


def settings_in_force(fates: DataFrame, policies: DataFrame, settings: DataFrame) -> DataFrame:
    """One row for each queue and policy that attempts of it were decided by, in order of ``from_at`` (the first failure under it).

    ``until``: the last failure; ``current``: no other policy has taken over since; ``pattern``: the most specific address pattern that
    says anything about redelivery of this queue's messages (null: none on record); the settings of DECIDING, and all in
    ``settings_json``. What happened to the messages whose last failure it decided: ``failed``, ``succeeded``, ``died``, ``within_ms``
    (93 % of those that succeeded had, so long after the first failure), ``gives_up_ms`` (median from first failure to death),
    ``retries``, ``wasted`` (retries of messages that died), ``died_share`` (of those that are over). ``verdict`` on the change of that
    share against the period before: ``better``, ``worse``, ``same``; ``first`` where there was none.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    took = F.col("took_ms")
    over = F.col("succeeded") + F.col("died")
    summed = (
        fates.where("policy IS NOT NULL")
        .groupBy("queue", "policy")
        .agg(
            F.min("first_at").alias("from_at"),
            F.max("last_at").alias("until"),
            F.max("address").alias("address"),
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
    queue = Window.partitionBy("queue")
    in_order = queue.orderBy("from_at", "policy")
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
    judged = summed.withColumns({"verdict": verdict, "current": F.col("until") >= F.max("from_at").over(queue)})
    return (
        judged.join(F.broadcast(known(policies)), "policy", "left")
        .join(F.broadcast(most_specific(judged.select("address").distinct(), settings)), "address", "left")
        .select(
            *("queue", "policy", "pattern", "from_at", "until", "current", *DECIDING, "failed", "succeeded", "died", "died_share"),
            *("within_ms", "gives_up_ms", "retries", "wasted", "verdict", "settings_json"),
        )
        .orderBy("queue", "from_at", "policy")
    )


def known(policies: DataFrame) -> DataFrame:
    """policy -> ``settings_json`` and the settings of DECIDING."""
    from pyspark.sql import functions as F

    kind = {"redelivery_delay_multiplier": "double"}
    named = {name: F.get_json_object("settings_json", f"$.{name}").cast(kind.get(name, "bigint")) for name in DECIDING}
    return policies.groupBy("policy").agg(F.max_by("settings_json", "from_at").alias("settings_json")).withColumns(named)


def most_specific(addresses: DataFrame, settings: DataFrame) -> DataFrame:
    """address -> ``pattern``: of those in the latest settings that say anything about redelivery, the most specific that matches.

    Word by word from the left a literal word goes before ``*``, that before the pattern's end, that before ``#``, as the broker has it.
    """
    from pyspark.sql import functions as F

    about = F.col("setting").like("%redelivery%") | (F.col("setting") == "max_delivery_attempts")
    patterns = settings.where((F.col("pattern") != "") & about).select("pattern").distinct()
    words = F.split("pattern", r"\.")
    rank = F.concat(F.transform(words, lambda word: F.when(word == "#", 0).when(word == "*", 2).otherwise(3)), F.array(F.lit(1)))
    ranked = patterns.select("pattern", rank.alias("rank"), _regex(words).alias("regex"))
    dotted = addresses.where("address IS NOT NULL").withColumn("dotted", F.concat("address", F.lit(".")))
    matching = dotted.join(F.broadcast(ranked), F.expr("dotted RLIKE regex"))
    return matching.groupBy("address").agg(F.max_by("pattern", F.struct("rank", "pattern")).alias("pattern"))


def _regex(words: Column) -> Column:
    from pyspark.sql import functions as F

    def one(word: Column) -> Column:
        literal = F.concat(F.lit(r"\Q"), word, F.lit(r"\E\."))
        return F.when(word == "#", r"(?:[^.]+\.)*").when(word == "*", r"[^.]+\.").otherwise(literal)

    return F.concat(F.lit("^"), F.array_join(F.transform(words, one), ""), F.lit("$"))
