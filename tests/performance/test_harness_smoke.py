"""The benchmark harness still works: scenarios against Homing with a few hundred messages. Counts and figures, never speeds."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from tempfile import gettempdir

import pytest

from benchmarks import curves, neighbours
from benchmarks.__main__ import main, read_strace_counts
from benchmarks.figures import Report, table
from benchmarks.load import LoadError
from benchmarks.peers.homing import Homing
from benchmarks.scenarios import SCENARIOS
from benchmarks.stage import Stage
from tests.pauses import tried_again

#: A figure that has to be there besides the main one.
EXPECTED = {
    "S1": {"cpu_s_per_100k", "peak_rss_mib", "written_mib_per_100k"},
    "S2": {"cpu_s_per_100k", "peak_rss_mib"},
    "S3": {"deliver_p99_ms", "confirm_p50_ms", "confirm_p99_ms"},
    "S4": {"fill_rss_mib", "disk_per_payload", "serves_after_s", "drain_per_s", "drain_rss_mib", "disk_after_per_payload"},
    "S5": {"cpu_s_per_100k"},
    "S6": {"confirm_p50_ms", "confirm_p99_ms"},
    "S7": {"early", "late_max_ms", "delayed_per_s", "peak_rss_mib"},
    "S8": {"disk_per_payload"},
    "S9": {"idle_kib"},
    "S10": {"transient_1_per_s", "durable_1_per_s", "durable_50_per_s", "transient_50_mib_per_s"},
    "S11": {"topic_1_per_s", "topic_100_per_s", "headers_per_s", "topic_cpu_s_per_100k", "headers_cpu_s_per_100k"},
}


def test_every_scenario_has_expectations_here() -> None:
    assert set(EXPECTED) == set(SCENARIOS)


# What a scenario counts it checks itself: a message too few, or one left in a queue, fails the run. In the suite a flow and a broker
# that is killed: each scenario starts some five processes.
@pytest.mark.parametrize(
    "keys",
    [("S1", "S4"), pytest.param(("S2", "S3", "S5", "S6", "S7", "S8", "S9", "S10"), marks=[pytest.mark.campaign, pytest.mark.timeout(300)])],
    ids=["some", "the others"],
)
def test_scenarios_give_their_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: tuple[str, ...]) -> None:
    # PostgreSQL runs as a user of its own, who reaches nothing below pytest's folder.
    words = ["--smoke", "--rounds", "1", "--peers", "homing", "--deadline", "20", "--data", gettempdir(), "--out", str(tmp_path / "out")]
    # All of S7's messages have to fail before the first comes back.
    words += ["--set", "S7.lead_s=3"]

    @tried_again
    def run() -> str:
        code = main([*keys, *words])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    printed = run()
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    medians = {each["scenario"]: each["median"] for each in document["results"] if each["peer"] == "homing"}
    assert set(medians) == set(keys)
    for key, median in medians.items():
        assert {SCENARIOS[key].main, *EXPECTED[key]} <= set(median), key
        assert all(value >= 0 for value in median.values()), (key, median)
        assert median[SCENARIOS[key].main] > 0
        assert f"{key}  {SCENARIOS[key].title}" in printed
    assert medians.get("S7", {"early": 0})["early"] == 0
    assert len(document["baseline"]) == len(keys)
    ElementTree.parse(tmp_path / "out" / "chart.svg")


def test_a_load_that_does_not_finish_is_a_failure_not_a_figure(tmp_path: Path) -> None:
    with Stage(Homing(tmp_path / "homing"), deadline_s=1) as stage:
        stage.start("bench")
        with pytest.raises(LoadError, match=r"consume did 0 of 5 within 1 s"):
            stage.run("consume", 5, queue="bench", ack="each")
        with pytest.raises(LoadError, match="holds 0 messages, expected 1"):
            stage.wait_for_depth("bench", 1, timeout_s=0)


def test_a_wrong_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["S1", "--peers", "homing,nobody"]) == 2
    assert main(["S1", "--peers", "homing", "--set", "S1.colour=1"]) == 2
    printed = capsys.readouterr().err
    assert "there is no peer nobody" in printed
    assert "S1 has no parameter 'colour'; it has count" in printed


def test_the_table_shows_medians_spread_ratio_and_failures() -> None:
    report = Report("now", {}, {"rounds": 3})
    report.result("S1", "homing").rounds += [{"msgs_per_s": rate} for rate in (900.0, 300.0, 600.0)]
    report.result("S1", "rabbitmq-quorum").rounds += [{"msgs_per_s": 200.0}]
    report.result("S1", "rabbitmq-classic").failure = "it did not start"
    report.result("S3", "homing").rounds += [{"deliver_p50_ms": 0.25}]
    report.result("S3", "rabbitmq-classic").rounds += [{"deliver_p50_ms": 0.5}]
    text = table(report)
    assert "300 … 900" in text
    assert "homing is 3.00 ×" in text
    assert re.search(r"rabbitmq-classic +it did not start", text)
    assert "homing is 2.00 ×" in text  # half the latency is twice as good


def test_strace_counts_are_read() -> None:
    text = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 92.31    0.012000         480        25           fdatasync
  7.69    0.001000        1000         1         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.013000         500        26         1 total
"""
    assert read_strace_counts(text) == {"fdatasync": 25.0, "fsync": 1.0}


@pytest.mark.campaign
@pytest.mark.timeout(180)
def test_the_curves_run(tmp_path: Path) -> None:
    assert curves.main(["consumers", "--smoke", "--most", "10", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "curves.json").read_text())
    assert [value for value, _ in found["consumers"]] == [1, 10]
    assert all(figures["msgs_per_s"] > 0 for _, figures in found["consumers"])
    assert ElementTree.parse(tmp_path / "curves.svg").getroot().tag.endswith("svg")


@pytest.mark.campaign
def test_neighbours_are_told_of_each_thing_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(neighbours, "QUIET_S", 0.2)
    out = tmp_path / "figures.json"
    words = ["--count", "3000", "--deadline", "20", "--data", str(tmp_path), "--out", str(out)]
    delays = iter(["1", "4", "8"])

    @tried_again
    def run() -> None:
        """With more time each time: what is to come has to be sent before the first is due."""
        assert neighbours.main([*words, "--delay", next(delays)]) == 0

    run()
    found = json.loads(out.read_text())
    assert {name.split()[0] for name in found} == {"nothing", "nothing,", "browse", "redrive", "purge", "drain"}
    assert all(0 < each["p50_ms"] <= each["p99_ms"] <= each["max_ms"] for each in found.values())
    assert "30 pages" in capsys.readouterr().out
