"""What was dead-lettered, where, why, and how long ago."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: (name, younger than so many seconds); in order of age.
AGES = (("under 1 hour", 3_600), ("1 to 24 hours", 86_400), ("1 to 7 days", 7 * 86_400), ("7 days and more", None))


def dead_letters(deaths: DataFrame, exported_at_us: int) -> DataFrame:
    """One row for each broker, queue, outcome, reason, error class and age that has any death; the first three as in ``deaths``.

    ``error_class``: of the last attempt, where failing was the reason; else the reason. ``age``, numbered by ``age_rank``: from
    death to export. ``deaths``; ``remaining``: of these, those that are still in a dead-letter queue; ``first_died_at``, ``last_died_at``.
    """
    age_s = (F.lit(exported_at_us) - F.unix_micros("died_at")) / 1_000_000
    name, rank = F.lit(AGES[-1][0]), F.lit(len(AGES) - 1)
    for index, (age, below_s) in reversed(list(enumerate(AGES[:-1]))):
        name = F.when(age_s < below_s, age).otherwise(name)
        rank = F.when(age_s < below_s, index).otherwise(rank)
    return (
        deaths.withColumn("error_class", F.coalesce("error_class", "reason", F.lit("not on record")))
        .groupBy("broker_id", "queue", "outcome", "reason", "error_class", name.alias("age"), rank.alias("age_rank"))
        .agg(
            F.sum("deaths").alias("deaths"),
            F.count_if(F.size("lies_in") > 0).alias("remaining"),
            F.min("died_at").alias("first_died_at"),
            F.max("died_at").alias("last_died_at"),
        )
        .orderBy("queue", "error_class", "age_rank", "reason", "outcome", "broker_id")
    )
