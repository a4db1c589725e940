"""``homing analyze --compare A B``: two periods in, two tables and one page out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import AnalyticsError
from ..words import plural

#: Queues and error classes on the page; all of them are in the tables.
QUEUES, CLASSES = 60, 40


def compare_periods(
    dumps: Sequence[str | Path], out: str | Path, master: str | None = None, *, skip: bool = False, memory: str | None = None
) -> str:
    """Write ``comparison`` and ``comparison_errors`` as Parquet and CSV, and report.html; returns its path. Raises AnalyticsError.

    ``memory``: as spark_session's.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from ..input.source import Source
    from ..page.outputs import Output
    from ..reports.compare import compare, compare_errors
    from ..reports.fates import Shared
    from ..spark.memory import fault
    from ..spark.session import spark_session, suited_to

    if len(dumps) != 2:
        raise AnalyticsError("two-periods", f"A comparison is of two periods, not {len(dumps)}.", "Name two exports or folders of exports.")
    names = [str(dump) for dump in dumps]
    with spark_session(master, memory=memory) as spark:
        exports = [Source(spark, [name], skip=skip, store=None).open() for name in names]
        output = Output(spark, str(out))
        before, after = ((export, Shared(export)) for export in exports)
        try:
            small = all(export.manifest.is_small for export in exports)
            with suited_to(spark, small=small):
                queues = output.write_table("comparison", compare(before, after))
                errors = output.write_table("comparison_errors", compare_errors(before, after))
                output.write_report(_page(names, queues, errors))
        except (PySparkException, Py4JError, ConnectionError) as error:  # the last: Java has ended
            raise fault(spark, " or ".join(names), error) from error
        finally:
            with suppress(Py4JError, ConnectionError):  # Java has ended, and with it what it kept
                before[1].release()
                after[1].release()
        return output.report_path


def _page(names: Sequence[str], queues: Any, errors: Any) -> str:
    from ..page.report import page_environment
    from ..page.tables import first_rows, total

    rows, classes = first_rows(queues, QUEUES), first_rows(errors, CLASSES)
    counts = [f"{name}_{side}" for name in ("sent", "delivered", "failed", "dead_lettered", "over") for side in "ab"]
    every = total(queues, counts)
    shown = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    most = max((row[f"death_share_{side}"] or 0 for row in rows for side in "ab"), default=0) or 1
    page = page_environment().get_template("compare.html.j2")
    return page.render(a=shown[0], b=shown[1], rows=rows, classes=classes, total=every, most=most, headline=headline(rows))


def headline(rows: Sequence[dict[str, Any]]) -> str:
    worse, better = ([row["queue"] for row in rows if row["verdict"] == word] for word in ("worse", "better"))
    if not worse and not better:
        return "Nothing changed that chance would not explain"
    told = [f"{plural(len(worse), 'queue')} got worse, first {worse[0]}"] if worse else []
    told += [f"{plural(len(better), 'queue')} got better, first {better[0]}"] if better else []
    return "; ".join(told)
