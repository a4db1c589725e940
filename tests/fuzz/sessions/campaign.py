"""``scripts/fuzz --sessions [SECONDS] [--seed N]``: kill loops whose brokers have hostile guests beside the clients that keep account.

One run after the other, each with a seed and a directory of its own; the first that finds something ends the campaign with exit code 1
and is kept. ``--seed N --runs 1`` repeats its decisions; processes keep their own time, so now and then it takes several.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.faults.kill_loop.checker import Kind, Rules, Violation
from tests.faults.kill_loop.loop import KillLoop, Options, config_of
from tests.faults.kill_loop.worker import QUORUM, TOKENS, WORK
from tests.fuzz.sessions.guests import Guests
from tests.fuzz.sessions.native import ESCAPED

_MOST_SHOWN: Final = 30


@dataclass
class Outcome:
    """What one run came to."""

    seed: int
    violations: list[Violation]
    figures: dict[str, Any]
    guests: Guests


def run_once(directory: Path, seed: int, *, rounds: int, clients: int, most_ms: int = 8000) -> Outcome:
    """One kill loop with guests. Raises AssertionError when a broker ends by itself or does not start."""
    chance = Random(seed)
    work = config_of(Rules())["address-settings"]["work.#"]
    guests = Guests(seed, directory / "guests.log", clients)
    options = Options(
        rounds=rounds,
        seed=seed,
        producers=2,
        consumers=3,
        rate_per_s=60.0,
        least_ms=most_ms // 4,
        most_ms=most_ms,
        paged=chance.random() < 0.5,
        settle_s=30.0,
        config={
            "amqp": {"port": guests.amqp_port},
            # Guests may bind queues to the address of all dead letters; these are the clients' own.
            "address-settings": {
                "work.#": {**work, "dead-letter-address": "DLA.work"},
                "t.#": {"auto-delete-queues-delay": "200ms"},
                "a.#": {"redelivery-delay": "5ms", "max-delivery-attempts": 3},
            },
            # They are there before guests can use up max-queues; so is the one that AMQP declares.
            "queues": {name: {} for name in (*WORK, *TOKENS) if name != QUORUM} | {f"DLQ.{name}": _dead_letters_of(name) for name in WORK},
            "limits": {"max-queues": chance.choice((150, 20_000)), "login-timeout": "2s"},
            "broker": {"memory-limit": "256MiB", "parked-retry": "1s"},
        },
    )
    directory.mkdir(parents=True)
    result = KillLoop(directory, options, beside=guests).run()
    outside = [Violation(Kind.COMPLAINT, f"{path} was written at a guest's wish") for path in directory.rglob(f"*{ESCAPED}*")]
    return Outcome(seed, [*result.violations, *outside], result.figures, guests)


def _dead_letters_of(queue: str) -> dict[str, Any]:
    return {"address": "DLA.work", "routing-type": "multicast", "selector": f"_AMQ_ORIG_ADDRESS = '{queue}'"}


@dataclass
class _Sum:
    runs: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    worst: str = ""

    def add(self, outcome: Outcome, rounds: int) -> None:
        self.runs += 1
        self.figures["brokers killed"] += rounds
        self.figures["things done by guests"] += outcome.guests.sent
        for kind, count in outcome.guests.sessions.items():
            self.figures[f"sessions, {kind}"] += count
        for act, count in outcome.guests.acts.items():
            self.figures[f"acts: {act}"] += count
        for name in ("sends confirmed", "acknowledgements confirmed", "deliveries", "dead letters", "transactions committed"):
            self.figures[name] += outcome.figures[name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz --sessions", description="Whole hostile sessions against brokers that are killed.")
    parser.add_argument("seconds", type=float, nargs="?", default=600.0, help="begin no further run after so long (600)")
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the next ones count up")
    parser.add_argument("--runs", type=int, default=1_000_000, help="at most so many")
    parser.add_argument("--rounds", type=int, default=3, help="brokers that are killed in a run (3)")
    parser.add_argument("--clients", type=int, default=6, help="guests at a time (6)")
    parser.add_argument(
        "--patience-s", type=float, default=15.0, help="a confirm that takes longer than this, but for a kill, is a find (15)"
    )
    parser.add_argument("--keep", type=Path, default=None, help="keep logs, journal and export of all runs in this directory")
    arguments = parser.parse_args()
    first = secrets.randbits(32) if arguments.seed is None else arguments.seed
    place = arguments.keep or Path(tempfile.mkdtemp(prefix="homing-sessions-"))
    sum_, end = _Sum(), time.monotonic() + arguments.seconds
    print(f"seed {first}; logs in {place}", flush=True)
    while sum_.runs < arguments.runs and (not sum_.runs or time.monotonic() < end):
        seed = first + sum_.runs
        directory = place / str(seed)
        began = time.monotonic()
        try:
            outcome = run_once(directory, seed, rounds=arguments.rounds, clients=arguments.clients)
            problems = [str(violation) for violation in outcome.violations]
            slowest_ms = float(outcome.figures["slowest confirm (ms)"])
            if slowest_ms > arguments.patience_s * 1000:
                problems.append(f"frozen: a confirm took {slowest_ms:.0f} ms, and no broker was killed meanwhile")
        except AssertionError as error:
            outcome, problems = None, [str(error)]
        if outcome is None or problems:
            print(f"seed {seed} found something; see {directory}. To repeat: scripts/fuzz --sessions --runs 1 --seed {seed}")
            print("\n".join(problems[:_MOST_SHOWN]))
            return 1
        sum_.add(outcome, arguments.rounds)
        confirmed, memory = (outcome.figures[name] for name in ("confirmed within (ms)", "memory of a broker, at most (MiB)"))
        took = f"{time.monotonic() - began:.0f} s"
        print(
            f"seed {seed}: {took}, {outcome.guests.sent} things done by guests, confirmed within {confirmed} ms, {memory} MiB", flush=True
        )
        if arguments.keep is None:
            shutil.rmtree(directory)
    print(f"{sum_.runs} runs, nothing found")
    for name, count in sorted(sum_.figures.items()):
        print(f"  {name:<32} {count:>10}")
    if arguments.keep is None:
        shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
