"""The job: an export in, tables and one page out. ``homing analyze``, ``spark-submit analytics/job.py`` or a function call."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..errors import AnalyticsError
from ..input.export import ADD_AN_EXPORT
from ..input.source import Source
from ..input.window import Window
from ..reports.fates import Shared, in_order
from ..spark.connect import context
from .limits import LYING, Judged, Limit, Period, did_you_mean, parse_limit

if TYPE_CHECKING:
    from ..input.export import Export, Skipped
    from ..page.outputs import Output
    from ..page.ranking import Finding

#: Called with (what was finished, steps done, steps in all).
Progress = Callable[[str, int, int], None]
#: The exit code where a limit of --fail-if does not hold.
FAILED_LIMIT = 7
#: Small reports spend their time waiting for one another's single tasks; a few at a time fill the cores.
PARALLEL_REPORTS = 4
#: Every table that is written, the one that takes longest first.
TABLES = tuple(
    "poison_clusters survival overview attempts_to_success time_to_success retry_load recent_load retry_storms "
    "thundering_herds outages dead_letters dead_letter_groups dead_letter_growth faults redrive_yield dead_letter_trend "
    "failed_most settings_in_force advice consumers releases due_error flow journeys".split()
)
#: table -> what it takes beside Spark.
LIBRARIES = dict.fromkeys(("poison_clusters", "dead_letter_groups", "faults"), "scipy.sparse.csgraph")
LIBRARIES["survival"] = "statsmodels.duration.survfunc"
#: Longer than a small run needs for a step.
BEAT_S = 10.0


@dataclass(frozen=True, slots=True)
class AnalysisSummary:
    out: str
    #: The page; None: not asked for.
    report: str | None
    #: table -> rows written
    rows: dict[str, int]
    #: What of the input was left out, and why.
    skipped: tuple[Skipped, ...] = ()
    #: What is wrong, the costliest first; also in findings.json. Empty where only some tables were asked for.
    findings: tuple[Finding, ...] = ()
    #: What the limits of ``fail_if`` came to.
    limits: tuple[Judged, ...] = ()
    #: What there was besides is not known (Export.archives_only).
    archives_only: bool = False

    @property
    def broken(self) -> bool:
        return any(each.broken for each in self.limits)

    @property
    def not_judged(self) -> list[str]:
        """The limits of which the input says nothing."""
        return [each.limit.text for each in self.limits if not each.known]


def analyze(
    dump: str | Path | Sequence[str | Path],
    out: str | Path,
    master: str | None = None,
    *,
    ui: bool = False,
    progress: Progress | None = None,
    on_damage: str = "refuse",
    store: str | Path | None = None,
    memory: str | None = None,
    only: Sequence[str] = (),
    fail_if: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
) -> AnalysisSummary:
    """Analyse exports into the directory ``out``: report.html, parquet/, csv/.

    ``dump``: an export, a directory of exports, or several of either, of any number of brokers and days; what overlaps counts once.
    All may be paths on any file system that Spark knows. ``master``: where Spark runs, this machine by default. ``on_damage``: ``refuse``
    what is damaged or foreign, or ``skip`` it and name it in the report. ``store``: a directory that keeps what was merged, so that the
    next run reads only new exports. ``memory``: as spark_session's. ``only``: these tables, and no page. ``fail_if``: limits
    (limits.parse_limit) that the summary reports on. ``since``, ``until``: only of this time (Window.parse). An
    earlier report in ``out`` is replaced. Raises AnalyticsError.
    """
    from ..input.inputs import rows_of
    from ..input.store import rows_here
    from ..spark.session import spark_session, suited_to

    dumps, out = [str(dump)] if isinstance(dump, str | Path) else [str(each) for each in dump], str(out)
    wanted, window = Wanted.of(only, fail_if, since), Window.parse(since, until)
    steps = _Steps(progress, len(wanted.tables) or len(TABLES))
    rows = rows_of(dumps, on_damage == "skip", 0 if store is None else rows_here(str(store)))
    steps.done("checked the export")
    Thread(target=_import_early, args=(wanted.tables,), daemon=True).start()
    with spark_session(master, ui=ui, rows=rows, memory=memory, whole=not only) as spark:
        steps.done("started Spark")
        source = Source(spark, dumps, skip=on_damage == "skip", store=None if store is None else str(store), window=window)
        with suited_to(spark, rows):
            export = source.open()
        if wanted.limits:
            export.check_whole("limits")
        steps.done(source.describe())
        with suited_to(spark, export.manifest.size), _heard(spark, steps):
            return _run(spark, source, export, out, wanted, steps)


def _import_early(only: frozenset[str]) -> None:
    """What is needed later, while Java starts and Python waits for it."""
    libraries = [name for table, name in LIBRARIES.items() if not only or table in only]
    for name in ("pyarrow.parquet", *libraries, *(() if only else ("jinja2",))):
        with suppress(ImportError):  # reported where it is needed
            import_module(name)


@dataclass(frozen=True, slots=True)
class Wanted:
    #: Empty: all, and the page.
    tables: frozenset[str]
    limits: tuple[Limit, ...]

    @classmethod
    def of(cls, only: Sequence[str], fail_if: Sequence[str], since: str | None = None) -> Wanted:
        """Raises AnalyticsError no-table, bad-limit."""
        limits = tuple(parse_limit(each) for each in fail_if)
        for limit in limits:
            if limit.usual and since is None:
                fix = "Add --since, such as --since 24h: the record until then tells what is usual."
                raise AnalyticsError("bad-limit", f"{limit.text!r} is held against the usual.", fix)
        for name in only:
            if name not in TABLES:
                raise AnalyticsError("no-table", f"There is no table {name}.", did_you_mean(name, TABLES))
        return cls(frozenset([*only, *(limit.table for limit in limits if limit.table != LYING)]) if only else frozenset(), limits)


def _run(spark: SparkSession, source: Source, export: Export, out: str, wanted: Wanted, steps: _Steps) -> AnalysisSummary:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from ..input.inputs import cause
    from ..page.outputs import Output
    from ..page.ranking import ranked
    from ..page.report import render
    from ..page.tables import labelled
    from ..spark.memory import fault

    try:
        output = Output(spark, out)
    except (Py4JError, OSError) as error:
        raise AnalyticsError("out-io", f"{out} cannot be written: {cause(error)}", "Name another place.") from error
    while True:
        shared = Shared(export)
        try:
            tables = _write_tables(export, shared, output, wanted.tables, steps)
            found: tuple[Finding, ...] = ()
            if not wanted.tables:
                brokers = export.labels()
                named = labelled(tables, brokers)
                found = () if export.archives_only else tuple(ranked(named, source.name))
                output.write_report(render(export, brokers, named, found, source.name), [each.as_json() for each in found])
            limits = _judged(wanted.limits, source, export, tables)
        except (PySparkException, Py4JError, ConnectionError) as error:  # the last: Java has ended
            again = source.without(error)
            if again is None:
                raise fault(spark, source.name, error) from error
            export = again
            steps.restart("left out a damaged file")
            continue
        finally:
            with suppress(Py4JError, ConnectionError):  # Java has ended, and with it what it kept
                shared.release()
        steps.done("read the tables" if wanted.tables else "wrote the page")
        rows = {name: table.num_rows for name, table in tables.items()}
        return AnalysisSummary(
            out, None if wanted.tables else output.report_path, rows, export.skipped, found, limits, export.archives_only
        )


def _judged(limits: Sequence[Limit], source: Source, export: Export, tables: dict[str, Any]) -> tuple[Judged, ...]:
    if any(limit.table == LYING for limit in limits):
        tables = tables | {LYING: export.lying().toArrow()}
    against = {limit.table for limit in limits if limit.usual}
    before = _before(source, against) if against else None
    ended_us = export.until_us or export.manifest.exported_at_us
    period = Period(tables, ended_us, ended_us - before.ended_us if before is not None else 0)
    return tuple(limit.judge(period, before) for limit in limits)


def _before(source: Source, names: set[str]) -> Period:
    """These tables of the time before the window."""
    export = source.before()
    shared = Shared(export)
    try:
        (began,) = export.deliveries_by_minute.agg(F.unix_micros(F.min("minute"))).first() or (None,)
        frames = reports(export, shared) | {LYING: export.lying}
        tables = {name: frames[name]().toArrow() for name in names}
    finally:
        shared.release()
    assert export.until_us is not None
    return Period(tables, export.until_us, 0 if began is None else export.until_us - began)


def _write_tables(export: Export, shared: Shared, output: Output, only: frozenset[str], steps: _Steps) -> dict[str, Any]:
    """Compute and write the reports, a few at a time; table -> pyarrow.Table."""

    def write(item: tuple[str, Callable[[], DataFrame]]) -> tuple[str, Any]:
        name, frame = item
        written = output.write_table(name, frame())
        steps.done(f"computed {name}")
        return name, written

    with ThreadPoolExecutor(PARALLEL_REPORTS) as pool:
        return dict(pool.map(write, [each for each in reports(export, shared).items() if not only or each[0] in only]))


def reports(export: Export, shared: Shared) -> dict[str, Callable[[], DataFrame]]:
    """How every table that is written is made, by name."""
    from ..reports.advice import advice
    from ..reports.attempts_to_success import attempts_to_success
    from ..reports.clusters import poison_clusters
    from ..reports.consumers import consumers
    from ..reports.dead_letter_groups import dead_letter_groups
    from ..reports.dead_letter_growth import dead_letter_growth, dead_letter_trend
    from ..reports.dead_letters import dead_letters
    from ..reports.due_error import due_error
    from ..reports.failed_most import failed_most
    from ..reports.faults import faults, redrive_yield
    from ..reports.flow import flow, journeys
    from ..reports.overview import overview
    from ..reports.recent_load import recent_load
    from ..reports.releases import releases
    from ..reports.settings_in_force import settings_in_force
    from ..reports.storms import retry_storms, thundering_herds
    from ..reports.survival import survival
    from ..reports.time_to_success import time_to_success

    messages, attempts, minutes = export.messages, export.attempts, export.deliveries_by_minute
    at_us = export.manifest.exported_at_us
    return {
        # The longest first.
        "poison_clusters": lambda: poison_clusters(
            shared.faults(), shared.weighed(), shared.deaths(), shared.fates(), shared.outages(), minutes
        ),
        "survival": lambda: survival(shared.fates()),
        "overview": lambda: overview(messages, minutes, export.before, cut=export.until_us is not None),
        "attempts_to_success": lambda: attempts_to_success(messages, minutes),
        "time_to_success": lambda: time_to_success(shared.fates()),
        "retry_load": shared.retry_load,
        "recent_load": lambda: recent_load(attempts, messages, at_us),
        "retry_storms": lambda: retry_storms(shared.retry_load(), at_us),
        "thundering_herds": lambda: thundering_herds(attempts),
        "outages": shared.outages,
        "dead_letters": lambda: dead_letters(shared.deaths(), at_us),
        "dead_letter_groups": lambda: dead_letter_groups(shared.deaths(), shared.faults(), at_us),
        "dead_letter_growth": lambda: dead_letter_growth(shared.deaths()),
        "dead_letter_trend": lambda: dead_letter_trend(shared.deaths(), minutes, at_us),
        "failed_most": lambda: failed_most(messages, attempts),
        "settings_in_force": lambda: settings_in_force(shared.fates(), shared.periods()),
        "advice": lambda: advice(shared.fates(), shared.periods()),
        "consumers": lambda: consumers(attempts, export.deliveries_by_consumer),
        "releases": lambda: releases(attempts, export.deliveries_by_consumer),
        "due_error": lambda: due_error(in_order(attempts)),
        "faults": lambda: faults(export.faults, shared.weighed(), shared.faults(), minutes, at_us),
        "redrive_yield": lambda: redrive_yield(export.deaths, export.faults, export.redrives, messages, attempts),
        "flow": lambda: flow(messages),
        "journeys": lambda: journeys(messages),
    }


@contextmanager
def _heard(spark: SparkSession, steps: _Steps) -> Iterator[None]:
    """Between two steps, every BEAT_S, how far Spark is with what it does: the first reports on a large input take minutes."""
    from py4j.protocol import Py4JError

    over, driver = Event(), context(spark)
    if driver is None:
        yield
        return
    tracker = driver.statusTracker()

    def listen() -> None:
        with suppress(Py4JError, ConnectionError):  # Java has ended: whoever waits for a result is given the reason
            while not over.wait(BEAT_S):
                stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
                done, tasks = sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
                if tasks:
                    steps.working(f"computing: {done} of {tasks} tasks under way are done")

    thread = Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Steps:
    """Counts what is finished; called from several threads, one append each."""

    def __init__(self, progress: Progress | None, tables: int) -> None:
        self._progress = progress
        # Beside the tables: checking, starting, opening, and what is made of the tables.
        self._total = tables + 4
        self._finished: list[str] = []

    def restart(self, what: str) -> None:
        """The reports begin again: only what came before them stays counted."""
        del self._finished[3:]
        self.working(what)

    def working(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, len(self._finished), self._total)

    def done(self, what: str) -> None:
        self._finished.append(what)
        self.working(what)


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Progress on stderr: a bar where rich is installed and stderr is a terminal, else a line a step."""

    def line(what: str, done: int, total: int) -> None:
        print(f"[{done}/{total}] {what}", file=sys.stderr, flush=True)

    try:
        from rich.console import Console
        from rich.progress import Progress as Bar
    except ImportError:
        yield line
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield line
        return
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("analysing", total=None)
        yield lambda what, done, total: bar.update(task, completed=done, total=total, description=what)


