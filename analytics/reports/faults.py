"""The broker's faults: what each is, its course over time, what came of its messages, and what to expect of sending them back."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .clusters import plain_text

#: The time on record is looked at in so many parts.
SLOTS = 24
#: Of the normal distribution: a share lies within its bounds in nine of ten cases.
_Z2 = 1.6449**2
FAULT = ("broker_id", "queue", "fingerprint")
#: The broker's own counts, of all its life.
LIFE = ("failures", "waiting", "succeeded", "died", "redriven", "back_succeeded", "back_died", "dead")
SAID = ("muted", "fixed_in", "fixed_at", "regressed_at")


def faults(known: DataFrame, attempts: DataFrame, kinds: DataFrame, deliveries_by_minute: DataFrame, until_us: int) -> DataFrame:
    """One row for each broker, queue and ``fingerprint``: ``error_class`` and ``text`` of the first, ``first_at``, ``last_at``; LIFE and
    SAID of the broker's whole life, null where it tells none; of the time of the report the ``attempts``, and their ``course``: how many
    in each of SLOTS parts of it; ``cluster``: of the faults that look alike (poison_clusters); ``command``.

    ``attempts``: fates.weighed; ``kinds``: clusters.faults.
    """
    began = F.broadcast(deliveries_by_minute.agg(F.unix_micros(F.min("minute")).alias("began_us")))
    slot = F.floor(SLOTS * (F.unix_micros("at") - F.col("began_us")) / F.greatest(until_us - F.col("began_us"), F.lit(1)))
    of_slot = (
        attempts.crossJoin(began)
        .groupBy(*FAULT, F.greatest(F.least(slot, F.lit(SLOTS - 1)), F.lit(0)).cast("int").alias("slot"), "error_class")
        .agg(F.sum("stands_for").alias("attempts"), F.min("at").alias("met_first"), F.max("at").alias("met_last"))
    )
    by_slot = F.map_from_entries(F.collect_list(F.struct("slot", "attempts")))
    met = of_slot.groupBy(*FAULT).agg(
        F.min("error_class").alias("met_class"),
        F.sum("attempts").alias("attempts"),
        F.min("met_first").alias("met_first"),
        F.max("met_last").alias("met_last"),
        by_slot.alias("by_slot"),
    )
    course = F.transform(F.sequence(F.lit(0), F.lit(SLOTS - 1)), lambda each: F.coalesce(F.try_element_at("by_slot", each), F.lit(0)))
    alike = kinds.select("broker_id", "error_class", "plain", "cluster")
    return (
        known.join(met, list(FAULT), "full")
        .withColumns({"error_class": F.coalesce("error_class", "met_class"), "plain": plain_text(F.col("text"))})
        .join(F.broadcast(alike), ["broker_id", "error_class", "plain"], "left")
        .select(
            *(*FAULT, "error_class", "text"),
            F.coalesce("first_at", "met_first").alias("first_at"),
            F.greatest("last_at", "met_last").alias("last_at"),
            *LIFE,
            F.coalesce("attempts", F.lit(0)).alias("attempts"),
            F.array_join(course, " ").alias("course"),
            *SAID,
            "cluster",
            F.when(F.col("fingerprint") != "other", F.concat(F.lit("homing faults show "), "fingerprint")).alias("command"),
        )
        .orderBy(F.desc_nulls_last("dead"), F.desc("attempts"), "queue", "fingerprint", "broker_id")
    )


def redrive_yield(died: DataFrame, known: DataFrame, redrives: DataFrame, messages: DataFrame, attempts: DataFrame) -> DataFrame:
    """One row for each broker, ``dead_letter_queue``, ``queue`` that its messages died in and ``fingerprint`` (null: not told): how many
    ``lie`` there, died from ``first_died_at`` to ``last_died_at``; of the fault's that were sent back (``redriven``) those that succeeded
    and died again; ``like_succeeded``: messages that met it and succeeded since the last of these died, ``like_last_at`` and
    ``like_version``: the last of them, and of the program that did; ``least`` and ``most`` of those that lie there that can be expected
    to succeed (_likely; null: none was sent back); ``redrive``, ``redrive_state``, ``redrive_why``: the queue's last job; ``command``
    that sends these.
    """
    lying = (
        died.withColumn("dead_letter_queue", F.explode("lies_in"))
        .groupBy(*FAULT, "dead_letter_queue")
        .agg(F.count(F.lit(1)).alias("lie"), F.min("died_at").alias("first_died_at"), F.max("died_at").alias("last_died_at"))
    )
    since = lying.groupBy(*FAULT).agg(F.max("last_died_at").alias("since"))
    met = attempts.join(F.broadcast(since), list(FAULT)).select(*FAULT, "message_id", "since").distinct()
    won = messages.where("outcome = 'succeeded'").select("broker_id", "queue", "message_id", "settled_at", "version")
    like = (
        won.join(met, ["broker_id", "queue", "message_id"])
        .where("settled_at > since")
        .groupBy(*FAULT)
        .agg(
            F.count(F.lit(1)).alias("like_succeeded"),
            F.max("settled_at").alias("like_last_at"),
            F.max_by("version", "settled_at").alias("like_version"),
        )
    )
    job = F.max_by(F.struct("redrive", F.col("state").alias("redrive_state"), F.col("why").alias("redrive_why")), "redrive")
    jobs = redrives.groupBy("broker_id", F.col("queue").alias("dead_letter_queue")).agg(job.alias("job"))
    tried = F.nullif(F.col("back_succeeded") + F.col("back_died"), F.lit(0)).cast("double")
    low, high = (share * F.col("lie") for share in _likely(F.col("back_succeeded").cast("double"), tried))
    return (
        lying.join(known.select(*FAULT, "error_class", "text", "redriven", "back_succeeded", "back_died"), list(FAULT), "left")
        .join(like, list(FAULT), "left")
        .join(jobs, ["broker_id", "dead_letter_queue"], "left")
        .select(
            *("broker_id", "dead_letter_queue", "queue", "fingerprint", "error_class", "text", "lie", "first_died_at", "last_died_at"),
            *("redriven", "back_succeeded", "back_died", F.coalesce("like_succeeded", F.lit(0)).alias("like_succeeded")),
            *("like_last_at", "like_version", F.floor(low).alias("least"), F.ceil(high).alias("most"), "job.*"),
            _command().alias("command"),
        )
        .orderBy(F.desc("lie"), "dead_letter_queue", "queue", "fingerprint", "broker_id")
    )


def _likely(well: Column, tried: Column) -> tuple[Column, Column]:
    """The share that goes well, at least and at most (Wilson's interval, 90 %), as the broker's dry run says it. ``tried``: 1 at least."""
    middle = (well + _Z2 / 2) / (tried + _Z2)
    around = (_Z2 * (well * (tried - well) / tried + _Z2 / 4)) ** 0.5 / (tried + _Z2)
    return middle - around, middle + around


def _command() -> Column:
    of_fault = F.concat(F.lit(" --fault "), "fingerprint", F.lit(" --from-queue "), "queue")
    return F.concat(
        F.lit("homing redrive "),
        "dead_letter_queue",
        F.coalesce(of_fault, F.concat(F.lit(" --from-queue "), "queue")),
        F.lit(" --canary 10"),
    )
