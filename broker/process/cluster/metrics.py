"""A node's figures of its cluster for Prometheus: of a leader beside the broker's, of a standby all there are."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ...http.metrics import histogram
from .view import View

_CELL: Final = ["cell"]
_NODE: Final = ["cell", "node"]


def cluster_metrics(view: View) -> list[Metric]:
    cell = [view.name]

    def one(family: Any, value: float) -> Metric:
        family.add_metric(cell, value)
        found: Metric = family
        return found

    def gauge(name: str, help_text: str, value: float) -> Metric:
        return one(GaugeMetricFamily(f"homing_cluster_{name}", help_text, labels=_CELL), value)

    behind = GaugeMetricFamily("homing_cluster_behind_entries", "Entries of the log that a node lacks.", labels=_NODE)
    behind_s = GaugeMetricFamily("homing_cluster_behind_seconds", "For how long it has lacked any, or was not seen.", labels=_NODE)
    unsynced = GaugeMetricFamily("homing_cluster_unsynced_entries", "Entries that it has, and not on disk for sure.", labels=_NODE)
    for each in view.distances():
        for family, value in ((behind, each.behind), (behind_s, each.behind_s), (unsynced, each.unsynced)):
            family.add_metric([view.name, each.node], value)
    fail_overs = CounterMetricFamily("homing_cluster_fail_overs", "Leaders that were taken for gone.", labels=_CELL)
    return [
        gauge("leading", "1 while this node leads.", int(view.leads)),
        gauge("epoch", "Raised by each that begins to lead.", view.cell.standing.epoch),
        gauge("log_away", "1 while the log does not answer this node.", int(view.log_away)),
        gauge("log_bytes", "What the log takes.", view.cell.log_bytes),
        gauge("log_limit_bytes", "At which producers wait.", view.log_limit),
        one(fail_overs, view.cell.fail_overs),
        *(behind, behind_s, unsynced),
        histogram("homing_cluster_append_seconds", "How long entries took until they were in the log for sure.", view.appends),
    ]
