"""The kill loop: brokers are started and killed at random moments while clients work; then all must settle; then the referee looks."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import client
from journal.disk import DATABASE_NAME
from tests.faults.kill_loop.accounting import Account, account
from tests.faults.kill_loop.checker import Kind, Rules, Violation, check, recovered
from tests.faults.kill_loop.clients import Crew
from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN, Snapshot, now_ms, read_logs
from tests.faults.kill_loop.history import History
from tests.faults.kill_loop.moment import Moment, Taken, moment
from tests.faults.kill_loop.processes import Broker, Clients, free_port
from tests.faults.kill_loop.snapshots import take_snapshot
from tests.faults.kill_loop.worker import SETTINGS_DELAY_MS, WORK
from tests.process import ROOT

_PROCESSES: Final = 2
_KILLED_WHILE_STARTING: Final = 0.12
#: How long the clients are at work before and after the export under load.
_AT_WORK_S: Final = 0.7


@dataclass(frozen=True)
class Options:
    """All that a run depends on besides the machine. ``until``: rounds end when such a broken promise was found, and nothing settles."""

    rounds: int = 10
    seed: int = 0
    producers: int = 4
    consumers: int = 4
    rate_per_s: float = 100.0
    tokens: int = 24
    least_ms: int = 50
    most_ms: int = 1500
    module: str = "broker"
    #: Hardly anything fits into memory: every queue is read back from disk a page at a time, and a start reads nothing.
    paged: bool = False
    #: Once faults stop, everything must settle within this time.
    settle_s: float = 30.0
    until: Kind | None = None


@dataclass
class Result:
    options: Options
    violations: list[Violation]
    figures: dict[str, Any] = field(default_factory=dict)
    account: Account | None = None
    #: The export that was taken while all worked.
    moment: Moment | None = None


#: A tenth of what the clients have under way, so that every queue is paged most of the time.
WINDOWS: Final = {"window-messages": 5, "window-bytes": "4KiB", "window-scheduled": 3}


def config_of(rules: Rules, paged: bool = False) -> dict[str, Any]:
    return {
        "address-settings": {
            "#": {"dead-letter-address": "DLA", "auto-create-dead-letter-resources": True},
            "work.#": {"max-delivery-attempts": rules.max_attempts, "redelivery-delay": f"{SETTINGS_DELAY_MS}ms"},
            "tokens.#": {"max-delivery-attempts": -1, "redelivery-delay": "0ms"},
            **{queue: {"persist-delivery-count-before-delivery": True} for queue in rules.counted_before},
        },
        "journal": {"checkpoint-every": "1MiB", "disk-reserve": "1MiB", **({"load-limit": 20} if paged else {})},
        **({"limits": WINDOWS} if paged else {}),
    }


class KillLoop:
    def __init__(self, directory: Path, options: Options, progress: Callable[[str, int], None] = lambda step, done: None) -> None:
        self.options = options
        self.rules = Rules(tokens=options.tokens)
        self._directory = directory
        self._rng = Random(options.seed)
        self._progress = progress
        self._broker = Broker(directory, config_of(self.rules, options.paged), free_port(Random()), options.module)
        self._crews: list[Clients] = []
        self._snapshots: list[Snapshot] = []
        self._violations: list[Violation] = []
        self._kills_at_start = 0
        self._settled_s = 0.0
        self._taken: Taken | None = None

    def run(self) -> Result:
        try:
            self._hire()
            for number in range(1, self.options.rounds + 1):
                self._progress("rounds", number - 1)
                self._round(f"kill {number}")
                if self.options.until is not None and self._found(self.options.until):
                    return self._result(None)
            if self.options.until is not None:
                return self._result(None)
            self._progress("exporting under load", self.options.rounds)
            self._broker.spawn()
            self._broker.wait_until_ready()
            time.sleep(_AT_WORK_S)
            began_ms = now_ms()
            self._taken = Taken(self._export("export_under_load"), began_ms, now_ms())
            time.sleep(_AT_WORK_S)
            self._progress("settling", self.options.rounds)
            self._settle()
            return self._result(self._account())
        finally:
            for crew in self._crews:
                crew.close()
            self._broker.close()

    # -- rounds

    def _hire(self) -> None:
        options = self.options
        for number in range(_PROCESSES):
            share = [options.producers // _PROCESSES, options.consumers // _PROCESSES]
            if number == 0:
                share = [share[0] + options.producers % _PROCESSES, share[1] + options.consumers % _PROCESSES]
            crew = Crew(
                url=self._broker.url,
                seed=self._rng.getrandbits(32),
                log=str(self._directory / f"clients{number}"),
                first=100 * number,
                producers=share[0],
                consumers=share[1],
                rate_per_s=options.rate_per_s,
                tokens=options.tokens if number == 0 else 0,
            )
            self._crews.append(Clients(crew))

    def _round(self, name: str) -> None:
        self._broker.spawn()
        delay_s = self._rng.uniform(self.options.least_ms, self.options.most_ms) / 1000
        if self._rng.random() < _KILLED_WHILE_STARTING:
            self._kills_at_start += 1
        else:
            self._broker.wait_until_ready()
        time.sleep(delay_s)
        self._broker.kill()
        if (self._broker.data / DATABASE_NAME).is_file():
            self._snapshots.append(take_snapshot(self._broker.data, name))

    def _found(self, kind: Kind) -> bool:
        """What the snapshots and the logs so far tell."""
        for crew in self._crews:
            crew.tell("flush")
        for crew in self._crews:
            assert crew.wait_for("flushed", self.options.settle_s), crew.errors()
        return any(violation.kind is kind for violation in check(self._history(), self._snapshots, self.rules))

    # -- the end

    def _settle(self) -> None:
        started = time.monotonic()
        for crew in self._crews:
            crew.tell("finish")
        for crew in self._crews:
            if not crew.wait_for("finished", self.options.settle_s):
                self._stuck(f"producers were not all confirmed within {self.options.settle_s:.0f} s; {crew.errors()}")
        left = asyncio.run(self._wait_until_empty(started + self.options.settle_s))
        self._settled_s = time.monotonic() - started
        if left:
            self._stuck(f"{left} after {self.options.settle_s:.0f} s without a fault")
        for crew in self._crews:
            crew.tell("stop")
        for crew in self._crews:
            code = crew.join()
            if code:
                self._stuck(f"clients ended with exit code {code}: {crew.errors()}")
        code = self._broker.stop()
        if code:
            self._stuck(f"the broker stopped with exit code {code}: {self._broker.log_tail()}")
        self._snapshots.append(take_snapshot(self._broker.data, "the end", whole=True))
        for entry in self._snapshots[-1].entries:
            if entry.queue in WORK:
                self._stuck(f"{entry.key} (message {entry.id}) is in the journal in {entry.queue}, which was shown as empty")

    def _stuck(self, text: str) -> None:
        self._violations.append(Violation(Kind.STUCK, text))

    async def _wait_until_empty(self, end: float) -> dict[str, Any]:
        """What is left in the work queues at ``end`` (monotonic seconds); empty as soon as they are."""
        async with client.connect(self._broker.url) as connection:
            while True:
                queues = [each for each in await connection.call("queues") if each["name"] in WORK and each["messages"]]
                if not queues or time.monotonic() > end:
                    shown = ("messages", "pending", "delivering", "scheduled", "parked", "suspects")
                    return {each["name"]: {name: each[name] for name in shown if each[name]} for each in queues}
                await asyncio.sleep(0.05)

    def _account(self) -> Account:
        return account(self._export("export"), self._history(), self._snapshots, self.rules)

    def _export(self, name: str) -> Path:
        out = self._directory / name
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", "broker", "journal", "export", "--data", str(self._broker.data), "--out", str(out), "--json"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
        return out

    def _history(self) -> History:
        return History(read_logs(sorted(self._directory.glob("clients*.jsonl"))))

    def _result(self, account_: Account | None) -> Result:
        self._progress("checking", self.options.rounds)
        started = now_ms()
        history = self._history()
        violations = [*self._violations, *check(history, self._snapshots, self.rules)]
        if account_ is not None:
            violations += account_.violations()
        moment_ = None if self._taken is None else moment(self._taken, history, self.rules)
        if moment_ is not None:
            violations += moment_.violations()
        figures = figures_of(history, self._snapshots)
        figures |= {
            "kills while starting": self._kills_at_start,
            "settled after (s)": round(self._settled_s, 1),
            "checked in (s)": round((now_ms() - started) / 1000, 1),
        }
        return Result(self.options, violations, figures, account_, moment_)


def figures_of(history: History, snapshots: list[Snapshot]) -> dict[str, Any]:
    lives = list(history.lives.values())
    deliveries = [delivery for life in lives for delivery in life.deliveries]
    acks = [ack for life in lives for ack in life.acks]
    sends = Counter(send.outcome for send in history.sends.values())
    commits = Counter(commit.outcome for commit in history.commits.values())
    return {
        "snapshots": len(snapshots),
        "messages in a snapshot": f"{min((len(each.entries) for each in snapshots), default=0)}"
        f" to {max((len(each.entries) for each in snapshots), default=0)}",
        "sends confirmed": sends[OK],
        "sends unknown": sends[UNKNOWN],
        "of these recovered": recovered(history),
        "sends rolled back": sends[FAIL],
        "deliveries": len(deliveries),
        **{f"deliveries in {mode}": count for mode, count in sorted(Counter(each.mode for each in deliveries).items())},
        "redeliveries": sum(each.count > 1 for each in deliveries),
        "highest delivery count": max((each.count for each in deliveries), default=0),
        "acknowledgements confirmed": sum(ack.outcome == OK for ack in acks),
        "acknowledgements unknown": sum(ack.outcome == UNKNOWN for ack in acks),
        "failures": sum(len(life.failures) for life in lives),
        "dead letters": len({life.id for life in lives if life.queue.startswith("DLQ.")})
        + sum(entry.queue.startswith("DLQ.") for entry in (snapshots[-1].entries if snapshots else [])),
        "transactions committed": commits[OK],
        "transactions rolled back": commits[FAIL],
        "transactions unknown": commits[UNKNOWN],
    }
