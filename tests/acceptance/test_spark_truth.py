"""The report is true: drawn workloads run through real brokers with real clients, whose own account every figure must equal."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.report_and_truth.workload import workload
from homing.analytics.commands.analyze import analyze
from homing.analytics.commands.simulate import simulate
from homing.analytics.input.schema import MANIFEST_NAME
from homing.journal.export.export import export
from tests.truth.bounds import HOUR_US, MINUTE_US
from tests.truth.compared import Figure, compared
from tests.truth.expected import TABLES
from tests.truth.play import Play
from tests.truth.trouble import QUEUE, dice, outage, partial, poison, repairs, run
from tests.truth.workload import Consume, Pause, QueueSettings, Quota, Send, Workload, drawn, telling

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def begins_us() -> list[int]:
    """How far from now the three times of a workload that takes hours begin: a quarter past an hour, for of a count on the hour nobody
    knows whether it is of a minute or of the hour.
    """
    past_hour_us = (time.time_ns() // 1000 - HOUR_US // 4) % HOUR_US
    return [-12 * HOUR_US - past_hour_us, -5 * HOUR_US - past_hour_us, 0]


async def play(workloads: list[Workload], directory: Path) -> list[Play]:
    """Two at a time, since starts and ends wait for a process."""
    begins = begins_us()
    plays = [Play(workload, directory / f"broker-{number}", begins) for number, workload in enumerate(workloads)]
    turn = asyncio.Semaphore(2)

    async def one(each: Play) -> None:
        async with turn, asyncio.timeout(180):
            try:
                await each.run()
            finally:
                each.server.close()

    async with asyncio.TaskGroup() as group:
        for each in plays:
            group.create_task(one(each))
    return plays


def differing(workloads: list[Workload], directory: Path, of_part: Sequence[str] = ()) -> list[str]:
    """What one report on all their brokers, and a what-if about the policies in force, tell otherwise than their clients know.

    ``of_part``: which tables are also asked of a part of the time; empty: all.
    """
    plays = asyncio.run(play(workloads, directory))
    accounts, dumps = [each.account for each in plays], [[directory / "exports" / each.server.directory.name] for each in plays]
    for number, (each, of_one) in enumerate(zip(plays, dumps, strict=True)):
        export(each.server.data, of_one[0], since=each.exports[-1] if each.exports and number % 2 else None)
        of_one += each.exports
    sources = [*(dump for of_one in dumps for dump in of_one), *(archive for each in plays for archive in each.archives)]
    report = directory / "report"
    queues = sorted({queue for each in workloads for queue in each.queues})
    limits = analyze(sources, report, fail_if=[f"dead_letter_rate({queue}) > 1" for queue in queues]).limits
    (directory / "in_force.yaml").write_text('{"#": {}}')
    simulate(sources, directory / "in_force.yaml", report / "simulated", replicates=2)
    (report / "simulated" / "parquet" / "what_if").rename(report / "parquet" / "what_if")
    assert {each.name for each in (report / "parquet").iterdir()} == TABLES.keys(), "every table is held against the account"
    figures = compared(accounts, dumps, report)
    figures += [dead_letter_rate(queue, figures, judged.value) for queue, judged in zip(queues, limits, strict=True)]
    # Of what takes hours, the second of its three times.
    since_us, until_us = ((time.time_ns() // 1000 - hours * HOUR_US) // MINUTE_US * MINUTE_US for hours in (8, 2))
    since, until = (datetime.fromtimestamp(at_us / 1e6, UTC).isoformat() for at_us in (since_us, until_us))
    analyze(sources, directory / "part", only=of_part, since=since, until=until)
    figures += compared(accounts, dumps, directory / "part", since_us, until_us)
    found: dict[int | None, list[str]] = defaultdict(list)
    for figure in figures:
        if not figure.agrees:
            found[figure.broker].append(str(figure))
    return [line for number, wrong in found.items() for line in ("all" if number is None else str(workloads[number]), *wrong)]


def dead_letter_rate(queue: str, figures: list[Figure], value: float | None) -> Figure:
    """Of the queues of that name in all brokers together, as a limit has it."""
    known: Counter[str] = Counter()
    for each in figures:
        if each.table == "overview" and each.row == (queue,) and each.name in ("died", "came_home", "given_up"):
            known[each.name] += each.true
    over = known["came_home"] + known["given_up"]
    return Figure(None, "limits", (queue,), "dead_letter_rate", known["died"] / over if over else None, value)


#: An earlier export knows of each message that was removed what the latest one only counts, by the hour.
COUNTED_BY_THE_HOUR = Workload(
    {"orders": QueueSettings(limit=2, delay_ms=5, records=2, dead="keep")},
    (
        *(Send("orders", ("TT",) * 7), Consume("orders"), Quota("orders", 2, archive=False)),
        *(Pause(kill=True, export=True), Pause(kill=False, export=False)),
        *(Send("orders", ("T",)), Consume("orders")),
    ),
    history_hours=8,
)


#: One table of each that is cut in its own way: counts, deaths, messages, attempts.
CUT = ("overview", "dead_letters", "survival", "failed_most", "retry_load")


def test_five_workloads(tmp_path: Path) -> None:
    """Of eighteen that are drawn those with most kinds of things in them, one that was told wrong, and the one of the example, which has
    all that goes wrong.
    """
    chosen = drawn(18, 24)
    both, durable = ([each for each in chosen if each.both_kinds is kinds] for kinds in (True, False))
    workloads = [*telling(durable, 2), *telling(both, 1), COUNTED_BY_THE_HOUR, workload(80)]
    found = differing(workloads, tmp_path, CUT)
    assert not found, "\n".join(found)
    page = (tmp_path / "report" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "2 messages that were not durable were lost at a crash, or at a stop that did not keep them." in page
    assert re.search(r"messages sent, to [^<]*; \d+ of them not durable", page)
    assert re.search(r"<small>\d+ not durable</small></td>", page), "and of each queue"


@pytest.mark.campaign
def test_twenty_workloads(tmp_path: Path) -> None:
    found = differing([*drawn(18, 24), COUNTED_BY_THE_HOUR, workload(80)], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.campaign
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("number", [100, 101])
def test_two_hundred_workloads(number: int, tmp_path: Path) -> None:
    found = differing(drawn(100, number), tmp_path)
    assert not found, "\n".join(found)


#: The same trouble really run under both, so that either run tells what a what-if about the other should have said. Delays are long beside
#: what a busy machine takes for a delivery.
A = {"max-delivery-attempts": 5, "redelivery-delay": "600ms", "redelivery-delay-multiplier": 2}
B = {"max-delivery-attempts": 8, "redelivery-delay": "1200ms"}


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_ten_runs_under_another_policy(tmp_path: Path) -> None:
    """Nine of ten truths lie where the what-if says."""
    came: dict[str, dict[str, dict[str, float]]] = {"A": {}, "B": {}}
    exports = []
    for name, policy in (("A", A), ("B", B)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({QUEUE: policy}))
        for seed, trouble in enumerate((outage, dice, repairs, poison, partial)):
            server, account = asyncio.run(run(tmp_path / f"{trouble.__name__} {name}", policy, trouble(seed)))
            server.close()
            exports.append((server.data, tmp_path / name / trouble.__name__))
            came[name][trouble.__name__] = account.figures
    # Nothing is tried after an export was taken: by then the other policy's last attempts would be over, too.
    time.sleep(5)
    for data, dump in exports:
        export(data, dump)
    brokers = {broker_of(dump): dump.name for _, dump in exports}
    found = []
    for recorded, asked in (("A", "B"), ("B", "A")):
        for row in simulate(tmp_path / recorded, tmp_path / f"{asked}.yaml").rows:
            trouble_name, figure = brokers.get(row["broker_id"], ""), row["figure"]
            if trouble_name and figure in came[asked][trouble_name]:
                was, truth = (came[name][trouble_name][figure] for name in (recorded, asked))
                assert row["recorded"] == pytest.approx(was, rel=0.05), row
                reported = (
                    f"{trouble_name} {recorded}→{asked} {figure}: {truth:.0f} in {row['low']:.0f} to {row['high']:.0f}, was {was:.0f}"
                )
                found.append((row["low"] <= truth <= row["high"], reported))
    print(*(("held  " if held else "MISSED") + f" {reported}" for held, reported in found), sep="\n")
    assert len(found) == 40
    assert sum(held for held, _ in found) >= 0.9 * len(found), found


def broker_of(dump: Path) -> str:
    return str(json.loads((dump / MANIFEST_NAME).read_text())["broker_id"])
