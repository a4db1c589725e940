"""Exports of any size, invented from a seed by Spark itself::

    python -m benchmarks.analytics.generate OUT --attempts 1000000 --seed 7

Nothing is held in memory and nothing depends on how Spark cuts the work: every draw is a hash of the seed, the message and what is
drawn, so the same arguments give the same rows on any cluster. What it invents:

- **traffic** that swells and ebbs with the hour of the day, over ``days`` days, in the four queues of sample.py;
- **outages**: one a day and queue, from 5 to 45 minutes, in which everything fails until it is over;
- **flaky moments** that pass after some seconds, **poison** that never succeeds, **slow consumers** that hold 30 times longer, and one
  that **hoards**: what it prefetched waits eight seconds in its window.

An attempt fails exactly while its message's trouble lasts. So each message's fate is known in closed form, which is what lets the
rows be written in one pass. Everything is over when the export is taken: nothing is still waiting, except in the dead-letter queues.
What was planted is written beside the export, in _planted.json: consumers, outages with how many messages met them, and what poison
killed how many, so that what the reports find can be held against it.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchmarks.analytics.sample import QUEUES, START_US, Traffic
from homing.analytics.input.schema import MANIFEST_NAME, SCHEMA_VERSION, SPARK_TYPES, TABLES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_MINUTE_US = 60_000_000
#: Messages that succeed at once for each that fails.
CALM = 20
#: Messages from which the mean number of attempts is taken.
PROBE = 200_000
#: Consumers a queue, from 0: the last is slow, the one before it, in the last queue, hoards what it prefetched.
CONSUMERS = 8
SLOW, HOARDER = CONSUMERS - 1, CONSUMERS - 2
SLOWER, LONGEST_US = 30, 900_000
HOARDED_US = 8_000_000
#: Messages a task: so few that it writes into two or three days.
TASK_MESSAGES = 1_000_000
#: What was planted, beside the manifest.
PLANTED_NAME = "_planted.json"


def generate(spark: SparkSession, out: str, *, attempts: int, seed: int = 1, days: int = 14, brokers: int = 1) -> dict[str, int]:
    """Write exports of about ``attempts`` failed attempts in all (within 2 % from 10,000 on) to the new directory ``out``.

    One broker: ``out`` is the export. Several: each has one in it, ``broker-01``, …. Returns table -> rows, all brokers together.
    """
    from pyspark.sql import functions as F

    from homing.analytics.spark.session import with_settings

    whole: dict[str, int] = {}
    for number in range(1, brokers + 1):
        own_seed = seed * 1_000 + number
        wanted = attempts // brokers
        probe = _fates(spark, min(PROBE, max(wanted, 10_000)), own_seed, days)
        mean = probe.agg((F.sum("failed") / F.lit(min(PROBE, max(wanted, 10_000)))).alias("mean")).collect()[0]["mean"]
        place = out if brokers == 1 else f"{out}/broker-{number:02d}"
        with with_settings(spark, {"spark.sql.maxConcurrentOutputFileWriters": str(days + 2)}):  # else each task would sort its rows by day
            written = _write_broker(spark, place, max(1, round(wanted / mean)), own_seed, days)
        for table, rows in written.items():
            whole[table] = whole.get(table, 0) + rows
    return whole


# --- draws and fates --------------------------------------------------------------------------------------------------


def _draw(seed: int, what: str, *columns: str) -> Column:
    """Uniform in [0, 1), from the seed, what it is for, and the columns."""
    from pyspark.sql import functions as F

    bits = F.xxhash64(F.lit(seed), F.lit(what), *columns)
    return F.shiftrightunsigned(bits, 11) / F.lit(float(1 << 53))


def _by_queue(of: Callable[[Traffic], Any]) -> Column:
    """What depends on the queue, whose number is the column ``number``: ``of(traffic)`` for each."""
    from pyspark.sql import functions as F

    return F.element_at(F.lit([of(traffic) for traffic in QUEUES]), F.col("number") + 1)


def _due_us(traffic: Traffic) -> list[int]:
    """When, after its first delivery, a message is due for its attempts 1, 2, … max_attempts; cap: ten times the first delay."""
    due = [0]
    for failed in range(1, traffic.max_attempts):
        due.append(due[-1] + 1000 * min(int(traffic.delay_ms * traffic.multiplier ** (failed - 1)), 10 * traffic.delay_ms))
    return due


def _outage_us(seed: int) -> tuple[Column, Column]:
    """(begin, length) of the outage of the columns ``number`` and ``day``, in microseconds since the first day."""
    from pyspark.sql import functions as F

    begin = F.col("day") * _DAY_US + ((_draw(seed, "outage", "number", "day") * 0.8 + 0.05) * _DAY_US).cast("long")
    return begin, ((_draw(seed, "length", "number", "day") * 40 + 5) * _MINUTE_US).cast("long")


def _fates(spark: SparkSession, messages: int, seed: int, days: int) -> DataFrame:
    """One row for each message that fails at least once. Times in microseconds since 1970; ``number``: of the queue, from 0; ``kind``: of
    trouble; ``failed``: how many attempts do."""
    from pyspark.sql import functions as F

    part = (F.col("id") + 0.5) / messages
    pick = _draw(seed, "queue", "id")
    number = F.lit(len(QUEUES) - 1)
    for index in range(len(QUEUES) - 2, -1, -1):
        number = F.when(pick < sum(traffic.weight for traffic in QUEUES[: index + 1]), index).otherwise(number)
    # Monotone in id, so that a task writes few days; 0.7: how much busier noon is than midnight.
    warped = part - 0.7 * F.sin(2 * 3.141592653589793 * days * part) / (2 * 3.141592653589793 * days)
    begin, length = _outage_us(seed)
    until = F.col("outage_us") + F.col("outage_length_us") - F.col("at_us")
    kinds = F.when(_draw(seed, "kind", "id") < 0.12, "poison").when((until > 0) & (F.col("at_us") >= F.col("outage_us")), "outage")
    passes_us = (-F.log(1 - _draw(seed, "passes", "id")) * _by_queue(lambda t: 3 * t.delay_ms * 1000.0)).cast("long")
    trouble = F.when(F.col("kind") == "poison", F.lit(1 << 60)).when(F.col("kind") == "outage", until).otherwise(passes_us)
    tries = F.size(F.filter("due_us", lambda each: each < F.col("trouble_us")))
    return (
        spark.range(0, messages, 1, max(spark.sparkContext.defaultParallelism, -(-messages // TASK_MESSAGES)))
        .withColumns({"number": number, "at_us": (warped * (days * _DAY_US)).cast("long")})
        .withColumn("day", F.floor(F.col("at_us") / _DAY_US))
        .withColumns({"outage_us": begin, "outage_length_us": length})
        .withColumn("kind", F.coalesce(kinds, F.lit("flaky")))
        .where((F.col("kind") != "flaky") | (_draw(seed, "thin", "id") < 0.35))  # an outage is a time of many failures
        .withColumns({"due_us": _by_queue(_due_us), "trouble_us": trouble})
        # The first attempt is at 0 and fails; a later one fails while the trouble lasts.
        .withColumn("failed", F.greatest(tries, F.lit(1)))
        .withColumn("dies", F.col("failed") == F.size("due_us"))
        .withColumns({"sent_us": F.col("at_us") + START_US, "message_id": F.col("id") * 4 + 4097})
        .withColumn("attempt", F.col("failed"))
        .withColumn("last_us", F.col("sent_us") + F.element_at("due_us", F.col("failed") + (~F.col("dies")).cast("int")))
        .withColumn("settled_us", F.col("last_us") + F.when(F.col("dies"), _waited_us(seed) + _held_us(seed)).otherwise(F.lit(50_000)))
        .withColumn("queue", _by_queue(lambda t: t.queue))
        .select("message_id", "number", "queue", "kind", "failed", "dies", "sent_us", "settled_us")
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def _at(us: Column | str) -> Column:
    from pyspark.sql import functions as F

    return F.timestamp_micros(us)


def _queue_id(column: str = "queue") -> Column:
    from pyspark.sql import functions as F

    names = [traffic.queue for traffic in QUEUES]
    return F.array_position(F.lit([*names, *(f"DLQ.{name}" for name in names)]), F.col(column)).cast("long")


def _error(kind: Column) -> tuple[Column, Column]:
    """(error class, error text) of an attempt, by its message's ``kind`` of trouble and its own number."""
    from pyspark.sql import functions as F

    # A flaky moment shows in two ways, by turns; an outage in the first of them.
    second = (kind == "flaky") & (F.col("attempt") % 2 == 1)

    def with_settings(part: int) -> Column:
        ordinary = F.when(second, _by_queue(lambda t: t.errors[1][part])).otherwise(_by_queue(lambda t: t.errors[0][part]))
        return F.when(kind == "poison", _by_queue(lambda t: t.poison_error[part])).otherwise(ordinary)

    return with_settings(0), with_settings(1)


