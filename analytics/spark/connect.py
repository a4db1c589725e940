"""Where Spark's driver is: in a Java of this process's, or behind Spark Connect, which shows nothing of it."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

#: How the address of a Spark Connect server begins.
SCHEME = "sc:"
DEFAULT_PORT = 15002
#: A server that is there answers sooner.
CONNECT_S = 10.0


def context(spark: SparkSession) -> SparkContext | None:
    """None: behind Spark Connect."""
    found: SparkContext | None = getattr(spark, "sparkContext", None)
    return found


def frame_of(spark: SparkSession, table: Any) -> DataFrame:
    """A pyarrow.Table as a frame; also one without rows, of which Spark Connect would not know the columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(table, from_arrow_schema(table.schema))
