"""Patterns planted into an invented export, each in queues of its own, each with a control that looks alike and is harmless.

``plant(world, name)`` for the pattern, ``plant(world, name, control=True)`` for the control. What a report finds must be the first and
must not be the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from .sample import World, hash_of

_S_US = 1_000_000


def plant(world: World, name: str, *, control: bool = False) -> str:
    """Plants it; returns the queue it is in."""
    queue = f"{name}.{'control' if control else 'planted'}"
    PATTERNS[name](world, queue, control)
    return queue


def _message(
    world: World, queue: str, sent_us: int, failures: list[dict[str, Any]], end_us: int | None, hops: list[dict[str, Any]] | None = None
) -> int:
    """One message with its failed attempts; ``end_us``: when it succeeded, None: it died with its last failure. ``hops``: its whole way,
    where it came from elsewhere.
    """
    message_id = world.new_id()
    key = {"message_id": message_id, "sequence": message_id, "queue": queue, "address": queue}
    if hops is None:
        world.count(queue, sent_us, sent=1)
    for number, failure in enumerate(failures, 1):
        given_us, at_us = failure["given_at"], failure["at"]
        row = {"assigned_at": given_us - 400, "outcome": "listener", "error_class": "TimeoutError", "error_text": "no answer"}
        row |= {"consumer": "worker-1", "connection": "worker-1", "policy": f"p-{queue}", "decision": "redeliver"} | failure
        row |= {"error_type": row["error_class"], "fingerprint": f"{hash_of(row['error_class'], row['error_text']):08x}"}
        world.add("attempts", **key, **row, attempt=number, failed_attempts=number, delivery_count=number)
        world.count(queue, at_us, delivered=1, failed=1)
    died = end_us is None
    settled_us = failures[-1]["at"] if end_us is None else end_us
    ended = {"state": "settled", "outcome": "dead-lettered" if died else "succeeded", "settled_at": settled_us}
    counts = {"attempts": len(failures) + (not died), "failed_attempts": len(failures), "delivery_count": len(failures) + (not died)}
    targets = {"target_queues": [f"DLQ.{queue}"], "reason": "delivery_limit"} if died else {}
    world.add("messages", **key, **ended, **counts, sent_at=sent_us, entered_at=sent_us, **targets)
    world.count(queue, settled_us, **({"dead_lettered": 1} if died else {"delivered": 1, "succeeded": 1}))
    if died:
        world.count(f"DLQ.{queue}", settled_us, moved_in=1)
        told = {"error_class": failures[-1].get("error_class", "TimeoutError"), "error_text": failures[-1].get("error_text", "no answer")}
        hop = {"sequence": message_id, "queue": queue, "address": queue, "reason": "delivery_limit", "at": settled_us}
        lying = key | {"queue": f"DLQ.{queue}", "sequence": world.new_id()}
        world.add("messages", **lying, state="ready", attempts=0, failed_attempts=0, sent_at=sent_us, entered_at=settled_us)
        died_of = {"died_at": settled_us, "reason": "delivery_limit", "attempts": len(failures), "hops": hops or [hop]}
        world.add("dead_letters", **key, **died_of, **told, sent_at=sent_us, target_queues=[f"DLQ.{queue}"], lies_in=[f"DLQ.{queue}"])
    return message_id


def _policy(world: World, queue: str, **values: Any) -> None:
    world.add("policies", policy=f"p-{queue}", from_at=world.start_us, settings_json=json.dumps(values))


def hoarder(world: World, queue: str, control: bool) -> None:
    """One of four consumers lets what it prefetched lie for two minutes and holds it long. Control: all are alike, and all are slow."""
    for number in range(120):
        worker = number % 4
        odd = worker == 3 and not control
        given_us = world.start_us + number * 7 * _S_US + 600 * _S_US
        waited_us = int((120 if odd else 1 if not control else 3) * world.rng.uniform(0.9, 1.1) * _S_US)
        held_us = int((9 if odd or control else 0.2) * world.rng.uniform(0.7, 1.4) * _S_US)
        failure = {"assigned_at": given_us - waited_us, "given_at": given_us, "at": given_us + held_us, "consumer": f"worker-{worker}"}
        _message(world, queue, given_us - waited_us - 1000, [failure], given_us + held_us + 5 * _S_US)


def storm(world: World, queue: str, control: bool) -> None:
    """An outage of four minutes whose failures all come back in one second. Control: the same failures, back at times of their own."""
    herd_us = world.start_us + 1_800 * _S_US
    for number in range(400):
        at_us = herd_us - 300 * _S_US + int(number * 0.6 * _S_US)
        back_us = at_us + int(world.rng.uniform(30, 600) * _S_US) if control or number < 120 else herd_us + world.rng.randrange(_S_US)
        failure = {"given_at": at_us - 20_000, "at": at_us, "due_at": back_us, "delay_ms": (back_us - at_us) // 1000}
        _message(world, queue, at_us - 30_000, [failure], back_us + 50_000)


def late(world: World, queue: str, control: bool) -> None:
    """Retries come four seconds after they are due. Control: within 40 ms."""
    for number in range(60):
        at_us = world.start_us + (number * 11 + 60) * _S_US
        due_us = at_us + 5 * _S_US
        again_us = due_us + (40_000 if control else 4 * _S_US)
        first = {"given_at": at_us - 9_000, "at": at_us, "due_at": due_us, "delay_ms": 5_000}
        second = {"assigned_at": again_us, "given_at": again_us + 1_000, "at": again_us + 10_000, "due_at": again_us + _S_US}
        _message(world, queue, at_us - 20_000, [first, second], again_us + 2 * _S_US)


def poison(world: World, queue: str, control: bool) -> None:
    """One fault told in many ways kills thirty messages. Control: as many deaths, each of a fault of its own."""
    own = "amber basil cedar delta ember fjord grove heron inlet jetty knoll larch maple north ocean pearl quill raven slate thorn".split()
    sides = ("front", "rear", "left", "right", "upper")
    for number in range(30):
        common = f"could not parse the field quantity of order {1000 + number} in the {sides[number % 5]} part: expected a positive number"
        picked = " ".join(own[(number * 7 + step * (number % 3 + 1)) % len(own)] + chr(97 + number % 26) for step in range(6))
        at_us = world.start_us + (number * 13 + 90) * _S_US
        told = {"error_class": "ParseError" if not control else "VariedError", "error_text": picked if control else common}
        failures = [{"given_at": at_us + n * _S_US, "at": at_us + n * _S_US + 9_000, **told} for n in range(3)]
        _message(world, queue, at_us - 10_000, failures, None)


def outage(world: World, queue: str, control: bool) -> None:
    """For ten minutes nothing comes home, and what was sent dies of it; before and after all is well. Control: as many die of one fault,
    also in ten minutes, among others that come home.
    """
    down_us = world.start_us + 5_400 * _S_US
    for minute in range(-60, 70):
        is_down = 0 <= minute < 10
        well = 6 if is_down and control else 0 if is_down else 9
        world.count(queue, down_us + 60 * minute * _S_US, sent=well, delivered=well, succeeded=well, first_try=well)
        for number in range(3 if is_down else 0):
            at_us = down_us + (60 * minute + 20 * number) * _S_US
            told = {"error_class": "ShapeError" if control else "DownError", "error_text": "no such field" if control else "no route to it"}
            failures = [{"given_at": at_us + n * 4 * _S_US, "at": at_us + n * 4 * _S_US + 9_000, **told} for n in range(3)]
            _message(world, queue, at_us - 10_000, failures, None)


def cycle(world: World, queue: str, control: bool) -> None:
    """Messages die into a queue from which they die back. Control: two deaths in a row that lead on."""
    start = f"{queue}.first" if control else queue
    way = [start, f"{queue}.second", queue]
    for number in range(12):
        at_us = world.start_us + (number * 17 + 90) * _S_US
        hops = [{"sequence": world.new_id(), "queue": name, "address": name, "reason": "delivery_limit", "at": at_us} for name in way]
        failure = {"given_at": at_us - 9_000, "at": at_us}
        message_id = _message(world, queue, at_us - 10_000, [failure], None, hops=hops[::-1])
        world.count(start, at_us - 30_000, sent=1)
        for hop, (name, onward) in zip(hops, pairwise(way), strict=False):
            stay = {"message_id": message_id, "sequence": hop["sequence"], "queue": name, "address": start}
            over = {"state": "settled", "outcome": "dead-lettered", "settled_at": at_us - 20_000, "target_queues": [onward]}
            world.add("messages", **stay, **over, attempts=0, failed_attempts=0, sent_at=at_us - 30_000, entered_at=at_us - 30_000)
            world.count(name, at_us - 20_000, dead_lettered=1)
            world.count(onward, at_us - 20_000, moved_in=1)


def tight(world: World, queue: str, control: bool) -> None:
    """Trouble of about a minute meets a policy that gives up after 50 s. Control: the same trouble, and a policy that lasts ten minutes."""
    allowed = 120 if control else 11
    _policy(world, queue, max_delivery_attempts=allowed, redelivery_delay_ms=5_000)
    world.add("settings", from_at=world.start_us, pattern="tight.*", setting="redelivery_delay_ms", value_json="5000")
    for number in range(120):
        at_us = world.start_us + (number * 5 + 60) * _S_US
        passes_us = at_us + int(world.rng.expovariate(1 / 35) * _S_US) + 1
        failures: list[dict[str, Any]] = []
        while at_us < passes_us and len(failures) < allowed:
            failures.append({"given_at": at_us - 9_000, "at": at_us, "due_at": at_us + 5 * _S_US, "delay_ms": 5_000})
            at_us += 5 * _S_US + 12_000
        _message(world, queue, failures[0]["at"] - 10_000, failures, None if len(failures) == allowed else at_us)


def hard(world: World, queue: str, control: bool) -> None:
    """One error class takes most of a minute to pass, and a few of its messages are given up early. Control: it passes like the other."""
    for number in range(60):
        slow = number % 2 == 0
        took_s = world.rng.uniform(40, 60) if slow and not control else world.rng.uniform(2, 4)
        at_us = world.start_us + (number * 9 + 60) * _S_US
        told = {"error_class": "SlowError" if slow else "QuickError"}
        first = {"given_at": at_us - 9_000, "at": at_us, **told}
        given_up = {"given_at": at_us + 9 * _S_US, "at": at_us + 10 * _S_US, **told}
        if slow and number % 10 == 0:
            _message(world, queue, at_us - 10_000, [first, given_up], None)
        else:
            _message(world, queue, at_us - 10_000, [first], at_us + int(took_s * _S_US))


def waste(world: World, queue: str, control: bool) -> None:
    """Forty messages fail six times each and die of it. Control: then they succeed."""
    for number in range(40):
        at_us = world.start_us + (number * 31 + 60) * _S_US
        failures = [{"given_at": at_us + n * _S_US - 9_000, "at": at_us + n * _S_US} for n in range(6)]
        _message(world, queue, at_us - 10_000, failures, at_us + 8 * _S_US if control else None)


def churn(world: World, queue: str, control: bool) -> None:
    """Three minutes in which nearly all the work is retries. Control: the same retries among twenty times as many first tries."""
    for number in range(60):
        at_us = world.start_us + 3_600 * _S_US + number * 500_000
        failures = [{"given_at": at_us + n * 20 * _S_US - 9_000, "at": at_us + n * 20 * _S_US} for n in range(8)]
        _message(world, queue, at_us - 10_000, failures, at_us + 180 * _S_US)
    for minute in range(4 if control else 0):
        world.count(queue, world.start_us + (3_600 + 60 * minute) * _S_US, sent=4_000, delivered=4_000, succeeded=4_000, first_try=4_000)


def growth(world: World, queue: str, control: bool) -> None:
    """Sixty deaths, more and more of them as time goes on. Control: as many, evenly."""
    for number in range(60):
        part = (number + 0.5) / 60
        at_us = world.start_us + int((world.end_us - world.start_us) * (part if control else part**0.5)) - _S_US
        _message(world, queue, at_us - 20_000, [{"given_at": at_us - 9_000, "at": at_us}], None)


def change(world: World, queue: str, control: bool) -> None:
    """Trouble of half a minute meets three attempts, then thirty. Control: three before and after, with another cap."""
    for period, allowed in enumerate((3, 3 if control else 30)):
        name = f"p-{queue}-{period}"
        values = {"max_delivery_attempts": allowed, "redelivery_delay_ms": 5_000, "max_redelivery_delay_ms": 50_000 + period}
        world.add("policies", policy=name, from_at=world.start_us + period * 3_600 * _S_US, settings_json=json.dumps(values))
        for number in range(60):
            at_us = world.start_us + (period * 3_600 + number * 20 + 60) * _S_US
            passes_us = at_us + int(world.rng.expovariate(1 / 30) * _S_US) + 1
            failures: list[dict[str, Any]] = []
            while at_us < passes_us and len(failures) < allowed:
                failures.append({"given_at": at_us - 9_000, "at": at_us, "due_at": at_us + 5 * _S_US, "policy": name})
                at_us += 5 * _S_US + 12_000
            _message(world, queue, failures[0]["at"] - 10_000, failures, None if len(failures) == allowed else at_us)


def greedy(world: World, queue: str, control: bool) -> None:
    """One of four consumers has three quarters of all deliveries. Control: each has a quarter."""
    for worker in range(4):
        served = {"hour": world.start_us, "succeeded": 300 if control else 900 if worker == 0 else 100, "held_ms": 6_000}
        world.add("deliveries_by_consumer", queue=queue, consumer=f"worker-{worker}", **served)
    world.count(queue, world.start_us, sent=1_200, delivered=1_200, succeeded=1_200, first_try=1_200)
    for number in range(12):
        at_us = world.start_us + (number * 31 + 60) * _S_US
        failure = {"given_at": at_us - 9_000, "at": at_us, "consumer": f"worker-{number % 4}"}
        _message(world, queue, at_us - 10_000, [failure], at_us + _S_US)


PATTERNS: dict[str, Callable[[World, str, bool], None]] = {
    "hoarder": hoarder,
    "storm": storm,
    "late": late,
    "poison": poison,
    "outage": outage,
    "cycle": cycle,
    "tight": tight,
    "hard": hard,
    "waste": waste,
    "churn": churn,
    "growth": growth,
    "change": change,
    "greedy": greedy,
}
