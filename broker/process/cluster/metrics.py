"""A node's figures of its cluster for Prometheus: of a leader beside the broker's, of a standby all there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from ...http.metrics import histogram
from .view import View


def cluster_metrics(view: View) -> list[Metric]:
    cell = view.cell

    def gauge(name: str, help_text: str, value: float, kind: Any = GaugeMetricFamily) -> Metric:
        found = kind(f"homing_cluster_{name}", help_text, labels=["cell"])
        found.add_metric([view.name], value)
        return cast(Metric, found)

    def of_nodes(name: str, help_text: str, values: Mapping[str, float]) -> Metric:
        found = GaugeMetricFamily(f"homing_cluster_{name}", help_text, labels=["cell", "node"])
        for node, value in values.items():
            found.add_metric([view.name, node], value)
        return found

    unsynced = {each.node: max(0, each.applied - each.durable) for each in view.here}
    return [
        gauge("leading", "1 while this node leads.", int(view.leads)),
        gauge("epoch", "Raised by each that begins to lead.", cell.standing.epoch),
        gauge("log_away", "1 while the log does not answer this node.", int(view.log_away)),
        gauge("log_bytes", "What the log takes.", cell.log_bytes),
        gauge("log_limit_bytes", "At which producers wait.", view.log_limit),
        gauge("fail_overs", "Leaders that were taken for gone.", cell.fail_overs, CounterMetricFamily),
        of_nodes("behind_entries", "Entries of the log that a node lacks.", {each.node: cell.behind(each) for each in view.here}),
        of_nodes(
            "behind_seconds", "For how long it has lacked any, or was not seen.", {each.node: cell.behind_s(each) for each in view.here}
        ),
        of_nodes("unsynced_entries", "Entries that it has, and not on disk for sure.", unsynced),
        histogram("homing_cluster_append_seconds", "How long entries took until they were in the log for sure.", view.appends),
    ]
