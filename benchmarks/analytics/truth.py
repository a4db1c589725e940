"""Workloads really run under two policies, so that a what-if can be checked against what would have happened.

A workload is trouble: when attempts of a message fail. Both runs of it have the same messages, the same trouble and the broker's own
decisions (broker.core.redelivery); they differ in the policy alone. One queue a run, named after workload and seed, so that one
simulation of one export answers for all of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytics.sample import START_US, World, write_world
from broker.core.address_settings import AddressSettings, read_setting
from broker.core.redelivery import Action, Failure, decide

#: What was in force when the export was made.
RECORDED: tuple[dict[str, Any], ...] = (
    {"redelivery-delay": "2s", "redelivery-delay-multiplier": 2.0, "max-redelivery-delay": "60s", "max-delivery-attempts": 7},
    {"redelivery-delay": "8s", "max-delivery-attempts": 8},
    {"redelivery-delays": ["1s", "10s", "30s", "60s"], "redelivery-collision-avoidance-factor": 0.2, "max-delivery-attempts": 6},
)
#: What is asked about.
ASKED: tuple[dict[str, Any], ...] = (
    {"redelivery-delay": "1s", "redelivery-delay-multiplier": 3.0, "max-redelivery-delay": "2m", "max-delivery-attempts": 8},
    {"redelivery-delay": "4s", "redelivery-back-off": "linear", "max-delivery-attempts": 5},
    {
        "redelivery-delay": "10s",
        "redelivery-delay-multiplier": 2.0,
        "redelivery-back-off": "full-jitter",
        "max-redelivery-delay": "60s",
        "max-delivery-attempts": 6,
    },
    {"redelivery-delays": ["2s", "15s", "60s"], "max-delivery-attempts": 5},
    {"redelivery-delay": "20s", "redelivery-collision-avoidance-factor": 0.3, "max-delivery-attempts": 4},
    {"redelivery-delay": "500ms", "redelivery-delay-multiplier": 2.0, "max-redelivery-delay": "30s", "max-delivery-attempts": 11},
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One message: when it was sent (ms from the start), and whether an attempt at a time fails; None: it does not."""

    sent_ms: float
    fails: Callable[[float, random.Random], str | None]


def outages(rng: random.Random, messages: int) -> list[Trouble]:
    """The service behind the queue is away from time to time; a few messages are poison."""
    windows: list[tuple[float, float]] = []
    at = 0.0
    while len(windows) < 12:
        at += rng.uniform(60_000, 300_000)
        length = rng.lognormvariate(math.log(60_000), 0.7)
        windows.append((at, at + length))
        at += length
    found = []
    for _ in range(messages):
        start, end = rng.choices(windows, [b - a for a, b in windows])[0]
        poison = rng.random() < 0.06

        def fails(at_ms: float, _: random.Random, poison: bool = poison) -> str | None:
            if poison:
                return "ValidationError"
            return "ConnectionRefused" if any(a <= at_ms < b for a, b in windows) else None

        found.append(Trouble(rng.uniform(start, end), fails))
    return found


def dice(rng: random.Random, messages: int) -> list[Trouble]:
    """Each attempt fails with a chance of its own, however long one waited; a few messages are poison."""
    chance = rng.uniform(0.35, 0.65)
    found = []
    for _ in range(messages):
        poison = rng.random() < 0.08

        def fails(at_ms: float, noise: random.Random, poison: bool = poison) -> str | None:
            return "ValidationError" if poison else "RateLimited" if noise.random() < chance else None

        found.append(Trouble(rng.uniform(0, 1_800_000), fails))
    return found


def repairs(rng: random.Random, messages: int) -> list[Trouble]:
    """Each message's trouble passes at a time of its own; poison says the same as the rest."""
    median_ms = rng.uniform(8_000, 40_000)
    found = []
    for _ in range(messages):
        sent_ms = rng.uniform(0, 1_800_000)
        until_ms = math.inf if rng.random() < 0.08 else sent_ms + rng.lognormvariate(math.log(median_ms), 1.2)

        def fails(at_ms: float, _: random.Random, until_ms: float = until_ms) -> str | None:
            return "HandlerError" if at_ms < until_ms else None

        found.append(Trouble(sent_ms, fails))
    return found


WORKLOADS: Mapping[str, Callable[[random.Random, int], list[Trouble]]] = {"outages": outages, "dice": dice, "repairs": repairs}


@dataclass(frozen=True, slots=True)
class Truth:
    """What came of one workload: of the messages that failed at least once."""

    deliveries: int
    dead_letters: int
    succeeded: int
    time_to_success_ms: float


