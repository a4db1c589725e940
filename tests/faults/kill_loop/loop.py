"""The kill loop: brokers are started and killed at random moments while clients work; then all must settle; then the referee looks."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import homing
from tests import fork_server
from tests.faults.kill_loop.accounting import Account, account
from tests.faults.kill_loop.checker import Kind, Rules, Violation, check, recovered
from tests.faults.kill_loop.clients import Crew
from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN, Snapshot, now_ms, read_logs
from tests.faults.kill_loop.history import History
from tests.faults.kill_loop.moment import Moment, Taken, moment
from tests.faults.kill_loop.processes import Broker, Clients
from tests.faults.kill_loop.publishing import declare
from tests.faults.kill_loop.redriving import REDRIVEN
from tests.faults.kill_loop.snapshots import take_snapshot
from tests.faults.kill_loop.worker import SETTINGS_DELAY_MS, WORK
from tests.process import ROOT, free_port

_PROCESSES: Final = 2
_KILLED_WHILE_STARTING: Final = 0.12
#: What a start takes beside a life.
_PART_OF_A_START: Final = 0.2
#: Of so many brokers one is stopped in order.
_STOPPED_EACH: Final = 4
#: How long the clients are at work before and after the export under load.
_AT_WORK_S: Final = 0.7
#: Confirms take longer around a kill: connections come back in their own time.
_COMES_BACK_MS: Final = 1000.0


class Beside(Protocol):
    """Others who use the broker, from when it is ready until it is killed. What they are not to see, they tell as ``problems``."""

    @property
    def problems(self) -> list[str]: ...

    def begin(self, native_port: int) -> None: ...

    def end(self) -> None: ...


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
    module: str = "homing"
    #: Hardly anything fits into memory: every queue is read back from disk a page at a time, and a start reads nothing.
    paged: bool = False
    #: Once faults stop, everything must settle: no longer than this without any progress.
    settle_s: float = 30.0
    until: Kind | None = None
    #: Laid over the broker's configuration, section by section.
    config: dict[str, Any] = field(default_factory=dict)


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


def _tried(rules: Rules) -> dict[str, Any]:
    return {"max-delivery-attempts": rules.max_attempts, "redelivery-delay": f"{SETTINGS_DELAY_MS}ms"}


def config_of(rules: Rules, paged: bool = False) -> dict[str, Any]:
    return {
        "address-settings": {
            "#": {"redelivery-delay": 0},
            "work.#": _tried(rules),
            # The same by a rule: nobody is to notice.
            "work.1": {"rules": [{"error-type": "Unwell", **_tried(rules)}]},
            "tokens.#": {"max-delivery-attempts": -1, "redelivery-delay": "0ms"},
            **{queue: {"persist-delivery-count-before-delivery": True} for queue in rules.counted_before},
        },
        "amqp": {"port": free_port()},
        "journal": {"checkpoint-every": "1MiB", **({"load-limit": 20} if paged else {})},
        # Of so little memory half is used soon: what is not durable goes on on disk.
        **({"limits": WINDOWS, "broker": {"memory-limit": "2MiB"}} if paged else {}),
    }


class KillLoop:
    def __init__(
        self,
        directory: Path,
        options: Options,
        progress: Callable[[str, int], None] = lambda step, done: None,
        beside: Beside | None = None,
    ) -> None:
        self.options = options
        self._beside = beside
        self.rules = Rules(tokens=options.tokens, redriven=REDRIVEN)
        self._directory = directory
        self._rng = Random(options.seed)
        self._progress = progress
        config = config_of(self.rules, options.paged)
        for section, values in options.config.items():
            config[section] = {**config.get(section, {}), **values}
        self._amqp_port = config["amqp"]["port"]
        self._broker = self._make_broker(directory, config)
        #: From when a broker was killed until the next one was known to be ready: monotonic milliseconds.
        self._outages: list[tuple[float, float]] = []
        self._down_since_ms: float | None = now_ms()
        self._peak_mib = 0.0
        self._crews: list[Clients] = []
        self._snapshots: list[Snapshot] = []
        #: See History.
        self._cuts: list[tuple[float, float]] = []
        self._violations: list[Violation] = []
        self._kills_at_start = 0
        self._settled_s = 0.0
        self._taken: Taken | None = None

    def _make_broker(self, directory: Path, config: dict[str, Any]) -> Any:
        """A Broker, or who does all that one does."""
        return Broker(directory, config, free_port(), self.options.module)

    def run(self) -> Result:
        try:
            self._hire()
            self._begin()
            for number in range(1, self.options.rounds + 1):
                self._progress("rounds", number - 1)
                self._round(number)
                if self.options.until is not None and self._found(self.options.until):
                    return self.result(None)
            if self.options.until is not None:
                return self.result(None)
            self._progress("exporting under load", self.options.rounds)
            self._broker.spawn()
            self._wait_until_ready()
            self._export_under_load()
            self._progress("settling", self.options.rounds)
            self._settle()
            return self.result(self._account())
        finally:
            for crew in self._crews:
                crew.close()
            self._broker.close()

    # -- rounds

    def _begin(self) -> None:
        """What AMQP declares is there before native clients would make it."""
        self._broker.spawn()
        self._wait_until_ready()
        declare(self._amqp_port)
        self._end_first()
        for crew in self._crews:
            assert crew.wait_for("here", self.options.settle_s), crew.errors()
            crew.tell("begin")

    def _end_first(self) -> None:
        """Each round starts one."""
        self._kill()

    def _hire(self) -> None:
        options = self.options
        for number in range(_PROCESSES):
            share = [options.producers // _PROCESSES, options.consumers // _PROCESSES]
            if number == 0:
                share = [share[0] + options.producers % _PROCESSES, share[1] + options.consumers % _PROCESSES]
            crew = Crew(
                url=self._broker.url,
                amqp_port=self._amqp_port,
                seed=self._rng.getrandbits(32),
                log=str(self._directory / f"clients{number}"),
                first=100 * number,
                producers=share[0],
                consumers=share[1],
                rate_per_s=options.rate_per_s,
                tokens=options.tokens if number == 0 else 0,
            )
            self._crews.append(Clients(crew))

    def _round(self, number: int) -> None:
        self._broker.spawn()
        delay_s = self._rng.uniform(self.options.least_ms, self.options.most_ms) / 1000
        orderly = False
        if self._rng.random() < _KILLED_WHILE_STARTING:
            self._kills_at_start += 1
            time.sleep(delay_s * _PART_OF_A_START)
            self._kill()
        else:
            self._wait_until_ready()
            orderly = number % _STOPPED_EACH == 0
            with self._others():
                time.sleep(delay_s)
                self._kill(orderly)
        name = f"{'stop' if orderly else 'kill'} {number}"
        self._snapshots.append(take_snapshot(self._broker.data, name, ours=self.rules.ours, orderly=orderly))

    def _wait_until_ready(self) -> None:
        self._broker.wait_until_ready()
        if self._down_since_ms is not None:
            self._outages.append((self._down_since_ms, now_ms() + _COMES_BACK_MS))
        self._down_since_ms = None

    def _kill(self, orderly: bool = False) -> None:
        self._broker.check_alive()
        self._peak_mib = max(self._peak_mib, peak_mib(self._broker.pid))
        if self._down_since_ms is None:
            self._down_since_ms = now_ms()
        if not orderly:
            self._broker.kill()
        elif code := self._broker.stop():
            self._stuck(f"a broker stopped with exit code {code}: {self._broker.log_tail()}")

    @contextmanager
    def _others(self) -> Iterator[None]:
        if self._beside is None:
            yield
            return
        self._beside.begin(self._broker.port)
        try:
            yield
        finally:
            self._beside.end()

    def _flush(self) -> None:
        """The clients' logs, so far."""
        for crew in self._crews:
            crew.tell("flush")
        for crew in self._crews:
            assert crew.wait_for("flushed", self.options.settle_s), crew.errors()

    def _found(self, kind: Kind) -> bool:
        """What the snapshots and the logs so far tell."""
        self._flush()
        return any(violation.kind is kind for violation in check(self._history(), self._snapshots, self.rules))

    def _export_under_load(self) -> None:
        with self._others():
            time.sleep(_AT_WORK_S)
            began_ms = now_ms()
            self._taken = Taken(self._export("export_under_load", self._broker.data), began_ms, now_ms())
            time.sleep(_AT_WORK_S)
            self._broker.check_alive()

    # -- the end

    def _settle(self) -> None:
        started = time.monotonic()
        for crew in self._crews:
            crew.tell("finish")
        for crew in self._crews:
            if not crew.wait_for("finished", self.options.settle_s):
                self._stuck(f"producers were not all confirmed within {self.options.settle_s:.0f} s; {crew.errors()}")
        left = asyncio.run(self._wait_until_empty())
        asyncio.run(self._look_at_redrives())
        self._settled_s = time.monotonic() - started
        if left:
            self._stuck(f"{left}, and for {self.options.settle_s:.0f} s without a fault they did not become fewer")
        for crew in self._crews:
            crew.tell("stop")
        for crew in self._crews:
            code = crew.join()
            if code:
                self._stuck(f"clients ended with exit code {code}: {crew.errors()}")
        code = self._broker.stop()
        if code:
            self._stuck(f"the broker stopped with exit code {code}: {self._broker.log_tail()}")
        self._snapshots.append(take_snapshot(self._broker.data, "the end", whole=True, ours=self.rules.ours, orderly=True))
        for entry in self._snapshots[-1].entries:
            if entry.queue in WORK:
                self._stuck(f"{entry.key} (message {entry.id}) is in the journal in {entry.queue}, which was shown as empty")

    def _stuck(self, text: str) -> None:
        self._violations.append(Violation(Kind.STUCK, text))

    async def _wait_until_empty(self) -> dict[str, Any]:
        """What is left in the work queues once that has not become less for so long; empty as soon as they are. How fast they get
        empty is the machine's."""
        fewest, end = math.inf, 0.0
        async with homing.connect(self._broker.url) as connection:
            while True:
                queues = [each for each in await connection.call("queues") if each["name"] in WORK and each["messages"]]
                count = sum(each["messages"] for each in queues)
                if count < fewest:
                    fewest, end = count, time.monotonic() + self.options.settle_s
                if not queues or time.monotonic() > end:
                    shown = ("messages", "pending", "delivering", "scheduled", "on_hold", "parked", "suspects")
                    return {each["name"]: {name: each[name] for name in shown if each[name]} for each in queues}
                await asyncio.sleep(0.05)

    async def _look_at_redrives(self) -> None:
        """What each sent has come to an end, now that the work queues are empty."""
        async with homing.connect(self._broker.url) as connection:
            for job in await connection.call("redrives"):
                if job["ended_ms"] is None or job["waiting"]:
                    self._stuck(f"a redrive does not know what became of what it sent: {job}")

    def _account(self) -> Account:
        return account(self._export("export", self.whole()), self._history(), self._snapshots, self.rules)

    def whole(self) -> Path:
        """The journal that has all that was, once all have stopped."""
        data: Path = self._broker.data
        return data

    def _export(self, name: str, data: Path) -> Path:
        out = self._directory / name
        shutil.rmtree(out, ignore_errors=True)
        words = ["journal", "export", "--data", str(data), "--out", str(out), "--json"]
        fork_server.run(words, ROOT, {**os.environ}, None, 120, self._directory).check_returncode()
        return out

    def _history(self) -> History:
        return History(read_logs(sorted(self._directory.glob("clients*.jsonl"))), self._snapshots, self._cuts)

    def result(self, account_: Account | None) -> Result:
        self._progress("checking", self.options.rounds)
        started = now_ms()
        history = self._history()
        self._violations += [Violation(Kind.COMPLAINT, line) for line in self._broker.complaints()]
        if self._beside is not None:
            self._violations += [Violation(Kind.COMPLAINT, problem) for problem in self._beside.problems]
        violations = [*self._violations, *check(history, self._snapshots, self.rules)]
        if account_ is not None:
            violations += account_.violations()
        moment_ = None if self._taken is None else moment(self._taken, history, self.rules)
        if moment_ is not None:
            violations += moment_.violations()
        figures = figures_of(history, self._snapshots)
        figures |= {
            "confirmed within (ms)": _percentiles(waits_ms := latencies_ms(history, self._outages)),
            "slowest confirm (ms)": round(max(waits_ms, default=0.0)),
            "memory of a broker, at most (MiB)": round(self._peak_mib),
            "kills while starting": self._kills_at_start,
            "settled after (s)": round(self._settled_s, 1),
            "checked in (s)": round((now_ms() - started) / 1000, 1),
        }
        return Result(self.options, violations, figures, account_, moment_)


