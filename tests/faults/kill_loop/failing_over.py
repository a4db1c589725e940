"""``scripts/check-fail-over [--rounds 20] [--seed N] [--nodes 3]``: the kill loop over a cluster: its leaders end.

PostgreSQL is one server without a standby, and stays: what is tried is what the nodes do. Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from homing.journal.replication.postgresql import Access, Member, PostgresLog
from tests.faults.kill_loop.events import OK, now_ms
from tests.faults.kill_loop.loop import KillLoop, Options, Result
from tests.faults.kill_loop.nodes import DEPOSED, Node, Nodes
from tests.faults.kill_loop.snapshots import take_snapshot
from tests.postgresql import Postgres

_MOST_SHOWN: Final = 40
#: How much longer a leader is paused than it takes the next one to lead.
_PAUSED_S: Final = 3.0
#: What was on its way at a fault is no sign of a new leader.
_ON_ITS_WAY_MS: Final = 200.0
FAULTS: Final = ("kill", "pause", "stop")


class FailOvers(KillLoop):
    """``gaps_ms``: from each fault to the first confirm behind it."""

    def __init__(self, directory: Path, options: Options, database: str, nodes: int, fail_over_after_s: float = 3.0) -> None:
        self._database, self._number, self._fail_over_after_s = database, nodes, fail_over_after_s
        self._at_ms: list[tuple[str, float]] = []
        super().__init__(directory, options)
        self.gaps_ms: dict[str, list[float]] = {fault: [] for fault in FAULTS}
        self._chance = Random(options.seed)

    def _make_broker(self, directory: Path, config: dict[str, Any]) -> Nodes:
        asyncio.run(_make_cell(self._database))
        return Nodes(directory, config, self.options.module, self._database, self._number, f"{self._fail_over_after_s:g}s")

    def _round(self, number: int) -> None:
        nodes: Nodes = self._broker
        nodes.spawn()
        self._wait_until_ready()
        time.sleep(self._chance.uniform(self.options.least_ms, self.options.most_ms) / 1000)
        nodes.check_alive()
        fault = FAULTS[(number - 1) % len(FAULTS)]
        self._at_ms.append((fault, now_ms()))
        self._down_since_ms = now_ms()
        paused: Node | None = None
        if fault == "pause":
            paused = nodes.pause()
        elif fault == "kill":
            nodes.kill()
        elif code := nodes.stop_leader():
            self._stuck(f"a leader stopped with exit code {code}: {nodes.log_tail()}")
        # As long as nobody else leads this is all that was confirmed.
        data = nodes.copy(self._directory / f"copy-{number}")
        snapshot = take_snapshot(data, f"{fault} {number}", ours=self.rules.ours, orderly=fault == "stop")
        nodes.follow()
        assert nodes.leads_still(), "another node led before the journal was read: the machine is too busy"
        self._snapshots.append(snapshot)
        self._wait_until_ready()
        if paused is not None:
            time.sleep(_PAUSED_S)
            if (code := paused.go_on()) != DEPOSED:
                self._stuck(f"a leader that was paused ended with exit code {code}: {nodes.log_tail()}")

    def _result(self, account_: Any) -> Result:
        # What an export's moment is, check-faults judges. Here tools have seen ids of what its leader took along, unconfirmed.
        self._taken = None
        confirms = sorted(send.ok_t for send in self._history().sends.values() if send.outcome == OK)
        for fault, at_ms in self._at_ms:
            self.gaps_ms[fault].append(next((t for t in confirms if t > at_ms + _ON_ITS_WAY_MS), at_ms) - at_ms)
        return super()._result(account_)


async def _make_cell(database: str) -> None:
    log = PostgresLog(Access(database, "main"), Member("", "", "{}"))
    try:
        await log.make(secrets.token_hex(16))
    finally:
        log.cut()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/check-fail-over", description="End leaders under working clients and see what the next ones have."
    )
    parser.add_argument("--rounds", type=int, default=20, help="how many leaders end (20)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the same decisions (processes keep their own time, though)")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=None, help="keep logs, journals and exports in this directory; it must not exist")
    arguments = parser.parse_args()
    options = Options(rounds=arguments.rounds, seed=secrets.randbits(32) if arguments.seed is None else arguments.seed)
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="homing-fail-over-"))
    directory.mkdir(parents=True, exist_ok=arguments.keep is None)
    print(f"seed {options.seed}, {options.rounds} rounds, {arguments.nodes} nodes, in {directory}", flush=True)
    postgres = Postgres()
    try:
        loop = FailOvers(directory, options, postgres.start().url, arguments.nodes)
        result = loop.run()
    finally:
        postgres.stop()
    for name, value in result.figures.items():
        print(f"  {name}: {value}")
    for fault, gaps_ms in loop.gaps_ms.items():
        if gaps_ms:
            print(f"{len(gaps_ms)} × {fault}: without a confirm {median(gaps_ms):.0f} ms (half), {max(gaps_ms):.0f} ms (worst)")
    for violation in result.violations[:_MOST_SHOWN]:
        print(f"  {violation}")
    print(f"{len(result.violations)} promises were broken")
    if not result.violations and arguments.keep is None:
        shutil.rmtree(directory)
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
