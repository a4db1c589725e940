"""Questions to the tables that were written, which are small beside what they were computed from: pyarrow's, in memory.

pyarrow comes without types, so a table is Any here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]


def first_rows(table: Any, limit: int) -> list[Row]:
    """The first ``limit`` rows; times are of UTC."""
    rows: list[Row] = table.slice(0, limit).to_pylist()
    return rows


def total(table: Any, names: Iterable[str]) -> Row:
    """The sum of each column; 0 where there is no row."""
    import pyarrow.compute as pc

    return {name: pc.sum(table[name], min_count=0).as_py() for name in names}


def summed(table: Any, keys: Sequence[str], names: Sequence[str]) -> Any:
    """One row for each ``keys``, by them, with the sums of ``names``; at the least number of threads, for few rows."""
    found = table.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in names])
    return found.rename_columns([*keys, *names]).sort_by([(key, "ascending") for key in keys])


def epoch_s(times: Any) -> Any:
    """A column of times as seconds since 1970."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.divide(pc.cast(times, pa.int64()), 1_000_000)
