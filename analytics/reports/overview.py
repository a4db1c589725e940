"""Where all messages of each queue ended up, and whether the sum comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTS = (
    *("sent", "moved_in", "delivered", "succeeded", "first_try", "failed"),
    *("dead_lettered", "expired", "dropped", "purged", "moved_out"),
)
HERE = ("ready", "scheduled", "parked")


def overview(
    messages: DataFrame,
    deliveries_by_minute: DataFrame,
    before: DataFrame | None = None,
    *,
    copies: DataFrame | None = None,
    cut: bool = False,
) -> DataFrame:
    """One row for each broker and queue, most sent first: the counts of ``deliveries_by_minute`` summed, and

    - ``here_before``: messages that were here when the window began, from the counts ``before`` it; 0 where it began with the queue;
    - ``ready``, ``scheduled``, ``parked``, ``here``: messages still here;
    - ``succeeded_later``: succeeded after failing at least once;
    - ``difference``: sent + moved_in less everything that became of them; 0 unless the export is wrong. Where the window is ``cut`` before
      the export it is 0, for what is here is reckoned so: who succeeded at once later has no row;
    - of the messages that were sent to this queue, and of the ``copies`` put there of what was edited and kept, wherever they went:
      ``came_home``: succeeded here in the end; ``waiting``: they are here; ``given_up``: the rest (dead, expired, purged);
    - ``success_share``: succeeded among the entries that are over; null where none is.
    """
    from pyspark.sql import functions as F

    counts = deliveries_by_minute.groupBy("broker_id", "queue").agg(*(F.sum(name).alias(name) for name in COUNTS))
    still = (
        messages.where("state <> 'settled'")
        .groupBy("broker_id", "queue")
        .agg(*(F.count_if(F.col("state") == name).alias(name) for name in HERE))
    )
    at_home = F.col("home_queue") == F.col("queue")
    elsewhere = (
        messages.where(~at_home & (F.col("outcome") == "succeeded")).groupBy("broker_id", "queue").agg(F.count(F.lit(1)).alias("guests"))
    )
    waiting = messages.where(at_home & (F.col("state") != "settled")).groupBy("broker_id", "queue").agg(F.count(F.lit(1)).alias("waiting"))
    own = counts.join(elsewhere, ["broker_id", "queue"], "full")
    if copies is None:
        own = own.withColumn("copies", F.lit(0))
    else:
        own = own.join(copies.groupBy("broker_id", "queue").agg(F.count(F.lit(1)).alias("copies")), ["broker_id", "queue"], "full")
    own = own.join(waiting, ["broker_id", "queue"], "full")
    own = own.join(_here_before(deliveries_by_minute if before is None else before, began=before is None), ["broker_id", "queue"], "full")
    joined = own.join(still, ["broker_id", "queue"], "full").fillna(0, [*COUNTS, *HERE, "guests", "copies", "waiting", "here_before"])
    ended = F.col("succeeded") + F.col("dead_lettered") + F.col("expired") + F.col("dropped") + F.col("purged")
    if cut:
        counted = F.col("here_before") + F.col("sent") + F.col("moved_in") - ended - F.col("moved_out")
        without_row = counted - F.col("ready") - F.col("scheduled") - F.col("parked")
        joined = joined.withColumns({"ready": F.col("ready") + without_row, "waiting": F.col("waiting") + without_row})
    here = F.col("ready") + F.col("scheduled") + F.col("parked")
    came_home = F.col("succeeded") - F.col("guests")
    return joined.select(
        "broker_id",
        "queue",
        *COUNTS,
        "here_before",
        *HERE,
        here.alias("here"),
        (F.col("succeeded") - F.col("first_try")).alias("succeeded_later"),
        (F.col("here_before") + F.col("sent") + F.col("moved_in") - ended - F.col("moved_out") - here).alias("difference"),
        came_home.alias("came_home"),
        "waiting",
        F.greatest(F.col("here_before") + F.col("sent") + F.col("copies") - came_home - F.col("waiting"), F.lit(0)).alias("given_up"),
        F.when(ended > 0, F.col("succeeded") / ended).alias("success_share"),
    ).orderBy(F.desc("sent"), "queue", "broker_id")


def _here_before(counts: DataFrame, *, began: bool) -> DataFrame:
    """Broker and queue -> ``here_before``: of ``counts``, what came and did not leave; 0 where the window ``began`` with the queue."""
    from pyspark.sql import functions as F

    left = sum((F.col(name) for name in ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out")), F.lit(0))
    here = F.sum(F.col("sent") + F.col("moved_in") - left)
    return counts.groupBy("broker_id", "queue").agg((F.lit(0).cast("long") if began else here).alias("here_before"))
