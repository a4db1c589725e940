"""PLACE [LIMIT…]: of the exports in PLACE/exports a report in PLACE/report, by Databricks's session.

Fails where a limit does not hold."""

from __future__ import annotations

import sys

from homing.analytics.commands.analyze import analyze, limit_lines

place, *limits = sys.argv[1:]
summary = analyze(f"{place}/exports", f"{place}/report", store=f"{place}/store", fail_if=limits)
print(*limit_lines(summary), summary.report, sep="\n")
if summary.broken:
    raise SystemExit(7)
