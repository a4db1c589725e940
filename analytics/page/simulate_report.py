"""The page of a what-if: every figure on record beside its 90 % interval under the new policy. Made of the rows of ``what_if`` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..what_if.what_if import FIGURES
from ..words import number, share, span

Row = Mapping[str, Any]
#: Queues shown for each figure, those with most dead letters on record first; all are in the table.
QUEUES = 16
#: figure -> (what the page calls it, whether less is better)
TITLES = {
    "dead_letters": ("Dead letters", True),
    "succeeded": ("Succeeded after failing", False),
    "time_to_success_ms": ("Time from sending to success", True),
    "deliveries": ("Deliveries", True),
    "peak_per_s": ("Most retries in one second", True),
    "out_of_order": ("Out of order", True),
}


def simulate_page(rows: Sequence[Row], *, headline: str, dump: str, policy: str, seed: int) -> str:
    """``rows`` of ``what_if``, the whole (queue null) first; ``policy``: the text of the policy file."""
    from .report import page_environment

    seen = next((row["observed_share"] for row in rows if row["queue"] is None and row["figure"] == "deliveries"), None)
    figures = [found for name in (*TITLES, *(set(FIGURES) - set(TITLES))) if (found := _figure(name, rows)) is not None]
    page = page_environment().get_template("simulate.html.j2")
    return page.render(headline=headline.partition("; ")[0], dump=dump, policy=policy.strip(), seed=seed, seen=seen, figures=figures)


def _figure(name: str, rows: Sequence[Row]) -> dict[str, Any] | None:
    own = [row for row in rows if row["figure"] == name]
    if not own:
        return None
    title, less = TITLES.get(name, (name, True))
    shown = own[: QUEUES + 1]
    if not any(row["recorded"] or row["high"] for row in shown):
        shown = shown[:1]
    parts = [_row(name, row, less) for row in shown]
    return {"name": name, "title": title, "what": FIGURES.get(name, ""), "whole": parts[0], "rows": parts, "verdict": parts[0]["verdict"]}


def _row(name: str, row: Row, less: bool) -> dict[str, Any]:
    """Positions in per cent of the row's own greatest value, since queues differ by orders of magnitude."""
    recorded, low, high, expected = (row[key] for key in ("recorded", "low", "high", "expected"))
    most = 1.08 * max(*(value or 0 for value in (recorded, high, expected)), 1e-9)
    verdict = "unsure"
    if recorded is not None and high is not None and (high < recorded or low > recorded):
        verdict = "better" if (high < recorded) == less else "worse"
    return {
        "queue": row["queue"],
        "recorded": shown(name, recorded),
        "expected": shown(name, expected),
        "between": "cannot be known" if low is None else _between(shown(name, low), shown(name, high)),
        "at": None if recorded is None else 100 * recorded / most,
        "middle": None if expected is None else 100 * expected / most,
        "left": 0.0 if low is None else 100 * low / most,
        "width": 0.0 if low is None or high is None else 100 * (high - low) / most,
        "observed": None if row["observed_share"] is None else share(row["observed_share"], 1),
        "verdict": verdict,
    }


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def shown(figure: str, value: float | None) -> str:
    if value is None:
        return "–"
    return span(value) if figure.endswith("_ms") else number(value)
