"""Faults that are one fault: error texts that differ in numbers, names and a few words, put together by near-duplicate text.

Texts are made plain (numbers become #), counted, and the most frequent KINDS of them compared by their words, all with all. What
hangs together is one cluster.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence, Set

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..spark.connect import frame_of

#: Different texts that are compared.
KINDS = 2_000
#: Texts whose sets of words differ by less than this part (Jaccard distance) are near duplicates.
DISTANCE = 0.4
#: What of a plain text is compared.
WORD = re.compile("[a-z_#]+")
#: A fault of which so many messages died and did not succeed since, and this part of all that met it, is poison.
DEATHS, DEADLY = 5, 0.5
#: What a queue delivered is looked at in so many parts, where its broker's record is of an hour at least: what is met in the last LATE of
#: them is there now, and so many without it are a pause.
PARTS, LATE, HOUR_S = 12, 3, 3_600


def error_kinds(attempts: DataFrame) -> DataFrame:
    """One row for each of the KINDS most frequent plain texts of a broker: ``broker_id``, ``kind`` (its number), ``error_class``,
    ``plain``, ``example``, ``attempts``, ``messages``.
    """
    return (
        attempts.where("error_text IS NOT NULL")
        .groupBy("message_id", "broker_id", *_of_kind())
        .agg(F.min("error_text").alias("example"), F.count(F.lit(1)).alias("attempts"))
        .groupBy("plain", "error_class", "broker_id")
        .agg(F.min("example").alias("example"), F.sum("attempts").alias("attempts"), F.count(F.lit(1)).alias("messages"))
        .orderBy(F.desc("messages"), "error_class", "plain", "broker_id")
        .limit(KINDS)
        .withColumn("kind", F.xxhash64("broker_id", "error_class", "plain"))
    )


def _of_kind() -> tuple[Column, Column]:
    """``error_class`` and ``plain``, from the columns of an attempt or a death."""
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
    return frame_of(kinds.sparkSession, table)


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


def poison_clusters(
    faults: DataFrame, attempts: DataFrame, deaths: DataFrame, fates: DataFrame, outages: DataFrame, deliveries_by_minute: DataFrame
) -> DataFrame:
    """One row for each broker, queue and cluster: ``cluster`` (a number of its own), ``error_class``, ``example``, ``texts``,
    ``fingerprints``, ``attempts`` (fates.weighed), ``messages`` on record, ``first_at`` and ``last_at`` of these, ``seen``; ``deaths``:
    messages that died of it, of which ``here`` lie in a dead-letter queue now, ``lost`` were removed for want of one, or of room or time,
    and ``succeeded`` since; ``poison``, and ``outage``: most of the deaths fell in ``outages``, so that the messages are well. Most deaths
    first.

    ``seen``: ``new``, in the last quarter of what its queue delivered only; ``gone``, not in it; ``back``, in it after a quarter without;
    ``steady``; null where the record is of less than an hour.
    """
    of_kind, key = ["broker_id", "error_class", "plain"], ["broker_id", "queue", "cluster"]
    numbers = F.broadcast(faults.select(*of_kind, "cluster"))
    minute = F.date_trunc("minute", "at").alias("minute")
    met = (
        attempts.where("error_text IS NOT NULL")
        .select("broker_id", *_of_kind(), "queue", "message_id", "fingerprint", "stands_for", "at", minute)
        .join(numbers, of_kind)
        .join(_traffic(deliveries_by_minute), ["broker_id", "queue", "minute"], "left")
        .groupBy(*key, "message_id", "fingerprint", "part")
        .agg(F.sum("stands_for").alias("attempts"), F.min("at").alias("first_at"), F.max("at").alias("last_at"))
        .groupBy(*key)
        .agg(
            # Few: a second distinct count would move every row twice.
            F.size(F.collect_set("fingerprint")).cast("long").alias("fingerprints"),
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
    ends = ("deaths", "here", "lost", "succeeded", "in_outage")
    counted = (F.count(F.lit(1)).alias("deaths"), *(F.count_if(name).alias(name) for name in ends[1:]))
    dead = _dead(deaths, fates, outages, numbers).groupBy(*key).agg(*counted)
    unsaved = F.col("deaths") - F.col("succeeded")
    deadly, down = (unsaved >= DEATHS) & (unsaved >= DEADLY * F.col("messages")), 2 * F.col("in_outage") >= F.col("deaths")
    return (
        met.join(described, ["broker_id", "cluster"])
        .join(dead, key, "left")
        .fillna(0, list(ends))
        .select(
            *(*key, "error_class", "example", "texts", "fingerprints", "attempts", "messages", "first_at", "last_at", "seen"),
            *(*ends[:4], (deadly & ~down).alias("poison"), ((F.col("deaths") > 0) & down).alias("outage")),
        )
        .orderBy(F.desc("deaths"), F.desc("messages"), "cluster", "queue", "broker_id")
    )


def _dead(deaths: DataFrame, fates: DataFrame, outages: DataFrame, numbers: DataFrame) -> DataFrame:
    """One row for each message, queue and cluster that it died of: whether it is ``here``, ``lost``, has ``succeeded``; ``in_outage``."""
    message = ["broker_id", "message_id", "queue"]
    times = F.broadcast(outages.select("broker_id", "queue", "from_at", F.coalesce("up_after", "to_at").alias("until")))
    died = F.col("died_at")
    each = deaths.where("error_text IS NOT NULL").select("*", *_of_kind()[1:]).join(numbers, ["broker_id", "error_class", "plain"])
    return (
        each.join(times, ["broker_id", "queue"], "left")
        .groupBy(*message, "cluster")
        .agg(
            F.max(F.size("lies_in") > 0).alias("here"),
            F.max(F.col("outcome") == "dropped").alias("dropped"),
            F.max(F.coalesce(died.between(F.col("from_at"), F.col("until")), F.lit(False))).alias("in_outage"),
        )
        .join(fates.select(*message, "won"), message, "left")
        .join(
            deaths.where("outcome = 'dropped'").select("broker_id", "message_id").distinct().withColumn("gone", F.lit(True)),
            message[:2],
            "left",
        )
        .withColumn("succeeded", F.coalesce("won", F.lit(False)))
        .withColumn("lost", ~F.col("succeeded") & ~F.col("here") & F.coalesce("gone", F.lit(False)))
    )


def _traffic(deliveries_by_minute: DataFrame) -> DataFrame:
    """Broker, queue and minute -> which of PARTS of all that was delivered there it is in, from 0; null where the record is too short."""
    queue = Window.partitionBy("broker_id", "queue")
    broker = Window.partitionBy("broker_id")
    counts = deliveries_by_minute.groupBy("broker_id", "queue", "minute").agg(F.sum(F.col("succeeded") + F.col("failed")).alias("ended"))
    # Of a minute the middle.
    before = F.sum("ended").over(queue.orderBy("minute")) - F.col("ended") / 2
    part = F.floor(PARTS * before / F.sum("ended").over(queue)).cast("int")
    long_s = F.unix_seconds(F.max("minute").over(broker)) - F.unix_seconds(F.min("minute").over(broker)) + 60
    return counts.where("ended > 0").select("broker_id", "queue", "minute", F.when(long_s >= HOUR_S, part).alias("part"))


def _seen() -> Column:
    parts, now = F.col("parts"), PARTS - LATE
    before = F.filter(parts, lambda part: part < now)
    here = F.array_max(parts) >= now
    # The first part of the last quarter with it, after the last one before with it.
    pause = F.array_min(F.filter(parts, lambda part: part >= now)) - F.array_max(before) > LATE
    seen = F.when(~here, "gone").when(F.size(before) == 0, "new").when(pause, "back").otherwise("steady")
    return F.when(F.size(parts) > 0, seen)


def plain_text(text: Column) -> Column:
    """Numbers, hexadecimal ones and UUIDs are different each time and tell nothing."""
    return F.regexp_replace(F.lower(F.coalesce(text, F.lit(""))), r"\b(0x)?[0-9a-f]*\d[0-9a-f-]*\b", "#")
