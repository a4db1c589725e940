"""The settings that were in force, period by period, against what happened under them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The settings that decide when and how often a message is tried again; policies hold them under these names.
DECIDING = ("max_delivery_attempts", "redelivery_delay_ms", "redelivery_delay_multiplier", "max_redelivery_delay_ms")
#: The part that was dead-lettered must change by more than so many standard errors to be better or worse.
ERRORS = 3.0
_QUEUE = ("broker_id", "queue")
_DECIDED = (*_QUEUE, "policy", "rule")


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
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    took = F.col("took_ms")
    over = F.col("succeeded") + F.col("died")
    summed = (
        fates.where("policy IS NOT NULL")
        .groupBy(*_DECIDED)
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
    judged = periods.join(summed, list(_DECIDED))
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
            *(
                *_QUEUE,
                "policy",
                F.nullif("rule", F.lit("")).alias("rule"),
                "pattern",
                "from_at",
                "until",
                "current",
                *DECIDING,
                "failed",
                "succeeded",
                "died",
                "died_share",
            ),
            *("within_ms", "gives_up_ms", "retries", "wasted", "verdict", "settings_json"),
        )
        .orderBy("queue", "from_at", "until", "policy", "broker_id")
    )


def policy_periods(attempts: DataFrame, policies: DataFrame, settings: DataFrame, queues: DataFrame) -> DataFrame:
    """One row for each broker, queue, policy and rule (empty: none) that decided there: ``from_at``, ``until``, ``current``, ``pattern``
    as above, and what ``known`` tells of the policy.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    decided = (
        attempts.where("policy IS NOT NULL")
        .groupBy(*_QUEUE, "policy", F.coalesce("rule", F.lit("")).alias("rule"))
        .agg(F.min("at").alias("first_at"), F.max("at").alias("until"))
        # A queue's settings are those of its own address: a dead-letter queue's are not those of what is in it.
        .join(F.broadcast(queues.groupBy(*_QUEUE).agg(F.max_by("address", "created_at").alias("address"))), list(_QUEUE), "left")
    )
    of_address = in_force(decided.select("broker_id", "address").distinct(), settings)
    policy = known(policies)
    has_rules = F.coalesce(F.col("named")["rules"], F.lit("[]")) != "[]"
    row = list(_DECIDED)
    loads = (
        decided.join(F.broadcast(of_address), ["broker_id", "address"])
        .join(F.broadcast(policy), ["broker_id", "policy"])
        .withColumn("agrees", F.when(F.col("rule") == "", _agrees()).otherwise(has_rules))
    )
    before = F.col("loaded_at") <= F.col("first_at")
    other_at = F.max(F.when(before & ~F.col("agrees"), F.col("loaded_at"))).over(Window.partitionBy(*row))
    since = before & F.col("agrees") & (other_at.isNull() | (F.col("loaded_at") > other_at))
    seen = (
        loads.withColumn("since", F.when(since, F.col("loaded_at")))
        .groupBy(*row)
        .agg(
            F.min("since").alias("since"),
            F.max_by(F.struct("agrees", "pattern"), "loaded_at").alias("latest"),
            F.max(F.when(F.col("agrees"), F.col("pattern"))).alias("named"),
        )
    )
    queue = Window.partitionBy(*_QUEUE, "rule")
    # Where no settings say so the queue was declared with its own, or its consumers bring theirs: whoever decided last decides now.
    last = F.col("until") >= F.max("first_at").over(queue)
    return (
        decided.join(seen, row, "left")
        .join(F.broadcast(policy), ["broker_id", "policy"], "left")
        .select(
            *row,
            F.coalesce("since", "first_at").alias("from_at"),
            "until",
            F.when(F.col("since").isNotNull(), F.col("latest.agrees")).otherwise(last).alias("current"),
            F.when(F.col("since").isNotNull(), F.coalesce(F.when(F.col("latest.agrees"), F.col("latest.pattern")), "named")).alias(
                "pattern"
            ),
            *DECIDING,
            "settings_json",
        )
    )


#: What a policy holds under the name of the setting; others are made of several.
_NAMED = (
    *("max_delivery_attempts", "redelivery_delay_ms", "redelivery_delay_multiplier", "redelivery_collision_avoidance_factor"),
    *("max_redelivery_delay_ms", "redelivery_back_off", "allow_consumer_policy"),
)


