"""``python -m benchmarks`` (scripts/bench): alternates all brokers in every round, prints medians, writes JSON and a chart."""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.chart import svg
from benchmarks.figures import Report, number, table
from benchmarks.load import ROOT, LoadError
from benchmarks.measure import machine, sqlite_commits_per_s, syncs_per_s
from benchmarks.peers.activemq import ActiveMQ
from benchmarks.peers.homing import Homing, HomingAllRows, HomingCompiled, HomingCompiledAllRows, HomingTls
from benchmarks.peers.homing_amqp import HomingAmqp, HomingAmqpSingle, HomingCompiledAmqp, HomingCompiledAmqpSingle
from benchmarks.peers.homing_stomp import HomingStomp
from benchmarks.peers.peer import Peer, missing_programs
from benchmarks.peers.rabbitmq import RabbitMQClassic, RabbitMQQuorum, RabbitMQQuorumSingle
from benchmarks.peers.several import HomingCluster, HomingClusterAllRows, RabbitMQThree
from benchmarks.peers.text import Beanstalkd, NatsCore, NatsJetStream, RedisStreams
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.stage import Figures, Stage

PEERS: Final[tuple[type[Peer], ...]] = (
    Homing,
    HomingTls,
    HomingAllRows,
    HomingCompiled,
    HomingCompiledAllRows,
    HomingAmqp,
    HomingAmqpSingle,
    HomingStomp,
    HomingCompiledAmqp,
    HomingCompiledAmqpSingle,
    HomingCluster,
    HomingClusterAllRows,
    RabbitMQQuorum,
    RabbitMQThree,
    RabbitMQQuorumSingle,
    RabbitMQClassic,
    RedisStreams,
    NatsJetStream,
    NatsCore,
    Beanstalkd,
    ActiveMQ,
)


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure Homing and the brokers installed beside it.")
    parser.add_argument("scenarios", nargs="*", metavar="S1", help=f"which scenarios: {', '.join(SCENARIOS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each broker is measured (default 3)")
    parser.add_argument(
        "--peers", default="", help="families or variants, comma-separated, such as homing,rabbitmq-quorum (default: all installed)"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="small counts: a quick look")
    size.add_argument("--smoke", action="store_true", help="a few hundred messages: only whether it works")
    parser.add_argument("--set", action="append", default=[], metavar="S4.count=2000000", help="change a parameter of a scenario")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (default 1024)")
    parser.add_argument("--deadline", type=float, default=300, help="seconds after which a load client gives up (default 300)")
    parser.add_argument("--syncs", action="store_true", help="count sync calls with strace instead of measuring: one round")
    parser.add_argument(
        "--data", type=Path, default=None, help="where brokers keep their data meanwhile (default: the system's temporary folder)"
    )
    parser.add_argument("--out", type=Path, default=None, metavar="DIR", help="where results.json and chart.svg go (default: build/bench)")
    chosen = parser.parse_args(words)
    for key in chosen.scenarios:
        if key not in SCENARIOS:
            parser.error(f"there is no scenario {key}; there are {', '.join(SCENARIOS)}")
    if chosen.rounds < 1 or chosen.body < 16:
        parser.error("--rounds is at least 1, --body at least 16")
    if chosen.syncs and (why := missing_programs(["strace"])):
        parser.error(why)
    return chosen


def chosen_peers(wanted: str) -> list[type[Peer]]:
    """Raises ValueError for a name nobody has."""
    names = [name for name in wanted.split(",") if name]
    known = {name for peer in PEERS for name in (peer.family, peer.name)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"there is no peer {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    chosen = [peer for peer in PEERS if not names or peer.family in names or peer.name in names]
    for peer in list(chosen):
        if why := peer.missing():
            print(f"without {peer.name}: {why}", file=sys.stderr)
            chosen.remove(peer)
    return chosen


def parameters_of(scenario: Scenario, chosen: argparse.Namespace) -> dict[str, int]:
    """Raises ValueError for ``--set`` of a parameter the scenario does not have."""
    size = dict(scenario.smoke if chosen.smoke else scenario.short if chosen.short else scenario.full)
    for text in chosen.set:
        place, _, value = text.partition("=")
        key, _, name = place.partition(".")
        if key == scenario.key:
            if name not in size:
                raise ValueError(f"{key} has no parameter {name!r}; it has {', '.join(size)}")
            size[name] = int(value)
    return size


def measure(peer: type[Peer], scenario: Scenario, size: Mapping[str, int], chosen: argparse.Namespace, syncs: Path | None) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="homing-bench-", dir=chosen.data, ignore_cleanup_errors=True) as folder,
        Stage(peer(Path(folder) / peer.name), chosen.body, chosen.deadline, syncs) as stage,
    ):
        return scenario.run(stage, size)


