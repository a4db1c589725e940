"""Which release, host or program meets a fault far more often than those that were there at the same time."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..spark.session import settled

#: What is compared. Where two explain a fault alike the first of these is said to.
KINDS = ("version", "host", "client_id")
#: Fewer deliveries than this, or messages that failed, say nothing.
ENOUGH, MET = 20, 5
#: So many times as often as the others, by more than so many standard errors, is suspect.
LIFT, ERRORS = 2.0, 4.0
#: Programs are held to have worked evenly from their first delivery of an hour to their last; this is how finely they are compared.
SLICE_S = 300
#: What is nearly as far from chance explains a fault alike.
ALIKE = 0.95
LIMIT = 1_000
_FAULT = ("broker_id", "queue", "error_class")
_WHOSE = ("broker_id", "queue", "kind", "name")


def releases(attempts: DataFrame, served: DataFrame) -> DataFrame:
    """One row for each broker, queue, error class and ``kind`` (of KINDS) of a program's ``name`` that met it: ``failed`` messages of its
    ``deliveries``, while others were there, too; ``others_failed``, ``others_deliveries`` of these at the same time; ``lift``: how many
    times as often as these it fails so, by Mantel and Haenszel over slices of time, null where these never did; ``suspect``: far more
    often, beyond chance, and of all kinds and names the one that explains the fault best; ``alike``: other names that explain it as well;
    and when it met the fault: ``first_at``, ``last_at``. ``served``: deliveries_by_consumer.

    A message that fails with others, too, fails for a reason of its own. Deliveries of a slice are reckoned, and no whole number.
    """
    there = settled(_there(served))
    whose, by_slice = [*_FAULT, "kind"], [*_WHOSE[:3], "slice"]
    # Who did not fail so in a slice in which others did was there all the same.
    by_name = F.map_from_entries(F.collect_list(F.struct("name", F.struct("failed", "first_at", "last_at").alias("met"))))
    met = _failed(attempts.where("error_class IS NOT NULL")).groupBy(*whose, "slice").agg(by_name.alias("by_name"))
    each = met.join(there, by_slice).withColumn("met", F.try_element_at("by_name", F.xxhash64("name")))
    each = each.select("*", F.coalesce("met.failed", F.lit(0)).alias("failed"), "met.first_at", "met.last_at")
    own, at_once = F.greatest("deliveries", F.col("failed").cast("double")), Window.partitionBy(*whose, "slice")
    each = each.withColumn("own", own).withColumns({"n": F.sum("own").over(at_once), "all_failed": F.sum("failed").over(at_once)})
    part, others = F.col("own") / F.col("n"), F.col("all_failed") - F.col("failed")
    chance = (
        part * (1 - part) * F.col("all_failed") * F.coalesce(F.try_divide(F.col("n") - F.col("all_failed"), F.col("n") - 1), F.lit(0.0))
    )
    compared = each.groupBy(*whose, "name").agg(
        F.sum("failed").alias("failed"),
        F.sum(others).alias("others_failed"),
        F.try_divide(F.sum(F.col("failed") * (1 - part)), F.sum(others * part)).alias("lift"),
        F.try_divide(F.sum(F.col("failed") - F.col("all_failed") * part), F.sqrt(F.sum(chance))).alias("errors"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )
    whole = there.groupBy(*_WHOSE).agg(F.sum("deliveries").alias("deliveries"), F.sum("others").alias("others_deliveries"))
    enough = (F.col("failed") >= MET) & (F.col("deliveries") >= ENOUGH) & (F.col("others_deliveries") >= ENOUGH)
    far = enough & (F.col("errors") > ERRORS) & (F.coalesce("lift", F.lit(LIFT)) >= LIFT)
    best = Window.partitionBy(*_FAULT)
    explains = F.col("errors") >= ALIKE * F.max(F.when(F.col("far"), F.col("errors"))).over(best)
    rank = F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind"))
    one = F.struct(rank.alias("rank"), (-F.col("errors")).alias("errors"), "name")
    alike = F.collect_set(F.when(F.col("explains"), F.concat_ws(" ", "kind", "name"))).over(best)
    return (
        compared.where("failed > 0")
        .join(whole, list(_WHOSE))
        .withColumn("far", far)
        .withColumn("explains", F.coalesce(F.col("far") & explains, F.lit(False)))
        .withColumns({"first": F.min(F.when(F.col("explains"), one)).over(best), "alike": F.sort_array(alike)})
        .withColumn("suspect", F.coalesce(F.col("first") == one, F.lit(False)))
        .select(
            *(*whose, "name", "failed"),
            F.round("deliveries").cast("long").alias("deliveries"),
            "others_failed",
            F.round("others_deliveries").cast("long").alias("others_deliveries"),
            *("lift", "suspect"),
            F.array_join(F.when(F.col("suspect"), F.array_remove("alike", F.concat_ws(" ", "kind", "name"))), ", ").alias("alike"),
            *("first_at", "last_at"),
        )
        .orderBy(F.desc("suspect"), F.desc("failed"), *whose, "name")
        .limit(LIMIT)
    )


def _failed(attempts: DataFrame) -> DataFrame:
    """The fault's messages that failed with one name of a kind only, in the slice of the first time: ``failed``, ``first_at``,
    ``last_at``; ``name`` is its hash here, for numbers are quickly put together."""
    numbers = {kind: F.when(F.col(kind).isNotNull(), F.xxhash64(kind)) for kind in KINDS}
    least = [F.min(each).alias(kind) for kind, each in numbers.items()]
    most = [F.max(each).alias(f"{kind}_too") for kind, each in numbers.items()]
    messages = attempts.groupBy("message_id", *_FAULT).agg(F.min("at").alias("at"), *least, *most)
    lone = messages.withColumns({kind: F.when(F.col(kind) == F.col(f"{kind}_too"), F.col(kind)) for kind in KINDS})
    return (
        _named(lone)
        .groupBy(*_FAULT, "kind", "name", _slice("at").alias("slice"))
        .agg(F.count(F.lit(1)).alias("failed"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
    )


def _there(served: DataFrame) -> DataFrame:
    """What each name was given in a slice in which others were there, too: ``deliveries``, and ``others`` of all of these."""
    begin, end = F.coalesce("first_at", "hour"), F.coalesce("last_at", F.col("hour") + F.expr("INTERVAL 3599 SECONDS"))
    slices = F.sequence(_slice(begin), F.greatest(_slice(begin), _slice(end)))
    given = (F.col("succeeded") + F.coalesce("failed", F.lit(0))) / F.size(slices)
    at_once = Window.partitionBy(*_WHOSE[:3], "slice")
    return (
        _named(served.withColumns({"deliveries": given, "slice": slices}))
        .withColumn("slice", F.explode("slice"))
        .groupBy(*_WHOSE, "slice")
        .agg(F.sum("deliveries").alias("deliveries"))
        .withColumn("others", F.sum("deliveries").over(at_once) - F.col("deliveries"))
        .where("others > 0")
    )


def _slice(at: Column | str) -> Column:
    return F.floor(F.unix_seconds(at) / SLICE_S)


def _named(frame: DataFrame) -> DataFrame:
    """``frame`` once for each kind of name that its program told: ``kind``, ``name``."""
    told = F.array(*(F.struct(F.lit(kind).alias("kind"), F.col(kind).alias("name")) for kind in KINDS))
    return frame.withColumn("told", F.explode(told)).select("*", "told.*").where("name IS NOT NULL").drop("told", *KINDS)
