"""Faults that are one fault: error texts that differ in numbers, names and a few words, put together by near-duplicate text.

Texts are made plain (numbers become #), counted, and the most frequent KINDS of them compared by MinHash over their words, so that no
pair of texts is looked at that does not share a hash. What hangs together is one cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Different texts that are compared.
KINDS = 2_000
#: Texts whose sets of words differ by no more than this part (Jaccard distance) are near duplicates.
DISTANCE = 0.4
#: A chain of near duplicates is followed this far.
ROUNDS = 4
#: A cluster of which so many messages died, and this part of all, is poison.
DEATHS, DEADLY = 5, 0.5


def poison_clusters(attempts: DataFrame, dead_letters: DataFrame) -> DataFrame:
    """One row a cluster: ``cluster`` (a number of its own), ``error_class``, ``example``, ``texts``, ``fingerprints``, ``queues``,
    ``attempts``, ``messages``, ``deaths`` (messages that died of it), ``poison``. Most deaths first.
    """
    from pyspark.ml.feature import HashingTF, MinHashLSH, RegexTokenizer
    from pyspark.sql import functions as F

    kinds = _kinds(attempts, dead_letters)
    words = RegexTokenizer(inputCol="plain", outputCol="words", pattern=r"[^a-z_#]+").transform(kinds)
    hashed = HashingTF(inputCol="words", outputCol="set", numFeatures=1 << 18, binary=True).transform(words.where("size(words) > 0"))
    kept = hashed.select("kind", "error_class", "set").persist()
    model = MinHashLSH(inputCol="set", outputCol="hashes", numHashTables=6, seed=7).fit(kept) if not kept.isEmpty() else None
    labels = kinds.select("kind", F.col("kind").alias("cluster"))
    if model is not None:
        near = model.approxSimilarityJoin(kept, kept, DISTANCE, distCol="distance")
        same = near.where("datasetA.error_class = datasetB.error_class AND datasetA.kind <> datasetB.kind")
        labels = _components(labels, same.selectExpr("datasetA.kind AS kind", "datasetB.kind AS other").persist())
    return (
        kinds.join(labels, "kind")
        .groupBy("cluster")
        .agg(
            F.max_by("error_class", "messages").alias("error_class"),
            F.max_by("example", F.struct("messages", "kind")).alias("example"),
            F.count(F.lit(1)).alias("texts"),
            F.sum("fingerprints").alias("fingerprints"),
            F.sort_array(F.array_distinct(F.flatten(F.collect_list("queues")))).alias("queue_names"),
            F.sum("attempts").alias("attempts"),
            F.sum("messages").alias("messages"),
            F.sum("deaths").alias("deaths"),
        )
        .withColumn("queues", F.array_join(F.slice("queue_names", 1, 5), ", "))
        .withColumn("poison", (F.col("deaths") >= DEATHS) & (F.col("deaths") >= DEADLY * F.col("messages")))
        .drop("queue_names")
        .orderBy(F.desc("deaths"), F.desc("messages"), "cluster")
    )


def _plain(text: Column) -> Column:
    """Numbers, hexadecimal ones and UUIDs are different each time and tell nothing."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.lower(F.coalesce(text, F.lit(""))), r"\b(0x)?[0-9a-f]*\d[0-9a-f-]*\b", "#")


def _kinds(attempts: DataFrame, dead_letters: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    plain = _plain(F.col("error_text"))
    told = (
        attempts.where("error_text IS NOT NULL")
        .groupBy("error_class", plain.alias("plain"))
        .agg(
            F.min("error_text").alias("example"),
            F.count(F.lit(1)).alias("attempts"),
            F.approx_count_distinct(F.struct("broker_id", "message_id"), 0.01).alias("messages"),
            F.approx_count_distinct("fingerprint").alias("fingerprints"),
            F.slice(F.sort_array(F.collect_set("queue")), 1, 20).alias("queues"),
        )
        .orderBy(F.desc("messages"), "error_class", "plain")
        .limit(KINDS)
        .withColumn("kind", F.xxhash64("error_class", "plain"))
        .persist()
    )
    died = dead_letters.where("error_text IS NOT NULL").groupBy("error_class", plain.alias("plain")).agg(F.count(F.lit(1)).alias("deaths"))
    return told.join(died, ["error_class", "plain"], "left").fillna(0, ["deaths"]).fillna("", ["error_class"])


def _components(labels: DataFrame, near: DataFrame) -> DataFrame:
    """Every kind takes the least number among its neighbours', ROUNDS times."""
    from pyspark.sql import functions as F

    for _ in range(ROUNDS):
        heard = near.join(labels.withColumnRenamed("kind", "other"), "other").select("kind", "cluster")
        # At most KINDS rows; without the checkpoint each round would compute all rounds before it twice.
        labels = labels.unionByName(heard).groupBy("kind").agg(F.min("cluster").alias("cluster")).localCheckpoint()
    return labels
