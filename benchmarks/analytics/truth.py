"""Workloads really run under two policies, so that a what-if can be checked against what would have happened.

A workload is trouble: when attempts of a message fail. Both runs of it have the same messages, the same trouble and the broker's own
decisions (broker.core.redelivery); they differ in the policy alone. One queue a run, named after workload and seed, so that one
simulation of one export answers for all of them. The recorded run is exported with all history, as ``history: full`` has it, so that
messages that succeed at once can overtake and be overtaken. Peaks and order are counted here by themselves, in plain Python.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.analytics.sample import START_US, World, write_world
from homing.broker.core.redelivery import Failure, decide
from homing.broker.core.settings.address_settings import AddressSettings, AddressSettingsRepository
from homing.broker.core.settings.rules import Action

#: What was in force when the export was made.
RECORDED: tuple[dict[str, Any], ...] = (
    {"redelivery-delay": "2s", "redelivery-delay-multiplier": 2.0, "max-redelivery-delay": "60s", "max-delivery-attempts": 7},
    {"redelivery-delay": "8s", "max-delivery-attempts": 8},
    {"redelivery-delays": ["1s", "10s", "30s", "60s"], "redelivery-collision-avoidance-factor": 0.2, "max-delivery-attempts": 6},
)
#: Messages of one key, on average.
OF_ONE_KEY = 8
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


def poison(rng: random.Random, messages: int) -> list[Trouble]:
    """Some messages never succeed; of the others some fail for a moment, of another error."""
    part = rng.uniform(0.05, 0.5)
    found = []
    for _ in range(messages):
        sent_ms, never = rng.uniform(0, 1_800_000), rng.random() < part
        until_ms = sent_ms + rng.choice([0, 0, 500])

        def fails(at_ms: float, _: random.Random, never: bool = never, until_ms: float = until_ms) -> str | None:
            return "ValidationError" if never else "TimedOut" if at_ms < until_ms else None

        found.append(Trouble(sent_ms, fails))
    return found


def partial(rng: random.Random, messages: int) -> list[Trouble]:
    """Some never succeed, and say the same as those of which each attempt fails with a chance."""
    part, chance = rng.uniform(0.1, 0.5), rng.uniform(0.3, 0.6)
    found = []
    for _ in range(messages):
        never = rng.random() < part

        def fails(_: float, noise: random.Random, never: bool = never) -> str | None:
            return "HandlerError" if never or noise.random() < chance else None

        found.append(Trouble(rng.uniform(0, 1_800_000), fails))
    return found


WORKLOADS: Mapping[str, Callable[[random.Random, int], list[Trouble]]] = {
    "outages": outages,
    "dice": dice,
    "repairs": repairs,
    "poison": poison,
    "partial": partial,
}


@dataclass(frozen=True, slots=True)
class Truth:
    """What came of one workload: of the messages that failed at least once."""

    deliveries: int
    dead_letters: int
    succeeded: int
    time_to_success_ms: float
    peak_per_s: int
    out_of_order: int


@dataclass(frozen=True, slots=True)
class Case:
    queue: str
    workload: str
    recorded: Mapping[str, Any]
    asked: Mapping[str, Any]
    #: What came of it under the recorded policy, as the export must tell, and under the one asked about.
    record: Truth
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
            record = run(queue, troubles, recorded, random.Random(f"recorded {queue}"), world)
            truth = run(queue, troubles, asked, random.Random(f"asked {queue}"), None)
            cases.append(Case(queue, name, recorded, asked, record, truth))
    for (queue, minute), counts in sorted(world.minutes.items()):
        world.add("deliveries_by_minute", queue=queue, minute=minute, **counts)
    write_world(world, out)
    return cases


def settings_of(values: Mapping[str, Any]) -> AddressSettings:
    return AddressSettingsRepository({"#": values}).resolve("any")


def run(queue: str, troubles: list[Trouble], values: Mapping[str, Any], noise: random.Random, world: World | None) -> Truth:
    """The messages in sent order; what the truth speaks of are those that failed at least once, and their neighbours."""
    settings = settings_of(values)
    ordered = sorted(troubles, key=lambda each: each.sent_ms)
    lives = [_live(trouble, settings, noise) for trouble in ordered]
    keys = random.Random(f"keys {queue}").choices(range(max(1, len(ordered) // OF_ONE_KEY)), k=len(ordered))
    deliveries = dead = 0
    took: list[float] = []
    for trouble, (failures, end_ms), key in zip(ordered, lives, keys, strict=True):
        if world is not None:
            _record(world, queue, trouble.sent_ms, f"customer-{key}", failures, end_ms)
        if not failures:
            continue
        deliveries += len(failures) + (end_ms is not None)
        dead += end_ms is None
        if end_ms is not None:
            took.append(end_ms - trouble.sent_ms)
    mean_ms = sum(took) / len(took) if took else 0.0
    return Truth(deliveries, dead, len(took), mean_ms, _peak(lives), _overtaken(lives, keys))


def _peak(lives: list[_Life]) -> int:
    """Most retries that ended in one second; the first attempt of a message is none."""
    ends = [at_ms for failures, end_ms in lives for at_ms in [*(at for at, _, _ in failures), end_ms][1:] if at_ms is not None]
    return max(Counter(int(START_US / 1e6 + at_ms / 1000) for at_ms in ends).values(), default=0)


def _overtaken(lives: list[_Life], keys: list[int]) -> int:
    """Neighbours of one key that both succeeded, the later one first, one of them after a failure."""
    last: dict[int, _Life] = {}
    found = 0
    for life, key in zip(lives, keys, strict=True):
        failures, end_ms = life
        before_failures, before_ms = last.get(key, ([], None))
        if end_ms is not None and before_ms is not None and (failures or before_failures):
            found += end_ms < before_ms
        last[key] = life
    return found


#: (ended, error, delay in ms; None: that was the last)
_Failed = tuple[float, str, int | None]
#: (failures, when it succeeded; None: it died)
_Life = tuple[list[_Failed], float | None]


def _live(trouble: Trouble, settings: AddressSettings, noise: random.Random) -> _Life:
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


def _record(world: World, queue: str, sent_ms: float, message_key: str, failures: list[_Failed], end_ms: float | None) -> None:
    def at_us(ms: float) -> int:
        return START_US + round(ms * 1000)

    message_id, sent_us = world.new_id(), at_us(sent_ms)
    key = {"message_id": message_id, "sequence": message_id, "queue": queue, "address": queue, "message_key": message_key}
    for number, (at_ms, error, delay_ms) in enumerate(failures, 1):
        due_us = None if delay_ms is None else at_us(at_ms) + delay_ms * 1000
        reported = {
            "outcome": "listener",
            "error_class": error,
            "error_type": error,
            "decision": "dead-letter" if due_us is None else "redeliver",
        }
        counted = {"attempt": number, "failed_attempts": number, "delivery_count": number}
        world.add("attempts", **key, **reported, **counted, at=at_us(at_ms), delay_ms=delay_ms, due_at=due_us)
        world.count(queue, at_us(at_ms), delivered=1, failed=1)
    died, failed = end_ms is None, len(failures)
    settled_us = at_us(failures[-1][0] if end_ms is None else end_ms)
    outcome = {"state": "settled", "outcome": "dead-lettered" if died else "succeeded", "reason": "delivery_limit" if died else None}
    counts = {"attempts": failed + (not died), "failed_attempts": failed, "delivery_count": failed + (not died)}
    world.add("messages", **key, **outcome, **counts, sent_at=sent_us, entered_at=sent_us, settled_at=settled_us)
    world.count(queue, sent_us, sent=1)
    world.count(queue, settled_us, **({"dead_lettered": 1} if died else {"delivered": 1, "succeeded": 1, "first_try": int(not failed)}))
    if died:
        world.add("dead_letters", **key, died_at=settled_us, reason="delivery_limit", attempts=failed, error_class=failures[-1][1], hops=[])
