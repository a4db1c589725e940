"""Exports of any size, invented from a seed by Spark itself: ``python -m analytics.generate OUT --attempts 1000000 --seed 7``.

Nothing is held in memory and nothing depends on how Spark cuts the work: every draw is a hash of the seed, the message and what is
drawn, so the same arguments give the same rows on any cluster. What it invents:

- **traffic** that swells and ebbs with the hour of the day, over ``days`` days, in the four queues of analytics/sample.py;
- **outages**: one a day and queue, from 5 to 45 minutes, in which everything fails until it is over;
- **flaky moments** that pass after some seconds, **poison** that never succeeds, and **slow consumers** that hold 30 times longer.

An attempt fails exactly while its message's trouble lasts. So each message's fate is known in closed form, which is what lets the
rows be written in one pass. Everything is over when the export is taken: nothing is still waiting, except in the dead-letter queues.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):  # spark-submit runs this file by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analytics.sample import QUEUES, START_US, Traffic
from analytics.schema import MANIFEST_NAME, SCHEMA_VERSION, SPARK_TYPES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DAY_US = 86_400_000_000
_MINUTE_US = 60_000_000
#: Messages that succeed at once for each that fails.
CALM = 20
#: Messages from which the mean number of attempts is taken.
PROBE = 200_000
CONSUMERS = 8


def generate(spark: SparkSession, out: str, *, attempts: int, seed: int = 1, days: int = 14, brokers: int = 1) -> dict[str, int]:
    """Write exports of about ``attempts`` failed attempts in all (within 2 % from 10,000 on) to the new directory ``out``.

    One broker: ``out`` is the export. Several: each has one in it, ``broker-01``, …. Returns table -> rows, all brokers together.
    """
    from pyspark.sql import functions as F

    whole: dict[str, int] = {}
    for number in range(1, brokers + 1):
        own_seed = seed * 1_000 + number
        wanted = attempts // brokers
        probe = _fates(spark, min(PROBE, max(wanted, 10_000)), own_seed, days)
        mean = probe.agg((F.sum("failed") / F.lit(min(PROBE, max(wanted, 10_000)))).alias("mean")).collect()[0]["mean"]
        place = out if brokers == 1 else f"{out}/broker-{number:02d}"
        for table, rows in _write_broker(spark, place, max(1, round(wanted / mean)), own_seed, days).items():
            whole[table] = whole.get(table, 0) + rows
    return whole


# --- draws and fates --------------------------------------------------------------------------------------------------


def _draw(seed: int, what: str, *columns: str) -> Column:
    """Uniform in [0, 1), from the seed, what it is for, and the columns."""
    from pyspark.sql import functions as F

    bits = F.xxhash64(F.lit(seed), F.lit(what), *columns)
    return F.shiftrightunsigned(bits, 11) / F.lit(float(1 << 53))


def _by_queue(of: Any) -> Column:
    """A column that depends on the queue: ``of(traffic)`` for each."""
    from pyspark.sql import functions as F

    value = F.lit(of(QUEUES[-1]))
    for traffic in QUEUES[:-1]:
        value = F.when(F.col("queue") == traffic.queue, F.lit(of(traffic))).otherwise(value)
    return value


def _due_ms(traffic: Traffic) -> list[int]:
    """When, after its first delivery, a message is due for its attempts 1, 2, … max_attempts; cap: ten times the first delay."""
    due = [0]
    for failed in range(1, traffic.max_attempts):
        due.append(due[-1] + min(int(traffic.delay_ms * traffic.multiplier ** (failed - 1)), 10 * traffic.delay_ms))
    return due


def _fates(spark: SparkSession, messages: int, seed: int, days: int) -> DataFrame:
    """One row for each message that fails at least once. Times in microseconds since 1970; ``failed``: how many attempts do."""
    from pyspark.sql import functions as F

    part = (F.col("id") + 0.5) / messages
    pick = _draw(seed, "queue", "id")
    queue, above = F.lit(QUEUES[-1].queue), 1.0
    for traffic in reversed(QUEUES[:-1]):
        above -= QUEUES[QUEUES.index(traffic) + 1].weight
        queue = F.when(pick < above, traffic.queue).otherwise(queue)
    # Monotone in id, so that a task writes few days; 0.7: how much busier noon is than midnight.
    warped = part - 0.7 * F.sin(2 * 3.141592653589793 * days * part) / (2 * 3.141592653589793 * days)
    start = F.col("day") * _DAY_US + ((_draw(seed, "outage", "queue", "day") * 0.8 + 0.05) * _DAY_US).cast("long")
    length = ((_draw(seed, "length", "queue", "day") * 40 + 5) * _MINUTE_US).cast("long")
    until = F.col("outage_us") + F.col("outage_length_us") - F.col("at_us")
    kinds = F.when(_draw(seed, "kind", "id") < 0.12, "poison").when((until > 0) & (F.col("at_us") >= F.col("outage_us")), "outage")
    passes_us = (-F.log(1 - _draw(seed, "passes", "id")) * _by_queue(lambda t: 3 * t.delay_ms * 1000.0)).cast("long")
    trouble = F.when(F.col("kind") == "poison", F.lit(1 << 60)).when(F.col("kind") == "outage", until).otherwise(passes_us)
    due = _by_queue(lambda t: [each * 1000 for each in _due_ms(t)])
    return (
        spark.range(messages)
        .withColumn("queue", queue)
        .withColumn("at_us", (warped * (days * _DAY_US)).cast("long"))
        .withColumn("day", (F.col("at_us") / _DAY_US).cast("long"))
        .withColumns({"outage_us": start, "outage_length_us": length})
        .withColumn("kind", F.coalesce(kinds, F.lit("flaky")))
        .where((F.col("kind") != "flaky") | (_draw(seed, "thin", "id") < 0.35))  # an outage is a time of many failures
        .withColumns({"due_us": due, "trouble_us": trouble})
        # The first attempt is at 0 and fails; a later one fails while the trouble lasts.
        .withColumn("failed", F.greatest(F.size(F.filter("due_us", lambda each: each < F.col("trouble_us"))), F.lit(1)))
        .withColumn("dies", F.col("failed") == F.size("due_us"))
        .withColumns({"sent_us": F.col("at_us") + START_US, "message_id": F.col("id") * 4 + 4097})
        .withColumn("settled_us", F.col("sent_us") + F.element_at("due_us", F.col("failed") + (~F.col("dies")).cast("int")) + 50_000)
        .drop("id", "at_us", "day", "outage_us", "outage_length_us", "trouble_us")
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def _at(us: Column | str) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_micros(us)


def _queue_id(column: str = "queue") -> Column:
    from pyspark.sql import functions as F

    names = [traffic.queue for traffic in QUEUES]
    return F.array_position(F.lit([*names, *(f"DLQ.{name}" for name in names)]), F.col(column)).cast("long")


def _attempts(fates: DataFrame, seed: int) -> DataFrame:
    from pyspark.sql import functions as F

    number = F.col("attempt")
    consumer = (_draw(seed, "consumer", "message_id", "attempt") * CONSUMERS).cast("int")
    # One consumer a queue, the last, is slow.
    hold_us = (-F.log(1 - _draw(seed, "hold", "message_id", "attempt")) * 20_000 + 1_000).cast("long") * F.when(
        F.col("worker") == CONSUMERS - 1, 30
    ).otherwise(1)
    flaky = F.element_at(_by_queue(lambda t: [name for name, _ in t.errors]), (number % 2 + 1))
    error = F.when(F.col("kind") == "poison", _by_queue(lambda t: t.poison_error[0])).otherwise(
        F.when(F.col("kind") == "outage", _by_queue(lambda t: t.errors[0][0])).otherwise(flaky)
    )
    text = F.when(F.col("kind") == "poison", _by_queue(lambda t: t.poison_error[1])).otherwise(_by_queue(lambda t: t.errors[0][1]))
    own = F.col("error_class").isin("connection-lost", "timeout")
    named = F.when(~own, F.col("error_class"))
    last = F.col("dies") & (number == F.col("failed"))
    delay_ms = F.element_at("due_us", number + 1) - F.element_at("due_us", number)
    return (
        fates.withColumn("attempt", F.explode(F.sequence(F.lit(1), F.col("failed"))))
        .withColumns({"worker": consumer, "error_class": error, "given_us": F.col("sent_us") + F.element_at("due_us", number)})
        .withColumns({"at_us": F.col("given_us") + hold_us, "delay_us": F.when(~last, delay_ms)})
        .withColumns({"address": F.col("queue"), "sequence": F.col("message_id"), "at": _at("at_us"), "given_at": _at("given_us")})
        .withColumns({"assigned_at": _at(F.col("given_us") - 400), "error_type": named, "error_text": F.when(~own, text)})
        .withColumns({"outcome": F.when(own, F.col("error_class")).otherwise("listener"), "delivery_count": number})
        .withColumns({"failed_attempts": number, "decision": F.when(last, "dead-letter").otherwise("redeliver")})
        .withColumns({"delay_ms": (F.col("delay_us") / 1000).cast("long"), "policy": F.concat(F.lit("p-"), F.col("queue"))})
        .withColumn("due_at", _at(F.col("given_us") + F.col("delay_us")))
        .withColumn("fingerprint", F.when(~own, F.hex(F.xxhash64("error_class", "error_text"))))
        .withColumn("consumer", F.concat(F.col("queue"), F.lit("/worker-"), F.col("worker")))
        .withColumn("connection", F.col("consumer"))
    )


def _messages(fates: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    common = fates.withColumns({"address": F.col("queue"), "sent_at": _at("sent_us"), "ended_at": _at("settled_us")})
    attempts = F.col("failed") + (~F.col("dies")).cast("int")
    outcome = F.when(F.col("dies"), "dead-lettered").otherwise("succeeded")
    dead_queue = F.concat(F.lit("DLQ."), F.col("queue"))
    failed = common.withColumns(
        {"sequence": F.col("message_id"), "state": F.lit("settled"), "outcome": outcome, "attempts": attempts}
        | {"failed_attempts": F.col("failed"), "delivery_count": attempts, "reason": F.when(F.col("dies"), "delivery_limit")}
        | {"entered_at": F.col("sent_at"), "settled_at": F.col("ended_at"), "target_queues": F.when(F.col("dies"), F.array(dead_queue))}
    )
    lying = common.where("dies").withColumns(
        {"sequence": F.col("message_id") + 1, "queue": dead_queue, "state": F.lit("ready"), "suspect": F.lit(False)}
        | {"attempts": F.lit(0), "failed_attempts": F.lit(0), "delivery_count": F.lit(0), "priority": F.lit(4)}
        | {"body_bytes": F.lit(512), "hops": F.lit(1), "entered_at": F.col("ended_at")}
    )
    return failed.drop("hops").unionByName(lying.drop("outcome"), allowMissingColumns=True)


def _dead_letters(attempts: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    dead_queue = F.array(F.concat(F.lit("DLQ."), F.col("queue")))
    hop = F.struct(
        "sequence",
        "queue",
        "address",
        F.lit("delivery_limit").alias("reason"),
        F.col("died_at").alias("at"),
        F.col("failed").alias("attempts"),
        F.col("failed").alias("delivery_count"),
        F.lit(None).cast("timestamp").alias("expires_at"),
    )
    return (
        attempts.where("decision = 'dead-letter'")
        .withColumns({"died_at": _at("settled_us"), "reason": F.lit("delivery_limit"), "attempts": F.col("failed")})
        .withColumns({"sent_at": _at("sent_us"), "target_queues": dead_queue, "lies_in": dead_queue, "hops": F.array(hop)})
    )


def _minutes(fates: DataFrame, attempts: DataFrame, days: int) -> DataFrame:
    """Counts of what the rows tell, and of those that succeeded at once: CALM for each that failed, in the minute it was sent."""
    from pyspark.sql import functions as F

    def counted(frame: DataFrame, us: str, queue: Column | str = "queue", **counts: Column | int) -> DataFrame:
        minute = (F.col(us) / _MINUTE_US).cast("long") * _MINUTE_US
        sums = [F.sum(F.lit(value) if isinstance(value, int) else value).cast("long").alias(name) for name, value in counts.items()]
        return frame.groupBy(F.col(queue).alias("queue") if isinstance(queue, str) else queue.alias("queue"), minute.alias("us")).agg(*sums)

    dead = fates.where("dies")
    alive = fates.where("NOT dies")
    parts = [
        counted(fates, "sent_us", sent=CALM + 1, delivered=CALM, succeeded=CALM, first_try=CALM),
        counted(alive, "settled_us", delivered=1, succeeded=1),
        counted(attempts, "at_us", delivered=1, failed=1),
        counted(dead, "settled_us", dead_lettered=1),
        counted(dead, "settled_us", F.concat(F.lit("DLQ."), F.col("queue")), moved_in=1),
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part, allowMissingColumns=True)
    names = [name for name in whole.columns if name not in ("queue", "us")]
    summed = whole.groupBy("queue", "us").agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names))
    missing = {name for name, kind in TABLES["deliveries_by_minute"] if kind == "int64"} - {"queue_id", *names}
    return summed.withColumns({"minute": _at("us")} | {name: F.lit(0).cast("long") for name in sorted(missing)})


def _declared(spark: SparkSession, start_us: int) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F

    names_of = {"max_delivery_attempts": "max_attempts", "redelivery_delay_ms": "delay_ms", "redelivery_delay_multiplier": "multiplier"}
    limits = [(t, {name: getattr(t, own) for name, own in names_of.items()}) for t in QUEUES]
    settings = [(t.queue, name, json.dumps(value)) for t, values in limits for name, value in values.items()]
    policies = [(f"p-{t.queue}", json.dumps(values)) for t, values in limits]
    names = [(t.queue, t.queue, "anycast") for t in QUEUES] + [(f"DLQ.{t.queue}", "DLA", "multicast") for t in QUEUES]
    at = {"from_at": F.timestamp_micros(F.lit(start_us))}
    flags = {"durable": F.lit(True), "auto_created": F.lit(True), "paused": F.lit(False), "options_json": F.lit("{}")}
    return {
        "settings": spark.createDataFrame(settings, "pattern string, setting string, value_json string").withColumns(at),
        "policies": spark.createDataFrame(policies, "policy string, settings_json string").withColumns(at),
        "queues": spark.createDataFrame(names, "queue string, address string, routing_type string").withColumns(
            flags | {"created_at": at["from_at"]}
        ),
    }


# --- writing ----------------------------------------------------------------------------------------------------------


def _write_broker(spark: SparkSession, out: str, messages: int, seed: int, days: int) -> dict[str, int]:
    from pyspark.sql import functions as F

    from analytics.files import Files

    broker_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"homing-{seed}"))
    files, rows, scratch = Files(spark), {}, f"{out}/_fates"
    # Written once and read again: what is drawn would else be drawn anew for every table and every filter.
    _fates(spark, messages, seed, days).write.parquet(scratch)
    fates = spark.read.parquet(scratch)
    attempts = _attempts(fates, seed)
    frames = {"messages": _messages(fates), "attempts": attempts, "dead_letters": _dead_letters(attempts)}
    frames |= {"deliveries_by_minute": _minutes(fates, attempts, days), **_declared(spark, START_US)}
    for table, frame in frames.items():
        shaped = _shaped(frame.withColumns({"broker_id": F.lit(broker_id), "schema_version": F.lit(SCHEMA_VERSION)}), table)
        if table == "attempts":
            shaped.withColumn("day", F.date_format("at", "yyyy-MM-dd")).write.partitionBy("day").parquet(f"{out}/{table}")
        elif table in ("messages", "dead_letters"):
            shaped.write.parquet(f"{out}/{table}")
        else:
            shaped.coalesce(1).write.parquet(f"{out}/{table}")
        rows[table] = sum(files.parquet_footer(name)[0] for name in files.parquet_files(f"{out}/{table}"))
    files.remove(scratch)
    taken_us = START_US + (days + 1) * _DAY_US
    at = datetime.fromtimestamp(taken_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    manifest = {"format": "homing-export", "schema_version": SCHEMA_VERSION, "broker_id": broker_id, "exported_at": at}
    manifest |= {"exported_at_us": taken_us, "with_tracebacks": False, "rows": rows}
    files.write_text(f"{out}/{MANIFEST_NAME}", json.dumps(manifest, indent=2) + "\n")
    return rows


def _shaped(frame: DataFrame, table: str) -> DataFrame:
    """The table's columns in its order and types; what the frame does not have is null."""
    from pyspark.sql import functions as F

    ids = _queue_id() if "queue" in frame.columns else F.lit(None)
    known = frame.withColumn("queue_id", ids)
    columns = [F.col(name) if name in known.columns else F.lit(None) for name, _ in TABLES[table]]
    return known.select(*(c.cast(SPARK_TYPES[kind]).alias(name) for c, (name, kind) in zip(columns, TABLES[table], strict=True)))


def main(arguments: Sequence[str] | None = None) -> int:
    from analytics.spark import spark_session

    parser = argparse.ArgumentParser(prog="python -m analytics.generate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", help="a new directory")
    parser.add_argument("--attempts", type=lambda text: int(float(text)), default=10_000, help="failed attempts in all, such as 1e6")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--master", help="where Spark runs (default: here)")
    given = parser.parse_args(arguments)
    with spark_session(given.master) as spark:
        more = {"seed": given.seed, "days": given.days, "brokers": given.brokers}
        rows = generate(spark, given.out.rstrip("/"), attempts=given.attempts, **more)
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
