"""``homing analyze --compare A B``: two periods in, one table and one page out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analytics.errors import AnalyticsError
from analytics.words import plural

#: Queues on the page; all of them are in the table.
QUEUES = 100


def compare_periods(dumps: Sequence[str | Path], out: str | Path, master: str | None = None, *, skip: bool = False) -> str:
    """Write ``comparison`` as Parquet and CSV, and report.html; returns the page's path. Raises AnalyticsError."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from analytics.compare import compare
    from analytics.inputs import damaged
    from analytics.outputs import Output
    from analytics.report import page_environment
    from analytics.source import Source
    from analytics.spark import spark_session

    if len(dumps) != 2:
        raise AnalyticsError("two-periods", f"A comparison is of two periods, not {len(dumps)}.", "Name two exports or folders of exports.")
    names = [str(dump) for dump in dumps]
    with spark_session(master) as spark:
        before, after = (Source(spark, [name], skip=skip, store=None).open() for name in names)
        output = Output(spark, str(out))
        try:
            found = output.write_table("comparison", compare(before, after))
            rows = [row.asDict() for row in found.limit(QUEUES).collect()]
        except (PySparkException, Py4JError) as error:
            raise damaged(" or ".join(names), error) from error
        shown = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
        page = page_environment().get_template("compare.html.j2")
        output.write_report(page.render(a=shown[0], b=shown[1], rows=rows, headline=headline(rows)))
        return output.report_path


def headline(rows: Sequence[dict[str, Any]]) -> str:
    worse, better = ([row["queue"] for row in rows if row["verdict"] == word] for word in ("worse", "better"))
    if not worse and not better:
        return "Nothing changed that chance would not explain"
    told = [f"{plural(len(worse), 'queue')} got worse, first {worse[0]}"] if worse else []
    told += [f"{plural(len(better), 'queue')} got better, first {better[0]}"] if better else []
    return "; ".join(told)