def limit_lines(summary: AnalysisSummary) -> list[str]:
    """Of the limits that do not hold, or of which nothing is known."""
    broken = [f"limit: {each}" for each in summary.limits if each.broken]
    return broken + [f"limit: {text}: there is nothing to judge it by" for text in summary.not_judged]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0 done, 1 failed, 2 usage, 7 a limit of --fail-if does not hold."""
    parser = argparse.ArgumentParser(prog="homing analyze", description="Reports on an export of the journal.")
    parser.add_argument("dump", nargs="+", help="what `homing journal export` made, or directories of it")
    parser.add_argument("--out", required=True, help="the directory for the report")
    parser.add_argument("--master", help="where Spark runs, such as spark://host:7077 or sc://host (default: here)")
    parser.add_argument("--on-damage", choices=("refuse", "skip"), default="refuse", help="what to do about damaged or foreign files")
    parser.add_argument("--store", help="keep what was merged here, and read only new exports the next time")
    parser.add_argument("--memory", help="for Spark's Java here, or for each executor of a cluster, such as 4g")
    parser.add_argument("--only", action="append", default=[], help="only this table, and no page; may be given again")
    parser.add_argument(
        "--fail-if", action="append", default=[], help="such as 'dead_letter_rate(orders) > 1%%': exit code 7; may be given again"
    )
    parser.add_argument("--since", help="only what happened from then on, such as 2026-11-21T08:30, UTC")
    parser.add_argument("--until", help="only what happened before")
    parser.add_argument("--ui", action="store_true", help="Spark's own pages while it runs")
    given = parser.parse_args(arguments)
    try:
        with shown_progress() as progress:
            more = {"ui": given.ui, "on_damage": given.on_damage, "store": given.store, "memory": given.memory}
            more |= {"only": given.only, "fail_if": given.fail_if, "since": given.since, "until": given.until}
            summary = analyze(given.dump, given.out, given.master, progress=progress, **more)
    except AnalyticsError as error:
        print(f"{error.code}: {error.message} {error.fix}", file=sys.stderr)
        return 1
    for each in summary.skipped:
        print(f"left out: {each.path} ({each.code}): {each.message}", file=sys.stderr)
    if summary.archives_only:
        print(f"archives alone: they hold what was removed, and nothing else. {ADD_AN_EXPORT}", file=sys.stderr)
    for line in limit_lines(summary):
        print(line, file=sys.stderr)
    print(summary.report or summary.out)
    return FAILED_LIMIT if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