@dataclass(frozen=True, slots=True)
class Case:
    queue: str
    workload: str
    recorded: Mapping[str, Any]
    asked: Mapping[str, Any]
    truth: Truth


def make_cases(out: Path, seeds: range, messages: int) -> list[Case]:
    """Run every workload with every seed under both policies; the recorded runs together are the export ``out``."""
    world = World(random.Random(0), START_US, START_US + 86_400_000_000, "00000000-0000-4000-8000-000000000001")
    cases = []
    for seed in seeds:
        for number, (name, workload) in enumerate(WORKLOADS.items()):
            queue = f"{name}.{seed}"
            chosen = random.Random(f"policies {queue}")
            recorded, asked = RECORDED[(seed + number) % len(RECORDED)], chosen.choice(ASKED)
            troubles = workload(random.Random(f"trouble {queue}"), messages)
            run(queue, troubles, recorded, random.Random(f"recorded {queue}"), world)
            truth = run(queue, troubles, asked, random.Random(f"asked {queue}"), None)
            cases.append(Case(queue, name, recorded, asked, truth))
    for (queue, minute), counts in sorted(world.minutes.items()):
        world.add("deliveries_by_minute", queue=queue, minute=minute, **counts)
    write_world(world, out)
    return cases


def settings_of(values: Mapping[str, Any]) -> AddressSettings:
    return AddressSettings(**dict(read_setting(key, value) for key, value in values.items()))


def run(queue: str, troubles: list[Trouble], values: Mapping[str, Any], noise: random.Random, world: World | None) -> Truth:
    settings = settings_of(values)
    deliveries = dead = 0
    took: list[float] = []
    for trouble in troubles:
        failures, end_ms = _live(trouble, settings, noise)
        if not failures:
            continue
        deliveries += len(failures) + (end_ms is not None)
        dead += end_ms is None
        if end_ms is not None:
            took.append(end_ms - trouble.sent_ms)
        if world is not None:
            _record(world, queue, trouble.sent_ms, failures, end_ms)
    return Truth(deliveries, dead, len(took), sum(took) / len(took) if took else 0.0)


#: (ended, error, delay in ms; None: that was the last)
_Failed = tuple[float, str, int | None]


def _live(trouble: Trouble, settings: AddressSettings, noise: random.Random) -> tuple[list[_Failed], float | None]:
    failures: list[_Failed] = []
    due_ms = trouble.sent_ms
    while True:
        end_ms = due_ms + noise.expovariate(1 / 30) + 2
        error = trouble.fails(end_ms, noise)
        if error is None:
            return failures, end_ms
        decision = decide(settings, None, len(failures) + 1, Failure(), round(end_ms), noise)
        if decision.action is Action.DEAD_LETTER:
            return [*failures, (end_ms, error, None)], None
        failures.append((end_ms, error, decision.delay_ms))
        due_ms = end_ms + decision.delay_ms


def _record(world: World, queue: str, sent_ms: float, failures: list[_Failed], end_ms: float | None) -> None:
    def at_us(ms: float) -> int:
        return START_US + round(ms * 1000)

    message_id, sent_us = world.new_id(), at_us(sent_ms)
    key = {"message_id": message_id, "sequence": message_id, "queue": queue, "address": queue}
    for number, (at_ms, error, delay_ms) in enumerate(failures, 1):
        due_us = None if delay_ms is None else at_us(at_ms) + delay_ms * 1000
        told = {
            "outcome": "listener",
            "error_class": error,
            "error_type": error,
            "decision": "dead-letter" if due_us is None else "redeliver",
        }
        counted = {"attempt": number, "failed_attempts": number, "delivery_count": number}
        world.add("attempts", **key, **told, **counted, at=at_us(at_ms), delay_ms=delay_ms, due_at=due_us)
        world.count(queue, at_us(at_ms), delivered=1, failed=1)
    died, failed = end_ms is None, len(failures)
    settled_us = at_us(failures[-1][0] if end_ms is None else end_ms)
    outcome = {"state": "settled", "outcome": "dead-lettered" if died else "succeeded", "reason": "delivery_limit" if died else None}
    counts = {"attempts": failed + (not died), "failed_attempts": failed, "delivery_count": failed + (not died)}
    world.add("messages", **key, **outcome, **counts, sent_at=sent_us, entered_at=sent_us, settled_at=settled_us)
    world.count(queue, sent_us, sent=1)
    world.count(queue, settled_us, **({"dead_lettered": 1} if died else {"delivered": 1, "succeeded": 1}))
    if died:
        world.add("dead_letters", **key, died_at=settled_us, reason="delivery_limit", attempts=failed, error_class=failures[-1][1], hops=[])