def baseline(chosen: argparse.Namespace) -> Figures:
    """What the machine can do at this moment."""
    probe_s = 0.02 if chosen.smoke else 0.5
    with tempfile.TemporaryDirectory(prefix="homing-bench-", dir=chosen.data) as folder:
        place = Path(folder)
        return {
            "syncs_per_s": syncs_per_s(place, probe_s),
            "sqlite_commits_per_s": sqlite_commits_per_s(place, probe_s),
            "load": os.getloadavg()[0],
        }


def run(chosen: argparse.Namespace, out: Path) -> Report:
    """Writes what it has to ``out`` after every scenario: all of them take an hour."""
    peers = chosen_peers(chosen.peers)
    keys = chosen.scenarios or list(SCENARIOS)
    sizes = {key: parameters_of(SCENARIOS[key], chosen) for key in keys}
    report = Report(
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine() | {"python": sys.version.split()[0], "revision": _revision()},
        {"rounds": 1 if chosen.syncs else chosen.rounds, "body_bytes": chosen.body, "sizes": sizes},
    )
    for key in keys:
        for number_of_round in range(report.parameters["rounds"]):
            if not chosen.syncs:
                report.baseline.append(baseline(chosen))
            for peer in peers:
                if key in peer.scenarios:
                    _one(report, peer, SCENARIOS[key], sizes[key], chosen, number_of_round)
        out.mkdir(parents=True, exist_ok=True)
        report.write_json(out / "results.json")
        (out / "chart.svg").write_text(svg(report))
    return report


def _one(report: Report, peer: type[Peer], scenario: Scenario, size: Mapping[str, int], chosen: argparse.Namespace, round_: int) -> None:
    """A broker that fails once is told about and not asked again: later rounds would only hide it."""
    result = report.result(scenario.key, peer.name)
    if result.failure:
        return
    try:
        if chosen.syncs:
            report.syncs.setdefault(scenario.key, {})[peer.name] = _count_syncs(peer, scenario, size, chosen)
            return
        figures = measure(peer, scenario, size, chosen, None)
    except LoadError as error:
        result.failure = str(error)
        print(f"{scenario.key} round {round_ + 1} {peer.name}: {error}", file=sys.stderr, flush=True)
        return
    result.rounds.append(figures)
    print(f"{scenario.key} round {round_ + 1} {peer.name}: {number(figures[scenario.main])} {scenario.unit}", file=sys.stderr, flush=True)


def _count_syncs(peer: type[Peer], scenario: Scenario, size: Mapping[str, int], chosen: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="homing-bench-", dir=chosen.data) as folder:
        counts = Path(folder) / "syncs"
        measure(peer, scenario, size, chosen, counts)
        return read_strace_counts(counts.read_text())


def read_strace_counts(text: str) -> dict[str, float]:
    """The calls column of ``strace -c``: system call -> how often."""
    counts: dict[str, float] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].replace(".", "").isdigit() and words[-1] != "total":
            counts[words[-1]] = float(words[3])
    return counts


def _revision() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _end_in_order(number: int, frame: object) -> None:
    """Unwinds the stages, each of which ends its broker and clients: nothing of ours outlives us."""
    sys.exit(128 + number)


def main(words: list[str] | None = None) -> int:
    chosen = arguments(words)
    out: Path = chosen.out or ROOT / "build" / "bench"
    before = signal.signal(signal.SIGTERM, _end_in_order)
    try:
        report = run(chosen, out)
    except ValueError as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    print(table(report))
    print(f"\nwritten: {out / 'results.json'}, {out / 'chart.svg'}")
    return 1 if any(result.failure for result in report.results) else 0


if __name__ == "__main__":
    sys.exit(main())
