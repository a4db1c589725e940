"""What a node tells of its cluster: who lacks what, and when a standby is told of."""

from __future__ import annotations

from homing.broker.http.health import Health
from homing.broker.http.listener import HttpListener
from homing.broker.process.cluster.metrics import cluster_metrics
from homing.broker.process.cluster.view import View
from homing.journal.replication.cell import Cell, Seen
from homing.journal.replication.log import Standing
from tests.unit.test_http_monitor import asked


def found(behind_s: int = 0, seen_s: float = 0.4) -> Cell:
    """A cell that ``a`` leads. ``behind_s``: for how long b has lacked 5 entries; ``seen_s``: since when it is silent."""
    members = (
        Seen("a", "1", "{}", "", 2, 99, 90, 1000, "", None, 0.9),
        Seen("b", "2", "{}", "", 1, 95, 95, 1000 * behind_s, "", None, seen_s),
        Seen("c", "", "{}", "", 0, 10, 10, 0, "", None, 9_000.0),
    )
    return Cell(Standing(4, 100, b"", "a 1"), fail_overs=2, log_bytes=300, members=members)


def view_of(node: str, *, leads: bool = False) -> View:
    view = View("main", node, 1000, lambda: 0.0)
    view.leads = leads
    return view


def test_a_standby_is_told_of_once_until_it_is_behind_no_more() -> None:
    view = view_of("a", leads=True)
    told = []
    for cell in (found(29), found(30), found(31), found(), found(seen_s=29.0), found(seen_s=45.0), found(seen_s=46.0)):
        view.take(cell, 99)
        told += [(each.node, cell.behind(each), cell.behind_s(each)) for each in view.newly_behind()]
    assert told == [("b", 5, 30), ("b", 5, 45.0)]
    assert [(each.node, cell.behind(each), cell.behind_s(each)) for each in view.here] == [("a", 0, 0.0), ("b", 5, 46.0)], (
        "c stopped in order"
    )
    assert view.health() == {"leader": "a", "behind": 0, "behind_ms": 0, "hindrance": None}
    assert view.log_room() == (300, 1000)
    assert view.read_by() == [2, 1], "entries are what these read, also one that is silent for a moment"
    view.take(found(seen_s=60.0), 99)
    assert view.read_by() == [2]


async def test_a_standby_shows_its_figures_to_everybody_as_the_probes_do() -> None:
    view = view_of("b")
    http = HttpListener(Health())
    assert (await asked(http, "/metrics", "192.0.2.1"))[0] == 503
    view.take(found(behind_s=7), 95)
    view.appends.add(0.003)
    http.show_node(lambda: cluster_metrics(view))
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
    health, view = Health(), view_of("a", leads=True)
    health.serves(bool, list)
    assert (health.describe()["state"], health.ready) == ("ready", True)
    health.cluster = view
    assert (health.describe()["state"], health.ready) == ("leading", True)
    view.log_away = True
    assert (health.describe()["state"], health.ready) == ("log-away", False)
