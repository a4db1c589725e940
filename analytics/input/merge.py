"""Overlapping exports made one: each row once, as the latest export of its broker tells it.

- A row that several exports hold (the same key) counts once: the latest export's.
- A message that an older export saw waiting and the latest does not know is gone: it succeeded at once, and is a count, or its history
  has been forgotten. Only the latest export of a broker tells what is *still here*.
- A death that only an older export knows is nowhere any more.
- Every export holds all counts of its broker, the older the coarser. Those of a queue's day are taken from one export: the first that was
  taken after the day was over, for it tells them finest; before that by the latest.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .schema import KEYS, TABLES

_DAY_US = 86_400_000_000


def merged(table: str, frame: DataFrame, latest: dict[str, int]) -> DataFrame:
    """``frame`` with ``exported_at_us`` (inputs.read_table), each key once, without that column. ``latest``: taken.latest_of."""
    return as_of_latest(table, once(table, frame), latest)


def once(table: str, frame: DataFrame) -> DataFrame:
    """Of rows with the same key that of the latest export. Keeps ``exported_at_us``."""
    if table == "deliveries_by_minute":
        frame = _day_by_day(frame)
    names = [name for name, _ in TABLES[table] if name not in KEYS[table]]
    newest = F.max_by(F.struct(*names, "exported_at_us"), "exported_at_us").alias("row")
    return (
        frame.groupBy(*KEYS[table]).agg(newest).select(*KEYS[table], "row.*").select(*(name for name, _ in TABLES[table]), "exported_at_us")
    )


def _day_by_day(counts: DataFrame) -> DataFrame:
    """Of each queue's day the rows of one export: a coarse row of a later one stands for fine rows of an earlier one, never beside them.

    Rows for 30 days reach over days; they are in exports taken 104 ``history-retention`` after the earlier one, and stay out.
    """
    day = F.floor(F.unix_micros("minute") / _DAY_US)
    exported_at = F.col("exported_at_us")
    is_over = exported_at >= (F.col("_day") + 1) * _DAY_US
    finest = F.max_by(exported_at, F.struct(is_over, F.when(is_over, -exported_at).otherwise(exported_at))).alias("exported_at_us")
    key = ["broker_id", "queue_id", "_day"]
    by_day = counts.withColumn("_day", day)
    return by_day.join(by_day.groupBy(*key).agg(finest), [*key, "exported_at_us"], "left_semi").drop("_day")


def as_of_latest(table: str, frame: DataFrame, latest: dict[str, int]) -> DataFrame:
    """What older exports said of the moment they were taken is no longer so. Drops ``exported_at_us``."""
    newest = F.create_map(*(F.lit(value) for pair in sorted(latest.items()) for value in pair))
    current = F.col("exported_at_us") == F.element_at(newest, F.col("broker_id"))
    if table == "messages":
        frame = frame.where((F.col("state") == "settled") | current)
    if table == "faults":  # what only an older one has was folded since
        frame = frame.where(current)
    if table == "dead_letters":
        nowhere = F.array().cast("array<string>")
        frame = frame.withColumn("lies_in", F.when(current, F.col("lies_in")).otherwise(nowhere))
    if table == "queues":
        for name in ("ready", "scheduled", "parked"):
            frame = frame.withColumn(name, F.when(current, F.col(name)).otherwise(F.lit(0).cast("long")))
    return frame.drop("exported_at_us")
