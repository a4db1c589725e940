"""Dead letters by where they are, which queue they left, where they were sent to and of which fault, with their ages."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .clusters import plain_text
from .dead_letters import AGES
from .fates import UNKNOWN

LIMIT = 1_000
#: A column for each of AGES, in their order.
AGE_COLUMNS = ("under_hour", "under_day", "under_week", "older")


def dead_letter_groups(deaths: DataFrame, faults: DataFrame, exported_at_us: int, limit: int = LIMIT) -> DataFrame:
    """The ``limit`` largest groups, most deaths first: ``broker_id``, ``dead_letter_queue`` (where they were put, null: nowhere), ``queue``
    (which they left), ``source`` (the address they were sent to), ``reason``, ``error_class`` and ``fault``: an example of the text of the
    fault group (texts that are near duplicates are one group; null: no text on record), ``cluster``: its number in ``poison_clusters``;
    ``deaths``, ``remaining`` (still in a dead-letter queue), and of the deaths those ``under_hour``, ``under_day``, ``under_week`` old and
    ``older``.
    """
    age_s = (F.lit(exported_at_us) - F.unix_micros("died_at")) / 1_000_000
    rank = F.lit(len(AGES) - 1)
    for index, (_, below_s) in reversed(list(enumerate(AGES[:-1]))):
        rank = F.when(age_s < below_s, index).otherwise(rank)
    described = faults.select("broker_id", "error_class", "plain", "cluster", "fault")
    plain = F.when(F.col("error_text").isNotNull(), plain_text(F.col("error_text")))
    each = (
        deaths.withColumns({"plain": plain, "error_class": F.coalesce("error_class", F.lit(""))})
        .join(F.broadcast(described), ["broker_id", "error_class", "plain"], "left")
        .withColumn("error_class", F.coalesce(F.nullif("error_class", F.lit("")), "reason", F.lit(UNKNOWN)))
        .withColumns({"rank": rank, "dead_letter_queue": F.get("target_queues", F.lit(0))})
    )
    ages = [F.sum(F.when(F.col("rank") == index, F.col("deaths")).otherwise(0)).alias(name) for index, name in enumerate(AGE_COLUMNS)]
    return (
        each.groupBy(
            "broker_id", "dead_letter_queue", "queue", F.col("address").alias("source"), "reason", "error_class", "cluster", "fault"
        )
        .agg(
            F.sum("deaths").alias("deaths"),
            F.count_if(F.size("lies_in") > 0).alias("remaining"),
            *ages,
            F.min("died_at").alias("first_died_at"),
            F.max("died_at").alias("last_died_at"),
        )
        .orderBy(F.desc("deaths"), "dead_letter_queue", "queue", "source", "reason", "error_class", "cluster", "broker_id")
        .limit(limit)
    )
