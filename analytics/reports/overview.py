"""Where all messages of each queue ended up, and whether the sum comes out."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..spark.session import in_one_piece

COUNTS = (
    *("sent", "moved_in", "delivered", "succeeded", "first_try", "failed"),
    *("dead_lettered", "expired", "dropped", "purged", "moved_out"),
)
ENDS = ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out")
#: What is counted of messages that were not durable, and could be lost or become durable.
PASSING = ("transient_sent", "lost", "transient_here")
HERE = ("ready", "scheduled", "parked")
ROWS = ("guests", "guests_succeeded", "waiting", "back", "died", "ran_out", "won_later")


def overview(messages: DataFrame, deliveries_by_minute: DataFrame, before: DataFrame | None = None, *, cut: bool = False) -> DataFrame:
    """One row for each broker and queue in which anything was or happened, most sent first: the sums of ``deliveries_by_minute``, and

    - ``here_before``: messages that were here when the window began, from the counts ``before`` it; 0 where it began with the queue;
    - ``transient_sent``: of those sent, messages that were not durable; ``lost``: those that a crash took;
    - ``ready``, ``scheduled``, ``parked``, ``here``: messages still here; transient ones, which have no row, are ``ready``;
    - ``succeeded_later``: succeeded after failing at least once;
    - ``difference``: sent + moved_in less everything that became of them; 0 unless the export is wrong. Where the window is ``cut`` before
      the export it is 0, for what is here is reckoned so: who succeeded at once later has no row;
    - of the messages that were sent to this queue, also before the window, and in it were here at any time: ``came_home``: succeeded here
      in the end, ``at_once`` of them at the first attempt; ``waiting``: they are here, or are delayed; ``given_up``: the rest,
      wherever they are: ``died`` (dead-lettered), ``ran_out`` (expired), or dropped or taken away;
    - ``success_share``: succeeded among the entries that are over; null where none is.
    """
    counted = deliveries_by_minute.withColumn("transient_here", _transient_here())
    counts = counted.groupBy("broker_id", "queue").agg(*(F.sum(name).alias(name) for name in (*COUNTS, *PASSING)))
    at_home = F.col("home_queue") == F.col("queue")
    # Who came from another queue, or is back, has a row, also where it succeeded at once. What became of a message is told by the last.
    of_message = messages.groupBy("broker_id", "queue", "message_id", at_home.alias("at_home")).agg(
        *(F.count_if(F.col("state") == name).alias(name) for name in HERE),
        F.count(F.lit(1)).alias("entries"),
        F.count_if(F.col("outcome") == "succeeded").alias("succeeded"),
        F.max_by(F.struct("state", "outcome"), "sequence").alias("end"),
        F.sum("failed_attempts").alias("failures"),
    )
    home, end = F.col("at_home"), F.col("end.outcome")
    gone = F.col("entries") - 1
    rows = of_message.groupBy("broker_id", "queue").agg(
        *(F.sum(name).alias(name) for name in HERE),
        F.sum(F.when(~home, F.col("entries")).otherwise(0)).alias("guests"),
        F.sum(F.when(~home, F.col("succeeded")).otherwise(0)).alias("guests_succeeded"),
        F.count_if(home & ((F.col("end.state") != "settled") | (end == "delayed"))).alias("waiting"),
        F.sum(F.when(home, gone).otherwise(0)).alias("back"),
        F.count_if(home & (end == "dead-lettered")).alias("died"),
        F.count_if(home & (end == "expired")).alias("ran_out"),
        F.count_if(home & (end == "succeeded") & (F.col("failures") > 0)).alias("won_later"),
    )
    own = in_one_piece(counts.join(rows, ["broker_id", "queue"], "full"))
    if before is None:  # the window began with the queue
        own = own.withColumn("here_before", F.lit(None).cast("long"))
    else:
        own = in_one_piece(own.join(_here_before(before), ["broker_id", "queue"], "full"))
    joined = own.fillna(0, [*COUNTS, *PASSING, *HERE, *ROWS, "here_before"])
    ended = F.col("succeeded") + F.col("dead_lettered") + F.col("expired") + F.col("dropped") + F.col("purged")
    without_row = _came_less_gone() if cut else F.col("transient_here")
    joined = joined.withColumns({"ready": F.col("ready") + without_row, "waiting": F.col("waiting") + without_row})
    here = F.col("ready") + F.col("scheduled") + F.col("parked")
    came_home = F.col("succeeded") - F.col("guests_succeeded")
    came = F.col("here_before") + F.col("sent") + F.col("moved_in")
    return (
        joined.where(came > 0)
        .select(
            *("broker_id", "queue", *COUNTS, "transient_sent", "lost", "here_before", *HERE),
            here.alias("here"),
            (F.col("succeeded") - F.col("first_try")).alias("succeeded_later"),
            (came - ended - F.col("moved_out") - F.col("lost") - here).alias("difference"),
            came_home.alias("came_home"),
            (came_home - F.col("won_later")).alias("at_once"),
            "waiting",
            (came - F.col("guests") - F.col("back") - came_home - F.col("waiting")).alias("given_up"),
            "died",
            "ran_out",
            F.when(ended > 0, F.col("succeeded") / ended).alias("success_share"),
        )
        .orderBy(F.desc("sent"), "queue", "broker_id")
    )


def _here_before(counts: DataFrame) -> DataFrame:
    """Broker and queue -> ``here_before``: of ``counts``, what came and did not leave."""
    left = sum((F.col(name) for name in ENDS), F.coalesce("lost", F.lit(0)))
    return counts.groupBy("broker_id", "queue").agg(F.sum(F.col("sent") + F.col("moved_in") - left).alias("here_before"))


def _came_less_gone() -> Column:
    """What must be here, less what has a row and is."""
    came = F.col("here_before") + F.col("sent") + F.col("moved_in")
    return came - sum((F.col(name) for name in (*ENDS, *HERE)), F.col("lost"))


def _transient_here() -> Column:
    """Messages that were not durable, came, and did not leave; none are counted in exports that do not tell."""
    gone = sum((F.col(f"transient_{name}") for name in ENDS), F.col("kept") + F.col("lost"))
    return F.col("transient_sent") + F.col("transient_moved_in") - gone