def _worker(seed: int) -> Column:
    return (_draw(seed, "consumer", "message_id", "attempt") * CONSUMERS).cast("int")


def _waited_us(seed: int) -> Column:
    """From due to given, of the columns ``message_id``, ``number`` and ``attempt``."""
    from pyspark.sql import functions as F

    return F.when((F.col("number") == len(QUEUES) - 1) & (_worker(seed) == HOARDER), HOARDED_US).otherwise(0)


def _program() -> dict[str, Column]:
    """What the program of the column ``worker`` tells of itself: three hosts, one of them with a newer version."""
    from pyspark.sql import functions as F

    host = F.col("worker") % 3
    return {"host": F.concat(F.lit("host-"), host.cast("string")), "version": F.when(host == 0, "3.2").otherwise("3.1")}


def _held_us(seed: int) -> Column:
    """From given to ended."""
    from pyspark.sql import functions as F

    held = -F.log(1 - _draw(seed, "hold", "message_id", "attempt")) * 20_000 + 1_000
    slow = F.when(_worker(seed) == SLOW, SLOWER).otherwise(1)
    return F.least(held * slow, F.lit(float(LONGEST_US))).cast("long")  # no longer than until the next attempt


def consumer_name(queue: str, worker: int) -> str:
    return f"{queue}/worker-{worker}"