def peak_mib(pid: int) -> float:
    """The most resident memory that a process ever had; 0 where nobody tells."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def latencies_ms(history: History, outages: Sequence[tuple[float, float]]) -> list[float]:
    """How long each confirm took that no outage fell into, in ascending order."""
    waits = [
        send.ok_t - send.t
        for send in history.sends.values()
        if send.outcome == OK
        and send.tx is None
        and send.tries == 1
        and not any(send.t < until and send.ok_t > since for since, until in outages)
    ]
    return sorted(waits)


def _percentiles(waits_ms: Sequence[float]) -> str:
    if not waits_ms:
        return "-"
    half, most = (waits_ms[int(len(waits_ms) * part)] for part in (0.5, 0.99))
    return f"{half:.0f} (half), {most:.0f} (99 %), {waits_ms[-1]:.0f} (all {len(waits_ms)})"


def figures_of(history: History, snapshots: list[Snapshot]) -> dict[str, Any]:
    lives = list(history.lives.values())
    deliveries = [delivery for life in lives for delivery in life.deliveries]
    acks = [ack for life in lives for ack in life.acks]
    sends = Counter(send.outcome for send in history.sends.values() if send.of is None)
    commits = Counter(commit.outcome for tx, commit in history.commits.items() if not tx.startswith("editor"))
    return {
        "snapshots": len(snapshots),
        "messages in a snapshot": f"{min((len(each.entries) for each in snapshots), default=0)}"
        f" to {max((len(each.entries) for each in snapshots), default=0)}",
        "sends confirmed": sends[OK],
        "of these not durable": sum(send.outcome == OK and not send.durable for send in history.sends.values()),
        "stops in order": sum(each.orderly for each in snapshots),
        "spilled at kills": sum(each.spilled for each in snapshots),
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
        "edits": sum(send.of is not None and send.outcome == OK for send in history.sends.values()),
        "retries by hand": sum(retry.outcome == OK for retry in history.retries.values()),
    }
