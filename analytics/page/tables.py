"""Questions to the tables that were written, which are small beside what they were computed from: pyarrow's, in memory.

pyarrow comes without types, so a table is Any here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
#: table -> what was written of it, a pyarrow.Table.
Results = Mapping[str, Any]


def first_rows(table: Any, limit: int) -> list[Row]:
    """The first ``limit`` rows; times are of UTC."""
    rows: list[Row] = table.slice(0, limit).to_pylist()
    return rows


#: Columns that name a queue.
_QUEUES = ("queue", "source", "target", "dead_letter_queue")


def labelled(tables: Mapping[str, Any], brokers: Mapping[str, str]) -> dict[str, Any]:
    """The tables with each queue named beside its broker, where there are several: queues of one name are not one queue.

    ``brokers``: Export.labels.
    """
    if len(brokers) < 2:
        return dict(tables)
    return {name: _with_broker(table, brokers) for name, table in tables.items()}


def _with_broker(table: Any, brokers: Mapping[str, str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if "broker_id" not in table.column_names:
        return table
    broker = pa.array([brokers.get(each) for each in table["broker_id"].to_pylist()], pa.string())
    for name in set(_QUEUES) & set(table.column_names):
        label = pc.binary_join_element_wise(table[name], broker, " @ ")
        table = table.set_column(table.column_names.index(name), name, label)
    return table


def bare(queue: str) -> str:
    """As the broker and its commands know it: without what ``labelled`` put beside it."""
    return queue.partition(" @ ")[0]


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
