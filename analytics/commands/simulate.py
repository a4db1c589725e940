"""The command ``homing simulate``: exports and a policy in, the figures of a what-if out, as a table, Parquet, CSV and a page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..what_if.policy import load_policies
from ..words import number, share, span

#: Rows shown; all of them are in the files.
SHOWN = 200


@dataclass(frozen=True, slots=True)
class Simulation:
    #: What what_if found, the whole first, then the queues with most dead letters on record; at most SHOWN.
    rows: list[dict[str, Any]]
    #: Where all rows were written; None: nowhere.
    out: str | None
    #: The page; None: not asked for.
    report: str | None = None
    #: What of the policy file was not played; None: all was.
    warning: str | None = None


def simulate(
    dump: str | Path | Sequence[str | Path],
    policy: str | Path,
    out: str | Path | None = None,
    master: str | None = None,
    *,
    seed: int = 1,
    replicates: int | None = None,
    on_damage: str = "refuse",
    store: str | Path | None = None,
    memory: str | None = None,
) -> Simulation:
    """Play the failures of ``dump`` again under ``policy`` (a broker.yaml); what it does not name stays as it was in force.

    ``on_damage``, ``store``, ``memory``: as analyze's. Raises AnalyticsError.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    from ..input.export import SHORT_ROWS, SMALL_ROWS
    from ..input.inputs import rows_of
    from ..input.source import Source
    from ..input.store import rows_here
    from ..page.outputs import Output
    from ..page.simulate_report import simulate_page
    from ..page.tables import labelled
    from ..spark.memory import fault
    from ..spark.session import spark_session, suited_to
    from ..what_if.simulate import REPLICATES
    from ..what_if.what_if import what_if

    policies = load_policies(policy)
    dumps = [str(dump)] if isinstance(dump, str | Path) else [str(each) for each in dump]
    with ExitStack() as stack:
        few = rows_of(dumps, on_damage == "skip", 0 if store is None else rows_here(str(store)))
        # Of more rows to play them is long work.
        spark = stack.enter_context(spark_session(master, rows=few if few < SMALL_ROWS else SHORT_ROWS, memory=memory))
        with suited_to(spark, few):
            export = Source(spark, dumps, skip=on_damage == "skip", store=None if store is None else str(store)).open()
        export.check_whole("a simulation")
        stack.enter_context(suited_to(spark, export.manifest.size))
        output = None if out is None else Output(spark, str(out))
        try:
            frame = what_if(
                export.messages,
                export.attempts,
                policies,
                seed=seed,
                replicates=replicates or REPLICATES,
                small=export.manifest.is_small,
                recorded=export.policies,
                queues=export.queues,
                until_us=export.manifest.exported_at_us,
            )
            table = frame.toArrow() if output is None else output.write_table("what_if", frame)
            rows = _most_deaths_first(labelled({"what_if": table}, export.labels())["what_if"])
            if output is not None:
                text, names = Path(policy).read_text(encoding="utf-8"), ", ".join(each.rstrip("/").rsplit("/", 1)[-1] for each in dumps)
                output.write_report(simulate_page(rows, headline=sentence(rows), dump=names, policy=text, seed=seed))
        except (PySparkException, Py4JError, ConnectionError) as error:  # the last: Java has ended
            raise fault(spark, ", ".join(dumps), error) from error
    patterns = ", ".join(f'"{pattern}"' for pattern in policies.with_rules)
    warning = f"the rules of {patterns} were not played: every failure was, as if none of them fitted it" if patterns else None
    return Simulation(rows, None if out is None else str(out), None if output is None else output.report_path, warning)


def _most_deaths_first(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    deaths = {(row["broker_id"], row["queue"]): row["recorded"] or 0 for row in found if row["figure"] == "dead_letters"}

    def rank(row: dict[str, Any]) -> tuple[Any, ...]:
        whose = row["broker_id"], row["queue"]
        return whose[1] is not None, -deaths.get(whose, 0), whose[1] or "", whose[0] or "", row["figure"]

    order = sorted(found, key=rank)
    return order[:SHOWN]


def shown(figure: str, value: float | None) -> str:
    """A figure as people read it."""
    if value is None:
        return "–"
    return span(value) if figure.endswith("_ms") else number(value)


def sentence(rows: Sequence[dict[str, Any]]) -> str:
    """What the whole comes to, in one sentence."""
    whole = {row["figure"]: row for row in rows if row["queue"] is None}
    dead, work = whole["dead_letters"], whole["deliveries"]
    if dead["low"] is None:
        return (
            "What would come of it cannot be known: of most of these errors nobody ever saw a second attempt; "
            f"{number(dead['recorded'] or 0)} messages were dead-lettered on record"
        )
    died, deliveries = (_between(row) for row in (dead, work))
    text = f"{died} messages would have been dead-lettered instead of {number(dead['recorded'] or 0)}, "
    text += f"with {deliveries} deliveries instead of {number(work['recorded'] or 0)}"
    if all(row["low"] == row["high"] == row["recorded"] for row in (dead, work)):
        text = f"{died} messages would have been dead-lettered, with {deliveries} deliveries, as they did"
    seen = work["observed_share"]
    return text if seen is None else f"{text}; {share(seen, 1)} of the outcomes behind this are on record, the rest is modelled"


def _between(row: dict[str, Any]) -> str:
    low, high = number(row["low"]), number(row["high"])
    return low if low == high else f"{low} to {high}"