def _attempts(fates: DataFrame, seed: int) -> DataFrame:
    from pyspark.sql import functions as F

    number = F.col("attempt")
    error, text = _error(F.col("kind"))
    own = F.col("error_class").isin("connection-lost", "timeout")
    delay_us = F.element_at("due_us", number + 1) - F.element_at("due_us", number)
    names = _by_queue(lambda t: [consumer_name(t.queue, worker) for worker in range(CONSUMERS)])
    return (
        fates.withColumn("attempt", F.explode(F.sequence(F.lit(1), F.col("failed"))))
        .withColumns({"worker": _worker(seed), "error_class": error, "due_us": _by_queue(_due_us)})
        .withColumns({"came_us": F.col("sent_us") + F.element_at("due_us", number), "named": ~own})
        .withColumns({"last": F.col("dies") & (number == F.col("failed")), "given_us": F.col("came_us") + _waited_us(seed)})
        .withColumns({"at_us": F.col("given_us") + _held_us(seed), "delay_us": F.when(~F.col("last"), delay_us)})
        .withColumns({"address": F.col("queue"), "sequence": F.col("message_id"), "at": _at("at_us"), "given_at": _at("given_us")})
        .withColumns({"assigned_at": _at(F.col("came_us")), "error_type": F.when(F.col("named"), F.col("error_class"))})
        .withColumns({"outcome": F.when(own, F.col("error_class")).otherwise("listener"), "error_text": F.when(F.col("named"), text)})
        .withColumns({"failed_attempts": number, "delivery_count": number})
        .withColumn("decision", F.when(F.col("last"), "dead-letter").otherwise("redeliver"))
        .withColumns({"delay_ms": (F.col("delay_us") / 1000).cast("long"), "policy": _by_queue(lambda t: f"p-{t.queue}")})
        .withColumns({"due_at": _at(F.col("came_us") + F.col("delay_us")), "consumer": F.element_at(names, F.col("worker") + 1)})
        .withColumn("fingerprint", F.when(F.col("named"), F.hex(F.xxhash64("error_class", "error_text"))))
        .withColumns({"connection": F.col("consumer"), **_program()})
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
    remaining = common.where("dies").withColumns(
        {"sequence": F.col("message_id") + 1, "queue": dead_queue, "state": F.lit("ready"), "suspect": F.lit(False)}
        | {"attempts": F.lit(0), "failed_attempts": F.lit(0), "delivery_count": F.lit(0), "priority": F.lit(4)}
        | {"body_bytes": F.lit(512), "hops": F.lit(1), "entered_at": F.col("ended_at")}
    )
    return failed.drop("hops").unionByName(remaining.drop("outcome"), allowMissingColumns=True)


def _dead_letters(fates: DataFrame) -> DataFrame:
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
    error, text = _error(F.col("kind"))
    named = ~F.col("error_class").isin("connection-lost", "timeout")
    return (
        fates.where("dies")
        .withColumns({"attempt": F.col("failed"), "sequence": F.col("message_id"), "address": F.col("queue")})
        .withColumn("error_class", error)
        .withColumns({"error_type": F.when(named, F.col("error_class")), "error_text": F.when(named, text)})
        .withColumns({"died_at": _at("settled_us"), "reason": F.lit("delivery_limit"), "attempts": F.col("failed")})
        .withColumns({"sent_at": _at("sent_us"), "target_queues": dead_queue, "lies_in": dead_queue, "hops": F.array(hop)})
    )


def _minutes(fates: DataFrame, attempts: DataFrame) -> DataFrame:
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
        counted(
            attempts.select("queue", "attempt", F.unix_micros("at").alias("at_us"), F.unix_micros("given_at").alias("given_us")),
            "at_us",
            delivered=1,
            failed=1,
            failed_first=(F.col("attempt") == 1).cast("long"),
            failed_ms=F.floor((F.col("at_us") - F.col("given_us")) / 1000),
        ),
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


def _by_consumer(fates: DataFrame, seed: int) -> DataFrame:
    """Who the successes of ``_minutes`` went to: those of a message and its moment all to one consumer."""
    from pyspark.sql import functions as F

    names = _by_queue(lambda t: [consumer_name(t.queue, worker) for worker in range(CONSUMERS)])
    # As if it were the attempt after the last that failed.
    each = fates.withColumn("attempt", F.col("failed") + 1).withColumns({"worker": _worker(seed), "held_us": _held_us(seed)})
    parts = [
        each.selectExpr("*", f"{CALM} AS won", "sent_us AS us"),
        each.where("NOT dies").selectExpr("*", "1 AS won", "settled_us AS us"),
    ]
    hour = F.timestamp_seconds(F.floor(F.col("us") / _HOUR_US) * 3600)
    held_ms = F.floor(F.sum(F.col("won") * F.col("held_us")) / 1000)
    summed = parts[0].unionByName(parts[1]).groupBy("number", "queue", "worker", hour.alias("hour"))
    won = summed.agg(F.sum("won").alias("succeeded"), held_ms.alias("held_ms")).withColumns(_program())
    lasts = {"first_at": F.col("hour"), "last_at": F.col("hour") + F.expr("INTERVAL 1 HOUR")}
    return won.withColumns({"consumer": F.element_at(names, F.col("worker") + 1)} | lasts)


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

#: The counts are made from the attempts as written.
TABLES_IN_ORDER = ("attempts", *(table for table in TABLES if table != "attempts"))


def _write_broker(spark: SparkSession, out: str, messages: int, seed: int, days: int) -> dict[str, int]:
    from pyspark.sql import functions as F

    from homing.analytics.input.files import Files

    broker_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"homing-{seed}"))
    files, rows, scratch = Files(spark), {}, f"{out}/_fates"
    # Written once and read again: what is drawn would else be drawn anew for every table and every filter.
    _fates(spark, messages, seed, days).write.parquet(scratch)
    fates = spark.read.parquet(scratch)
    frames = {
        "attempts": lambda: _attempts(fates, seed),
        "messages": lambda: _messages(fates),
        "dead_letters": lambda: _dead_letters(fates),
    }
    frames["deliveries_by_consumer"] = lambda: _by_consumer(fates, seed)
    frames["deliveries_by_minute"] = lambda: _minutes(fates, spark.read.parquet(f"{out}/attempts"))
    frames |= dict.fromkeys(("edits", "faults", "redrives"), lambda: spark.createDataFrame([], "none string"))
    declared = _declared(spark, START_US)
    for table in TABLES_IN_ORDER:
        frame = declared[table] if table in declared else frames[table]()
        shaped = _shaped(frame.withColumns({"broker_id": F.lit(broker_id), "schema_version": F.lit(SCHEMA_VERSION)}), table)
        if table == "attempts":
            shaped.withColumn("day", F.to_date("at")).write.partitionBy("day").parquet(f"{out}/{table}")
        elif table in ("messages", "dead_letters"):
            shaped.write.parquet(f"{out}/{table}")
        else:
            shaped.coalesce(1).write.parquet(f"{out}/{table}")
        rows[table] = sum(files.parquet_footer(name).rows for name in files.parquet_files(f"{out}/{table}"))
    files.write_text(f"{out}/{PLANTED_NAME}", json.dumps(_planted(spark, fates, seed, days), indent=1) + "\n")
    files.remove(scratch)
    taken_us = START_US + (days + 1) * _DAY_US
    at = datetime.fromtimestamp(taken_us / 1_000_000, UTC).isoformat(timespec="milliseconds")
    manifest = {"format": "homing-export", "schema_version": SCHEMA_VERSION, "broker_id": broker_id, "exported_at": at}
    manifest |= {"exported_at_us": taken_us, "with_tracebacks": False, "rows": rows}
    files.write_text(f"{out}/{MANIFEST_NAME}", json.dumps(manifest, indent=2) + "\n")
    return rows


