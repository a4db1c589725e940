"""Faults that are one fault: error texts that differ in numbers, names and a few words, put together by near-duplicate text.

Texts are made plain (numbers become #), counted, and the most frequent KINDS of them compared by their words, all with all. What
hangs together is one cluster.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence, Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Different texts that are compared.
KINDS = 2_000
#: Texts whose sets of words differ by less than this part (Jaccard distance) are near duplicates.
DISTANCE = 0.4
#: What of a plain text is compared.
WORD = re.compile("[a-z_#]+")
#: A cluster of which so many messages were dead-lettered, and this part of all, is poison.
DEATHS, DEADLY = 5, 0.5
#: Unless in the minutes of those deaths less than this part of what is usual succeeded of what was sent to the queue: then it was down,
#: and the messages are well. Fewer sent messages than ENOUGH tell nothing.
DOWN, ENOUGH = 0.25, 20
#: The record of a broker is looked at in so many parts, where it is of an hour at least. What is met in the last LATE of them is there
#: now, and so many without it are a pause.
PARTS, LATE, HOUR_US = 12, 3, 3_600_000_000


def error_kinds(attempts: DataFrame) -> DataFrame:
    """One row for each of the KINDS most frequent plain texts of a broker: ``broker_id``, ``kind`` (its number), ``error_class``,
    ``plain``, ``example``, ``attempts``, ``messages``.
    """
    from pyspark.sql import functions as F

    return (
        attempts.where("error_text IS NOT NULL")
        .groupBy("broker_id", *_of_kind(), "message_id")
        .agg(F.min("error_text").alias("example"), F.count(F.lit(1)).alias("attempts"))
        .groupBy("broker_id", "error_class", "plain")
        .agg(F.min("example").alias("example"), F.sum("attempts").alias("attempts"), F.count(F.lit(1)).alias("messages"))
        .orderBy(F.desc("messages"), "error_class", "plain", "broker_id")
        .limit(KINDS)
        .withColumn("kind", F.xxhash64("broker_id", "error_class", "plain"))
    )


def _of_kind() -> tuple[Column, Column]:
    """``error_class`` and ``plain``, from the columns of an attempt or a death."""
    from pyspark.sql import functions as F

    return F.coalesce("error_class", F.lit("")).alias("error_class"), plain_text(F.col("error_text")).alias("plain")


def faults(kinds: DataFrame) -> DataFrame:
    """``error_kinds``, each with its ``cluster``: the number of the fault that it is a form of, which is that of one of its forms; and of
    that fault, ``fault``: the example that most messages met, and ``texts``: how many forms it has. At most KINDS rows, here.
    """
    import pyarrow as pa

    table = kinds.toArrow()
    number = table["kind"].to_pylist()
    texts = zip(table["broker_id"].to_pylist(), table["error_class"].to_pylist(), table["plain"].to_pylist(), strict=True)
    group = near_duplicates([{(broker, error, word) for word in WORD.findall(plain.lower())} for broker, error, plain in texts])
    least: dict[int, int] = {}
    for one, kind in zip(group, number, strict=True):
        least[one] = min(kind, least.get(one, kind))
    forms: dict[int, list[tuple[int, int, str]]] = {}
    for one, form in zip(group, zip(*(table[name].to_pylist() for name in ("messages", "kind", "example")), strict=True), strict=True):
        forms.setdefault(one, []).append(form)
    added = {
        "cluster": pa.array([least[one] for one in group], pa.int64()),
        "fault": pa.array([max(forms[one])[2] for one in group], pa.string()),
        "texts": pa.array([len(forms[one]) for one in group], pa.int64()),
    }
    for name, values in added.items():
        table = table.append_column(name, values)
    return kinds.sparkSession.createDataFrame(table)


def near_duplicates(sets: Sequence[Set[Hashable]]) -> list[int]:
    """The number of the group of each: what differs by less than DISTANCE is in one group, and what that hangs together with."""
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    column: dict[Hashable, int] = {}
    sizes = np.array([len(each) for each in sets], int)
    columns = [column.setdefault(one, len(column)) for each in sets for one in each]
    rows = np.repeat(np.arange(len(sets)), sizes)
    holds = csr_array((np.ones(len(columns), int), (rows, columns)), (len(sets), len(column)))
    both = (holds @ holds.T).tocoo()
    near = 1 - both.data / (sizes[both.row] + sizes[both.col] - both.data) < DISTANCE
    pairs = csr_array((near[near], (both.row[near], both.col[near])), (len(sets), len(sets)))
    return list(map(int, connected_components(pairs, directed=False)[1]))


def poison_clusters(faults: DataFrame, attempts: DataFrame, deaths: DataFrame, deliveries_by_minute: DataFrame) -> DataFrame:
    """One row for each broker and cluster: ``cluster`` (a number of its own), ``error_class``, ``example``, ``texts``, ``fingerprints``,
    ``queues``, ``attempts`` and ``messages`` on record, ``first_at`` and ``last_at`` of these, ``seen``, ``deaths`` of it, ``poison``, and
    ``outage``: as deadly, but at times when hardly anything of its queues succeeded. Most deaths first.

    ``seen``: ``new``, in the last quarter of the time only; ``gone``, not in it; ``back``, in it after a quarter without; ``steady``; null
    where the record is of less than an hour.
    """
    from pyspark.sql import functions as F

    of_kind = ["broker_id", "error_class", "plain"]
    numbers = F.broadcast(faults.select(*of_kind, "cluster"))
    met = (
        attempts.where("error_text IS NOT NULL")
        .select("broker_id", *_of_kind(), "queue", "message_id", "fingerprint", "at")
        .join(numbers, of_kind)
        .join(F.broadcast(_record(deliveries_by_minute)), "broker_id", "left")
        .withColumn("part", _part())
        .groupBy("broker_id", "cluster", "queue", "message_id", "fingerprint", "part")
        .agg(F.count(F.lit(1)).alias("attempts"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
        .groupBy("broker_id", "cluster")
        .agg(
            # Few: a second distinct count would move every row twice.
            F.size(F.collect_set("fingerprint")).cast("long").alias("fingerprints"),
            F.array_join(F.slice(F.sort_array(F.collect_set("queue")), 1, 5), ", ").alias("queues"),
            F.sum("attempts").alias("attempts"),
            F.countDistinct("message_id").alias("messages"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            F.sort_array(F.collect_set("part")).alias("parts"),
        )
        .withColumn("seen", _seen())
    )
    # Of one class, for that counts among the words.
    described = faults.where("kind = cluster").select("broker_id", "cluster", "error_class", F.col("fault").alias("example"), "texts")
    died = (
        deaths.where("error_text IS NOT NULL")
        .select("broker_id", *_of_kind(), "queue", "message_id", F.date_trunc("minute", "died_at").alias("minute"))
        .join(numbers, of_kind)
    )
    key = ["broker_id", "cluster"]
    dead = died.groupBy(*key).agg(F.countDistinct("message_id").alias("deaths"))
    deadly = (F.col("deaths") >= DEATHS) & (F.col("deaths") >= DEADLY * F.col("messages"))
    return (
        described.join(met, key)
        .join(dead, key, "left")
        .join(_deaths_amid(died, deliveries_by_minute), key, "left")
        .fillna(0, ["deaths"])
        .withColumn("down", F.coalesce("down", F.lit(False)))
        .select(
            *(*key, "error_class", "example", "texts", "fingerprints", "queues", "attempts", "messages", "first_at", "last_at", "seen"),
            "deaths",
            *((deadly & ~F.col("down")).alias("poison"), (deadly & F.col("down")).alias("outage")),
        )
        .orderBy(F.desc("deaths"), F.desc("messages"), "cluster", "broker_id")
    )


def _record(deliveries_by_minute: DataFrame) -> DataFrame:
    """Broker -> ``begin_us`` and ``long_us`` of its record."""
    from pyspark.sql import functions as F

    begin, end = F.unix_micros(F.min("minute")), F.unix_micros(F.max("minute"))
    return deliveries_by_minute.groupBy("broker_id").agg(begin.alias("begin_us"), (end - begin + 60_000_000).alias("long_us"))


def _part() -> Column:
    """Which of PARTS of the record an attempt is in, from 0; null where that is too short."""
    from pyspark.sql import functions as F

    part = F.floor(PARTS * (F.unix_micros("at") - F.col("begin_us")) / F.col("long_us")).cast("int")
    return F.when(F.col("long_us") >= HOUR_US, F.greatest(F.lit(0), F.least(part, F.lit(PARTS - 1))))


def _seen() -> Column:
    from pyspark.sql import functions as F

    parts, now = F.col("parts"), PARTS - LATE
    before = F.filter(parts, lambda part: part < now)
    here = F.array_max(parts) >= now
    # The first part of the last quarter with it, after the last one before with it.
    pause = F.array_min(F.filter(parts, lambda part: part >= now)) - F.array_max(before) > LATE
    seen = F.when(~here, "gone").when(F.size(before) == 0, "new").when(pause, "back").otherwise("steady")
    return F.when(F.size(parts) > 0, seen)


def _deaths_amid(died: DataFrame, deliveries_by_minute: DataFrame) -> DataFrame:
    """Broker and cluster -> ``down``: whether in the minutes of its deaths far less succeeded than is usual of as much that was sent."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    counts = deliveries_by_minute.groupBy("broker_id", "queue", "minute").agg(
        F.sum(F.col("sent") + F.col("moved_in")).alias("came"), F.sum("succeeded").alias("succeeded")
    )
    queue = Window.partitionBy("broker_id", "queue")
    usual = F.try_divide(F.sum("succeeded").over(queue), F.sum("came").over(queue))
    expected = F.sum(F.col("came") * F.col("usual"))
    return (
        died.select("broker_id", "cluster", "queue", "minute")
        .distinct()
        .join(counts.withColumn("usual", usual), ["broker_id", "queue", "minute"], "left")
        .groupBy("broker_id", "cluster")
        .agg(((F.sum("came") >= ENOUGH) & (F.sum("succeeded") < DOWN * expected)).alias("down"))
    )


def plain_text(text: Column) -> Column:
    """Numbers, hexadecimal ones and UUIDs are different each time and tell nothing."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.lower(F.coalesce(text, F.lit(""))), r"\b(0x)?[0-9a-f]*\d[0-9a-f-]*\b", "#")
