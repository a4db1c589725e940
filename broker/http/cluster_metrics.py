"""A node's figures of its cluster for Prometheus: of a leader beside the broker's, of a standby all there are."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ..core.cluster import ClusterFigures
from .metrics import histogram

_CELL: Final = ["cell"]
_NODE: Final = ["cell", "node"]


def cluster_metrics(figures: ClusterFigures) -> list[Metric]:
    cell = [figures.cell]

    def one(family: Any, value: float) -> Metric:
        family.add_metric(cell, value)
        found: Metric = family
        return found

    def gauge(name: str, help_text: str, value: float) -> Metric:
        return one(GaugeMetricFamily(f"homing_cluster_{name}", help_text, labels=_CELL), value)

    behind = GaugeMetricFamily("homing_cluster_behind_entries", "Entries of the log that a node lacks.", labels=_NODE)
    behind_s = GaugeMetricFamily("homing_cluster_behind_seconds", "For how long it has lacked any, or was not seen.", labels=_NODE)
    unsynced = GaugeMetricFamily("homing_cluster_unsynced_entries", "Entries that it has, and not on disk for sure.", labels=_NODE)
    for each in figures.nodes:
        for family, value in ((behind, each.behind), (behind_s, each.behind_s), (unsynced, each.unsynced)):
            family.add_metric([figures.cell, each.name], value)
    fail_overs = CounterMetricFamily("homing_cluster_fail_overs", "Leaders that were taken for gone.", labels=_CELL)
    return [
        gauge("leading", "1 while this node leads.", int(figures.leads)),
        gauge("epoch", "Raised by each that begins to lead.", figures.epoch),
        gauge("log_away", "1 while the log does not answer this node.", int(figures.log_away)),
        gauge("log_bytes", "What the log takes.", figures.log_bytes),
        gauge("log_limit_bytes", "At which producers wait.", figures.log_limit),
        one(fail_overs, figures.fail_overs),
        *(behind, behind_s, unsynced),
        histogram("homing_cluster_append_seconds", "How long entries took until they were in the log for sure.", figures.appends),
    ]