def _planted(spark: SparkSession, fates: DataFrame, seed: int, days: int) -> dict[str, list[dict[str, Any]]]:
    """What the reports should find. A row a queue and day is collected."""
    from pyspark.sql import functions as F

    names = [traffic.queue for traffic in QUEUES]
    begin, length = _outage_us(seed)
    moments = spark.range(days * len(QUEUES)).select(
        (F.col("id") % len(QUEUES)).cast("int").alias("number"), F.floor(F.col("id") / len(QUEUES)).alias("day")
    )
    outages = {(row["number"], row["day"]): row for row in moments.select("*", begin.alias("begin"), length.alias("length")).collect()}
    day = F.floor((F.col("sent_us") - START_US) / _DAY_US)
    met = fates.where("kind = 'outage'").groupBy("number", day.alias("day")).agg(F.count(F.lit(1)).alias("messages"))
    killed: dict[int, int] = dict(fates.where("kind = 'poison'").groupBy("number").agg(F.count(F.lit(1))).collect())
    return {
        "slow": [{"queue": name, "consumer": consumer_name(name, SLOW)} for name in names],
        "hoarders": [{"queue": names[-1], "consumer": consumer_name(names[-1], HOARDER)}],
        "poison": [
            {"queue": t.queue, "error_class": t.poison_error[0], "error_text": t.poison_error[1], "deaths": killed.get(number, 0)}
            for number, t in enumerate(QUEUES)
        ],
        "outages": [
            {"queue": names[row["number"]], "from_us": START_US + (at := outages[row["number"], row["day"]])["begin"]}
            | {"to_us": START_US + at["begin"] + at["length"], "messages": row["messages"]}
            for row in sorted(met.collect())
        ],
    }


def _shaped(frame: DataFrame, table: str) -> DataFrame:
    """The table's columns in its order and types; what the frame does not have is null."""
    from pyspark.sql import functions as F

    ids = _queue_id() if "queue" in frame.columns else F.lit(None)
    known = frame.withColumn("queue_id", ids)
    if table in ("messages", "attempts", "dead_letters"):
        known = known.withColumn("home_queue", F.regexp_replace("queue", r"^DLQ\.", ""))
    columns = [F.col(name) if name in known.columns else F.lit(None) for name, _ in TABLES[table]]
    return known.select(*(c.cast(SPARK_TYPES[kind]).alias(name) for c, (name, kind) in zip(columns, TABLES[table], strict=True)))


def main(arguments: Sequence[str] | None = None) -> int:
    from homing.analytics.spark.session import spark_session

    parser = argparse.ArgumentParser(prog="python -m benchmarks.analytics.generate", description=(__doc__ or "").splitlines()[0])
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
