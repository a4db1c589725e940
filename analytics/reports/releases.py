"""Which release meets which fault: faults by the consumer's program, its host and its version, against the others of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Fewer deliveries than this say nothing about a release.
ENOUGH = 20
#: So many times as often as elsewhere in the queue, by more than so many standard errors, is suspect.
LIFT, ERRORS = 3.0, 3.0
_WHO = ("broker_id", "queue", "client_id", "host", "version")


def releases(attempts: DataFrame, served: DataFrame) -> DataFrame:
    """One row for each broker, queue, error class and program (``client_id``, ``host``, ``version``) that met it: ``failed`` (attempts on
    record), ``deliveries`` of that program, ``others_failed`` and ``others_deliveries`` of all others of the queue; ``lift``: how many
    times as often as these it fails so, null where these never did or there are none; ``suspect``: far more often, beyond chance; and when
    the program met the fault: ``first_at``, ``last_at``. ``served``: deliveries_by_consumer. Programs that said nothing of themselves are
    left out.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    known = "client_id IS NOT NULL OR host IS NOT NULL OR version IS NOT NULL"
    nothing: dict[str, Any] = dict.fromkeys(_WHO[2:], "")
    met = (
        attempts.where(known)
        .fillna(nothing)
        .groupBy(*_WHO, "error_class")
        .agg(F.count(F.lit(1)).alias("failed"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
    )
    had = (
        served.where(known)
        .fillna(nothing)
        .groupBy(*_WHO)
        .agg(F.sum(F.col("succeeded") + F.coalesce("failed", F.lit(0))).alias("deliveries"))
        .withColumn("queue_deliveries", F.sum("deliveries").over(Window.partitionBy("broker_id", "queue")))
    )
    fault = Window.partitionBy("broker_id", "queue", "error_class")
    both = met.join(had, list(_WHO)).withColumns(
        {
            "others_failed": F.sum("failed").over(fault) - F.col("failed"),
            "others_deliveries": F.col("queue_deliveries") - F.col("deliveries"),
        }
    )
    own, other = F.try_divide("failed", "deliveries"), F.try_divide("others_failed", "others_deliveries")
    n = F.col("deliveries") + F.col("others_deliveries")
    pooled = (F.col("failed") + F.col("others_failed")) / n
    error = F.sqrt(pooled * (1 - pooled) * (F.try_divide(F.lit(1), "deliveries") + F.try_divide(F.lit(1), "others_deliveries")))
    enough = (F.col("deliveries") >= ENOUGH) & (F.col("others_deliveries") >= ENOUGH)
    suspect = enough & (own >= LIFT * other) & (own - other > ERRORS * error)
    return both.select(
        *_WHO[:2],
        "error_class",
        *(F.nullif(name, F.lit("")).alias(name) for name in _WHO[2:]),
        *("failed", "deliveries", "others_failed", "others_deliveries"),
        F.try_divide(own, other).alias("lift"),
        F.coalesce(suspect, F.lit(False)).alias("suspect"),
        *("first_at", "last_at"),
    ).orderBy(F.desc("suspect"), F.desc("failed"), "queue", "error_class", *_WHO[2:], "broker_id")
