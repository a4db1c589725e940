"""When what messages depend on was down: stretches of time in which every attempt failed, distinguished from trouble of each message's own.

Of the messages of a queue and error class that succeeded in the end, the attempts after each other are *runs* of failures and of successes.
Where nearly all of both stand in runs of ENOUGH at least, time decided, and the runs of failures are outages. Where single messages have
trouble of their own, or each attempt is a throw of the dice, runs are short.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

#: A run of fewer attempts is short, and this part of all attempts may not be in short ones.
ENOUGH, MOSTLY = 5, 0.9
#: More outages than this of one queue and error class are no outages.
OUTAGES = 200
FAULT = ("broker_id", "queue", "error_class")


def outages(entries: DataFrame) -> DataFrame:
    """One row for each broker, queue and error class that time decided: ``outages``, an array by time of ``after_us`` (the last success
    before; null: none), ``from_us``, ``to_us`` (the first and last failure), ``before_us`` (the first success after; null: none),
    ``met``: how many messages failed first in it, and ``count``: failures.

    ``entries``: of failed_entries. Dead letters of outages only are their victims; what failed amid successes had trouble of its own.
    """
    began = F.unix_micros("first_at")

    def event(ms: Column, first: Column, won: bool) -> Column:
        return F.struct((began + ms * 1000).cast("long").alias("at_us"), F.lit(won).alias("won"), first.alias("first"))

    failures = F.transform("failures_ms", lambda ms, index: event(ms, index == 0, won=False))
    home = entries.where("success_ms IS NOT NULL AND NOT verdict")
    events = home.select(*FAULT, F.explode(F.array_append(failures, event(F.col("success_ms"), F.lit(False), won=True))).alias("each"))
    # Runs take turns: of a fault with no more outages than OUTAGES these are all. Of others, millions would be collected for nothing.
    an_up = F.col("won") & (F.col("run") <= 2 * OUTAGES)
    counts = [[F.sum(F.when(F.col("won") == won, F.col(count))) for count in ("count", "of_long")] for won in (False, True)]
    decided = [long >= MOSTLY * every for every, long in counts]
    runs = _runs(events).withColumn("of_long", F.when(F.col("count") >= ENOUGH, F.col("count")))
    by_time = (
        runs.groupBy(*FAULT)
        .agg(
            (decided[0] & decided[1] & (F.count_if(~F.col("won")) <= OUTAGES)).alias("decided"),
            F.collect_list(F.when(an_up, F.struct("from_us", "to_us"))).alias("ups"),
        )
        .where("decided")
    )
    amid = F.exists("each", lambda one: F.exists("ups", lambda up: one["at_us"].between(up["from_us"], up["to_us"])))
    died = entries.where("died AND NOT verdict").select(*FAULT, failures.alias("each"))
    victims = died.join(F.broadcast(by_time), list(FAULT)).where(~amid).select(*FAULT, F.explode("each").alias("each"))
    whole = events.join(F.broadcast(by_time.select(*FAULT)), list(FAULT)).unionByName(victims)
    outage = F.struct("after_us", "from_us", "to_us", "before_us", "met", "count")
    return _runs(whole).where("NOT won").groupBy(*FAULT).agg(F.sort_array(F.collect_list(outage)).alias("outages"))


def _runs(events: DataFrame) -> DataFrame:
    """Attempts after each other that ended alike: ``won``, ``count``, of them ``met`` for the first time, ``from_us``, ``to_us``, and the
    ends of the runs beside it.
    """
    one = Window.partitionBy(*FAULT)
    in_time, by_run = one.orderBy("at_us", "won"), one.orderBy("run")
    begins = (F.lag("won").over(in_time) != F.col("won")).cast("int")
    return (
        events.select(*FAULT, "each.*")
        .withColumn("begins", begins)
        .withColumn("run", F.coalesce(F.sum("begins").over(in_time), F.lit(0)))
        .groupBy(*FAULT, "run", "won")
        .agg(
            *(F.count(F.lit(1)).alias("count"), F.count_if("first").alias("met")),
            *(F.min("at_us").alias("from_us"), F.max("at_us").alias("to_us")),
        )
        .withColumns({"after_us": F.lag("to_us").over(by_run), "before_us": F.lead("from_us").over(by_run)})
    )
