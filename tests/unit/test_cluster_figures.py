"""What a node tells of its cluster: who lacks what, and when a standby is told of."""

from __future__ import annotations

from typing import Any

from homing.broker.core.cluster import ClusterFigures, Node
from homing.broker.http.cluster_metrics import cluster_metrics
from homing.broker.http.health import Health
from homing.broker.http.listener import HttpListener
from tests.unit.test_http_monitor import asked


def found(**seconds: float) -> dict[str, Any]:
    """A cell that ``a`` leads. ``behind_s``: for how long b has lacked 5 entries; ``seen_s``: since when it is silent."""
    other = {"behind_ms": 1000 * seconds.get("behind_s", 0.0), "seen_s": seconds.get("seen_s", 0.4)}
    members = [
        {"node": "a", "process": "1", "applied": 99, "durable": 90, "behind_ms": 1000, "seen_s": 0.9, "reads": 2},
        {"node": "b", "process": "2", "applied": 95, "durable": 95, "reads": 1, **other},
        {"node": "c", "process": "", "applied": 10, "durable": 10, "behind_ms": 0, "seen_s": 9_000.0, "reads": 0},
    ]
    return {"epoch": 4, "last": 100, "leader": "a 1", "log_bytes": 300, "fail_overs": 2, "members": members}


def test_a_standby_is_told_of_once_until_it_is_behind_no_more() -> None:
    figures = ClusterFigures("main", "a", 1000)
    told = []
    for seconds in ({"behind_s": 29}, {"behind_s": 30}, {"behind_s": 31}, {}, {"seen_s": 29.0}, {"seen_s": 45.0}, {"seen_s": 46.0}):
        figures.take(found(**seconds), leads=True)
        told += [(each.name, each.behind, each.behind_s) for each in figures.newly_behind()]
    assert told == [("b", 5, 30), ("b", 5, 45.0)]
    assert figures.nodes == [Node("a", 0, 0.0, 9), Node("b", 5, 46.0, 0)], "a leader lacks nothing, and c stopped in order"
    assert figures.log_room() == (300, 1000)
    assert figures.read == [2, 1], "entries are what these read, also one that is silent for a moment"
    figures.take(found(seen_s=60.0), leads=True)
    assert figures.read == [2]


async def test_a_standby_shows_its_figures_to_everybody_as_the_probes_do() -> None:
    figures = ClusterFigures("main", "b", 1000)
    http = HttpListener(Health())
    assert (await asked(http, "/metrics", "192.0.2.1"))[0] == 503
    figures.take(found(behind_s=7), leads=False)
    figures.appends.add(0.003)
    http.show_node(lambda: cluster_metrics(figures))
    status, _, said = await asked(http, "/metrics", "192.0.2.1")
    assert status == 200
    for line in (
        'homing_cluster_leading{cell="main"} 0.0',
        'homing_cluster_epoch{cell="main"} 4.0',
        'homing_cluster_fail_overs_total{cell="main"} 2.0',
        'homing_cluster_log_bytes{cell="main"} 300.0',
        'homing_cluster_behind_entries{cell="main",node="b"} 5.0',
        'homing_cluster_behind_seconds{cell="main",node="b"} 7.0',
        'homing_cluster_unsynced_entries{cell="main",node="a"} 9.0',
        'homing_cluster_append_seconds_bucket{le="0.0025"} 0.0',
        'homing_cluster_append_seconds_bucket{le="0.005"} 1.0',
    ):
        assert line in said.splitlines()
    assert "process_cpu" not in said


def test_a_leader_and_a_node_whose_log_is_away_are_named() -> None:
    health = Health()
    health.serves(bool, list)
    assert (health.describe()["state"], health.ready) == ("ready", True)
    health.cluster = {"leader": "a", "behind": 0, "behind_ms": 0, "hindrance": None}
    assert (health.describe()["state"], health.ready) == ("leading", True)
    health.log_away = True
    assert (health.describe()["state"], health.ready) == ("log-away", False)
