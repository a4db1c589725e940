"""``homing analyze --compare A B``: two periods in, two tables and one page out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AnalyticsError
from ..input.window import Window
from ..words import plural

if TYPE_CHECKING:
    from ..input.export import Export

#: Queues and error classes on the page; all of them are in the tables.
QUEUES, CLASSES = 60, 40


def compare_periods(
    dumps: Sequence[str | Path],
    out: str | Path,
    master: str | None = None,
    *,
    skip: bool = False,
    memory: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> str:
    """Write ``comparison`` and ``comparison_errors`` as Parquet and CSV, and report.html; returns its path. Raises AnalyticsError.

    ``memory``: as spark_session's. ``until`` ends the first period, ``since`` begins the second: so one export can be both.
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
    names, windows = [str(dump) for dump in dumps], (Window.parse(None, until), Window.parse(since, None))
    with spark_session(master, memory=memory) as spark:
        exports = [Source(spark, [name], skip=skip, store=None, window=window).open() for name, window in zip(names, windows, strict=True)]
        for export in exports:
            export.check_whole("a comparison")
        _check_apart(*exports)
        output = Output(spark, str(out))
        before, after = ((export, Shared(export)) for export in exports)
        try:
            with suited_to(spark, max(export.manifest.size for export in exports)):
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


def _check_apart(before: Export, after: Export) -> None:
    """Raises AnalyticsError one-period where a broker's history is in both: what did not change would hide what did."""
    for broker in set(before.brokers) & set(after.brokers):
        early, late = sorted((each.begins.get(broker, 0), each.manifest.exported_at_us) for each in (before, after))
        if late[0] < early[1]:
            at = datetime.fromtimestamp(early[1] // 60_000_000 * 60, UTC)
            raise AnalyticsError(
                "one-period",
                f"Both exports of broker {broker} are of the same time: each holds all that its history still knows.",
                f"End the first period and begin the second: --until {at:%Y-%m-%dT%H:%M} --since {at:%Y-%m-%dT%H:%M}, or another time.",
            )


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
    text = [f"{plural(len(worse), 'queue')} got worse, first {worse[0]}"] if worse else []
    text += [f"{plural(len(better), 'queue')} got better, first {better[0]}"] if better else []
    return "; ".join(text)
