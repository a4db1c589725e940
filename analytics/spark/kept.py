"""What is computed once and read several times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept(frame: DataFrame, *, small: bool) -> DataFrame:
    """``frame``, computed once however many use it at the same time.

    A ``small`` one at its first use, in memory, and Spark forgets how it was made: planning each use of it again costs more than the use.
    Others now, on disk, for memory is for what Spark sorts and counts, and with their plan, so that what is lost with a machine is made
    again; unpersist these.
    """
    from pyspark import StorageLevel

    if small:
        return frame.coalesce(1).localCheckpoint(eager=False)
    frame = frame.persist(StorageLevel.DISK_ONLY)
    frame.write.format("noop").mode("overwrite").save()
    return frame
