"""Queues in which messages only wait: nobody consumes from them, and what expires there goes on to a queue of which somebody does.

So RabbitMQ's clients retry, and Celery, dramatiq and Spring delay: by a time to live and a dead-letter exchange. What comes and goes by
them is neither dead nor expired; it is ``delayed``, and its home is the queue in which it was to be worked on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from .export import Export

Queue = tuple[str, str]


def undelayed(export: Export) -> Export:
    """The export with what waited told as such."""
    if not (places := _waiting(export)):
        return export
    moved = F.col("outcome").isin("dead-lettered", "expired")
    into = F.get("target_queues", F.lit(0))
    waited = moved & (_is_one(places, into) | (_is_one(places, F.col("queue")) & into.isNotNull()))
    messages = export.messages.withColumn("outcome", F.when(waited, F.lit("delayed")).otherwise(F.col("outcome")))
    message = ["broker_id", "message_id", "home_queue"]
    # Who was sent to a waiting queue is at home where it was first to be worked on.
    sent = messages.where(_is_one(places, F.col("home_queue")) & ~_is_one(places, F.col("queue")))
    work = sent.groupBy(*message).agg(F.min_by("queue", "sequence").alias("work"))

    def at_home(frame: DataFrame) -> DataFrame:
        joined = frame.join(work, message, "left")
        return joined.withColumn("home_queue", F.coalesce("work", "home_queue")).drop("work")

    deaths = export.dead_letters.where(~_is_one(places, F.coalesce(into, F.lit(""))) & ~_is_one(places, F.col("queue")))
    return replace(export, messages=at_home(messages), attempts=at_home(export.attempts), dead_letters=at_home(deaths))


def _waiting(export: Export) -> set[Queue]:
    counts = export.deliveries_by_minute.groupBy("broker_id", "queue").agg(
        F.sum(F.col("succeeded") + F.col("failed")).alias("delivered"), F.sum("expired").alias("expired")
    )
    rows = counts.collect()
    consumed = {(row["broker_id"], row["queue"]) for row in rows if row["delivered"]}
    idle = {(row["broker_id"], row["queue"]) for row in rows if row["expired"] and not row["delivered"]}
    if not idle:
        return set()
    ways = export.messages.where("outcome = 'expired' AND size(target_queues) > 0").where(_is_one(idle, F.col("queue")))
    leads: dict[Queue, set[Queue]] = {}
    for row in ways.select("broker_id", "queue", F.explode("target_queues").alias("target")).distinct().collect():
        leads.setdefault((row["broker_id"], row["queue"]), set()).add((row["broker_id"], row["target"]))
    return {each for each in leads if _arrives(each, leads, consumed)}


def _arrives(queue: Queue, leads: Mapping[Queue, Iterable[Queue]], consumed: set[Queue]) -> bool:
    """Whether one comes from there to a queue with consumers, by way of others without."""
    seen, open_ = {queue}, [queue]
    while open_:
        for each in leads.get(open_.pop(), ()):
            if each in consumed:
                return True
            if each not in seen:
                seen.add(each)
                open_.append(each)
    return False


def _is_one(places: Iterable[Queue], name: Column) -> Column:
    by_broker: dict[str, list[str]] = {}
    for broker, queue in sorted(places):
        by_broker.setdefault(broker, []).append(queue)
    return F.coalesce(reduce(or_, ((F.col("broker_id") == broker) & name.isin(names) for broker, names in by_broker.items())), F.lit(False))
