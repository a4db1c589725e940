"""How many attempts and how much time it takes after a failure until a message succeeds or is dead-lettered: cumulative incidence.

Success and dead-lettering are competing risks: what is dead does not succeed later, as Kaplan and Meier have it. The curves are Aalen and
Johansen's, by statsmodels, on the distinct times that Spark has counted. A message that still waits, or that expired, was watched until
its last failure and counts until then.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..spark.connect import frame_of

#: pandas comes without types.
Table = Any
#: Up to so many distinct times are shown as they are; above it times are rounded up to a grid of STEPS for each factor of ten.
DISTINCT, STEPS = 1_000_000, 100
_COLUMNS = dict.fromkeys(("broker_id", "queue", "error_class", "by"), "string") | dict.fromkeys(
    ("at", "at_risk", "succeeded", "died", "censored"), "bigint"
)
_COLUMNS |= {"came_home": "double", "dead": "double", "rounded": "boolean"}


def survival(fates: DataFrame) -> DataFrame:
    """One row for each broker, queue and error class (null: all together) and time at which anything ended, ``by`` ``time`` or
    ``attempts``.

    ``at``: milliseconds from the first failure, or the number of the attempt. ``at_risk``: still watched, and neither succeeded nor dead,
    before it; ``succeeded``, ``died`` and ``censored`` (waits, expired, purged) at it; ``came_home`` and ``dead``: the part of all that
    had done so by then; ``rounded``: the times of this run are, up to STEPS for each factor of ten, for there are more than DISTINCT.
    """
    import pandas as pd
    import pyarrow as pa

    made = F.when(F.col("won"), F.col("tries")).otherwise(F.col("failed_attempts")).cast("long")
    steps = F.array(
        F.struct(F.lit("time").alias("by"), F.col("took_ms").cast("long").alias("at")),
        F.struct(F.lit("attempts").alias("by"), made.alias("at")),
    )
    nobody = F.lit(None).cast("string")
    groups = F.array(
        F.struct("broker_id", "queue", "error_class"),
        F.struct("broker_id", "queue", nobody.alias("error_class")),
        F.struct(nobody.alias("broker_id"), nobody.alias("queue"), nobody.alias("error_class")),
    )
    counted = (
        fates.where("first_at IS NOT NULL")
        .select("broker_id", "queue", "error_class", "won", "died", F.explode(steps).alias("step"))
        .groupBy("broker_id", "queue", "error_class", "step.by", "step.at")
        .agg(
            F.count_if("won").alias("succeeded"),
            F.count_if("died").alias("died"),
            F.count_if(~F.col("won") & ~F.col("died")).alias("censored"),
        )
    )
    rounded = counted.count() > DISTINCT
    if rounded:
        at = F.when(F.col("by") == "time", _rounded_up("at")).otherwise(F.col("at"))
        counted = counted.withColumn("at", at)
    whole = (
        counted.select(F.explode(groups).alias("group"), "by", "at", "succeeded", "died", "censored")
        .groupBy("group.broker_id", "group.queue", "group.error_class", "by", "at")
        .agg(*(F.sum(name).alias(name) for name in ("succeeded", "died", "censored")))
    )
    table: Table = whole.orderBy("by", "queue", "error_class", "broker_id", "at").toPandas()
    curves = table.groupby(["broker_id", "queue", "error_class", "by"], dropna=False, sort=False, group_keys=False)
    incidences = [_incidence(curve.assign(rounded=rounded)) for _, curve in curves]
    kinds = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in _COLUMNS.items()])
    # As a table of Arrow's it needs no Python beside the executors, and what is missing is null.
    found = pa.Table.from_pandas(pd.concat(incidences), schema, preserve_index=False) if incidences else schema.empty_table()
    return frame_of(fates.sparkSession, found)


def _incidence(curve: Table) -> Table:
    """Adds ``at_risk``, ``came_home`` and ``dead`` to the counts of one group, times ascending."""
    import numpy as np
    from statsmodels.duration.survfunc import CumIncidenceRight

    counts = [curve[name].to_numpy() for name in ("censored", "succeeded", "died")]
    at, ended = curve["at"].to_numpy(), sum(counts)
    status = np.repeat([0, 1, 2], len(at))
    home, dead = CumIncidenceRight(np.tile(at, 3), status, freq_weights=np.concatenate(counts)).cinc
    at_risk = ended.sum() - ended.cumsum() + ended
    return curve.assign(at_risk=at_risk, came_home=home, dead=dead)[list(_COLUMNS)]


def _rounded_up(name: str) -> Column:
    step = F.ceil(STEPS * F.log10(F.greatest(F.col(name), F.lit(1))))
    return F.round(F.pow(F.lit(10.0), step / STEPS)).cast("long")
