"""What is computed once and read several times."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def kept(frame: DataFrame, *, small: bool) -> DataFrame:
    """``frame``, to be computed at its first use and kept then.

    A ``small`` one in memory, and Spark forgets how it was made: planning each use of it again costs more than the use. Others on disk, for
    memory is for what Spark sorts and counts, and with their plan, so that what is lost with a machine is made again; unpersist these.
    """
    from pyspark import StorageLevel

    return frame.coalesce(1).localCheckpoint(eager=False) if small else frame.persist(StorageLevel.DISK_ONLY)