def _agrees() -> Column:
    """Whether a policy is what the settings named for an address come to; never one that a consumer brought."""
    from functools import reduce
    from operator import and_

    from pyspark.sql import functions as F

    def same(name: str) -> Column:
        said, has = F.col("named")[name], F.get_json_object("settings_json", f"$.{name}")
        number = said.try_cast("double").eqNullSafe(has.try_cast("double"))
        text = F.trim(F.lit('"'), said).eqNullSafe(F.coalesce(has, F.lit("null")))
        return F.coalesce(~F.array_contains(F.map_keys("named"), name) | text | (said.try_cast("double").isNotNull() & number), F.lit(True))

    own = F.get_json_object("settings_json", "$.consumer_policy").isNull()
    return reduce(and_, map(same, _NAMED), own)


def known(policies: DataFrame) -> DataFrame:
    """Broker and policy -> ``settings_json`` and the settings of DECIDING."""
    from pyspark.sql import functions as F

    kind = {"redelivery_delay_multiplier": "double"}
    named = {name: F.get_json_object("settings_json", f"$.{name}").cast(kind.get(name, "bigint")) for name in DECIDING}
    latest = F.max_by("settings_json", "from_at").alias("settings_json")
    return policies.groupBy("broker_id", "policy").agg(latest).withColumns(named)


def in_force(addresses: DataFrame, settings: DataFrame) -> DataFrame:
    """Broker and address -> for each time at which settings about redelivery were loaded that differ from those before (``loaded_at``):
    ``named``: setting -> its value of the most specific pattern that names it, and ``pattern``: the most specific that names any.

    Word by word from the left a literal word goes before ``*``, that before the pattern's end, that before ``#``, as the broker has it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    about = settings.where(F.col("setting").isin(*_NAMED, "rules") & (F.col("pattern") != ""))
    loads = settings.select("broker_id", F.col("from_at").alias("loaded_at")).distinct()
    values = F.sort_array(F.collect_list(F.struct("pattern", "setting", "value_json")))
    whole = (
        loads.join(about.withColumnRenamed("from_at", "loaded_at"), ["broker_id", "loaded_at"], "left")
        .groupBy("broker_id", "loaded_at")
        .agg(values.alias("all"))
    )
    before = F.lag("all").over(Window.partitionBy("broker_id").orderBy("loaded_at"))
    changed = whole.withColumn("before", before).where("before IS NULL OR before != all")
    words = F.split("pattern", r"\.")
    rank = F.concat(F.transform(words, lambda word: F.when(word == "#", 0).when(word == "*", 2).otherwise(3)), F.array(F.lit(1)))
    each = changed.select("broker_id", "loaded_at", F.explode("all").alias("one")).select("broker_id", "loaded_at", "one.*")
    ranked = each.withColumns({"rank": F.struct(rank.alias("rank"), "pattern"), "regex": _regex(words)})
    dotted = addresses.where("address IS NOT NULL").withColumn("dotted", F.concat("address", F.lit(".")))
    return (
        dotted.join(F.broadcast(ranked), "broker_id")
        .where("dotted RLIKE regex")
        .groupBy("broker_id", "address", "loaded_at", "setting")
        .agg(F.max_by("value_json", "rank").alias("value_json"), F.max("rank").alias("rank"))
        .groupBy("broker_id", "address", "loaded_at")
        .agg(F.map_from_entries(F.collect_list(F.struct("setting", "value_json"))).alias("named"), F.max("rank").alias("rank"))
        .select("broker_id", "address", "loaded_at", "named", F.col("rank.pattern").alias("pattern"))
    )


def _regex(words: Column) -> Column:
    from pyspark.sql import functions as F

    def one(word: Column) -> Column:
        literal = F.concat(F.lit(r"\Q"), word, F.lit(r"\E\."))
        return F.when(word == "#", r"(?:[^.]+\.)*").when(word == "*", r"[^.]+\.").otherwise(literal)

    return F.concat(F.lit("^"), F.array_join(F.transform(words, one), ""), F.lit("$"))
