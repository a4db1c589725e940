"""A seeded export of an invented broker: ordinary traffic, an outage, poison, a consumer that crashes, redriven dead letters.

For tests, examples and the documentation. The same arguments give the same rows. Needs pyarrow.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from homing.analytics.input.schema import MANIFEST_NAME, SCHEMA_VERSION, TABLES

Row = dict[str, Any]
_MINUTE_US = 60_000_000
_S_US = 1_000_000
#: 2026-03-02 08:00 UTC; a Monday.
START_US = 1_772_438_400_000_000


@dataclass(frozen=True, slots=True)
class Traffic:
    """One queue of the invented broker."""

    queue: str
    #: Its part of all messages.
    weight: float
    #: Chance that an attempt fails by itself, and what it then says.
    failing: float
    errors: tuple[tuple[str, str], ...]
    #: Part of the messages that can never succeed, and what they say.
    poison: float
    poison_error: tuple[str, str]
    delay_ms: int
    multiplier: float
    max_attempts: int
    #: (from, to) as parts of the whole time: nothing succeeds then.
    outage: tuple[float, float] | None = None


QUEUES = (
    Traffic(
        queue="orders.new",
        weight=0.42,
        failing=0.015,
        errors=(("TimeoutError", "warehouse did not answer within 5 s"), ("connection-lost", "")),
        poison=0.004,
        poison_error=("ValidationError", "field 'quantity' must be positive, not -1"),
        delay_ms=2_000,
        multiplier=2.0,
        max_attempts=8,
    ),
    Traffic(
        queue="payments.capture",
        weight=0.23,
        failing=0.03,
        errors=(("GatewayTimeout", "504 from acquirer"), ("RateLimited", "429, retry after 10 s")),
        poison=0.012,
        poison_error=("CardDeclined", "do_not_honor"),
        delay_ms=5_000,
        multiplier=2.0,
        max_attempts=6,
        outage=(0.42, 0.5),
    ),
    Traffic(
        queue="email.send",
        weight=0.25,
        failing=0.06,
        errors=(("SMTPServerBusy", "421 too many connections"), ("timeout", "")),
        poison=0.008,
        poison_error=("BadAddress", "no such mailbox"),
        delay_ms=1_000,
        multiplier=1.5,
        max_attempts=10,
    ),
    Traffic(
        queue="webhooks.partner",
        weight=0.10,
        failing=0.12,
        errors=(("HTTPError", "503 Service Unavailable"), ("SSLError", "certificate has expired")),
        poison=0.02,
        poison_error=("KeyError", "'installation'"),
        delay_ms=10_000,
        multiplier=1.0,
        max_attempts=5,
        outage=(0.7, 0.74),
    ),
)


@dataclass(slots=True)
class World:
    """What the simulation writes into, and its one source of chance."""

    rng: random.Random
    start_us: int
    end_us: int
    broker_id: str
    rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in TABLES})
    minutes: dict[tuple[str, int], Counter[str]] = field(default_factory=dict)
    queue_ids: dict[str, int] = field(default_factory=dict)
    next_id: int = 4097

    def count(self, queue: str, at_us: int, **counts: int) -> None:
        self.minutes.setdefault((queue, at_us // _MINUTE_US * _MINUTE_US), Counter()).update(counts)

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def queue_id(self, queue: str) -> int:
        return self.queue_ids.setdefault(queue, len(self.queue_ids) + 1)

    def add(self, table: str, **row: Any) -> None:
        if "queue" in row:
            row["queue_id"] = self.queue_id(row["queue"])
        self.rows[table].append(row)


@dataclass(slots=True)
class _QueueEntry:
    traffic: Traffic
    message_id: int
    sequence: int
    sent_at: int
    entered_at: int
    poison: bool
    failed: int = 0
    last_error: tuple[str, str] = ("", "")

    def key(self) -> Row:
        return {"message_id": self.message_id, "sequence": self.sequence, "queue": self.traffic.queue, "address": self.traffic.queue}


def write_sample(
    out: Path,
    *,
    seed: int = 1,
    messages: int = 2_000,
    hours: float = 6.0,
) -> dict[str, int]:
    """Write an export of ``messages`` messages sent over ``hours`` to the new directory ``out``. Returns table -> rows."""
    rng = random.Random(seed)
    world = World(rng, START_US, START_US + int(hours * 3600 * _S_US), str(uuid.UUID(int=rng.getrandbits(128), version=4)))
    sent = sorted(_send_time(world) for _ in range(messages))
    for at_us in sent:
        traffic = rng.choices(QUEUES, [t.weight for t in QUEUES])[0]
        world.count(traffic.queue, at_us, sent=1)
        _live(world, _QueueEntry(traffic, world.new_id(), world.new_id(), at_us, at_us, rng.random() < traffic.poison))
    _declare(world)
    return write_world(world, out)


def _send_time(world: World) -> int:
    """More traffic in the middle of the time than at its ends."""
    return world.start_us + int(world.rng.triangular(0, 1, 0.55) * 0.98 * (world.end_us - world.start_us))


def _live(world: World, entry: _QueueEntry) -> None:
    """Deliver one message until it succeeds, is dead-lettered, or the time is over."""
    traffic, rng = entry.traffic, world.rng
    due_us: int | None = None
    while True:
        given_us = (due_us or entry.entered_at) + int(rng.expovariate(1 / 8_000)) + 500
        end_us = given_us + int(rng.expovariate(1 / 40_000)) + 1_000
        if end_us >= world.end_us:
            _still_here(world, entry, due_us)
            return
        error = _error(world, entry, end_us)
        if error is None:
            _succeed(world, entry, end_us)
            return
        entry.failed += 1
        entry.last_error = error
        delay_ms = min(int(traffic.delay_ms * traffic.multiplier ** (entry.failed - 1)), 10 * traffic.delay_ms)
        dies = entry.failed >= traffic.max_attempts
        _attempt(world, entry, given_us, end_us, None if dies else delay_ms)
        if dies:
            _die(world, entry, end_us)
            return
        due_us = end_us + delay_ms * 1000


def _error(world: World, entry: _QueueEntry, at_us: int) -> tuple[str, str] | None:
    traffic = entry.traffic
    if entry.poison:
        return traffic.poison_error
    if traffic.outage is not None:
        part = (at_us - world.start_us) / (world.end_us - world.start_us)
        if traffic.outage[0] <= part < traffic.outage[1]:
            return traffic.errors[0]
    return world.rng.choice(traffic.errors) if world.rng.random() < traffic.failing else None


def _attempt(world: World, entry: _QueueEntry, given_us: int, at_us: int, delay_ms: int | None) -> None:
    kind, text = entry.last_error
    own_outcome = kind in ("connection-lost", "timeout")
    consumer = f"worker-{world.rng.randrange(1, 5)}"
    world.count(entry.traffic.queue, at_us, delivered=1, failed=1, failed_first=int(entry.failed == 1))
    world.add(
        "attempts",
        **entry.key(),
        attempt=entry.failed,
        at=at_us,
        assigned_at=given_us - 400,
        given_at=given_us,
        outcome=kind if own_outcome else "listener",
        error_class=kind,
        error_type=None if own_outcome else kind,
        error_text=None if own_outcome else text,
        fingerprint=None if own_outcome else f"{hash_of(kind, text):08x}",
        consumer=consumer,
        connection=consumer,
        delivery_count=entry.failed,
        failed_attempts=entry.failed,
        decision="dead-letter" if delay_ms is None else "redeliver",
        delay_ms=delay_ms,
        due_at=None if delay_ms is None else at_us + delay_ms * 1000,
        policy=f"p-{entry.traffic.queue}",
    )


def hash_of(*parts: str) -> int:
    """A number of these texts that is equal in every process, which hash() is not."""
    value = 2_166_136_261
    for byte in "\0".join(parts).encode():
        value = (value ^ byte) * 16_777_619 & 0xFFFFFFFF
    return value


def _settle(world: World, entry: _QueueEntry, at_us: int, outcome: str, **more: Any) -> None:
    attempts = entry.failed + (outcome == "succeeded")
    row = {"state": "settled", "outcome": outcome, "attempts": attempts, "failed_attempts": entry.failed, "delivery_count": attempts}
    world.add("messages", **entry.key(), **row, sent_at=entry.sent_at, entered_at=entry.entered_at, settled_at=at_us, **more)


def _succeed(world: World, entry: _QueueEntry, at_us: int) -> None:
    world.count(entry.traffic.queue, at_us, delivered=1, succeeded=1, first_try=int(entry.failed == 0))
    if entry.failed:
        _settle(world, entry, at_us, "succeeded")


def _die(world: World, entry: _QueueEntry, at_us: int) -> None:
    """Into the dead-letter queue; a few are sent back by hand an hour later, fixed."""
    dead_queue = f"DLQ.{entry.traffic.queue}"
    kind, text = entry.last_error
    world.count(entry.traffic.queue, at_us, dead_lettered=1)
    world.count(dead_queue, at_us, moved_in=1)
    _settle(world, entry, at_us, "dead-lettered", reason="delivery_limit", target_queues=[dead_queue])
    redriven_us = at_us + 3_600 * _S_US
    redriven = world.rng.random() < 0.25 and redriven_us < world.end_us
    hop = {
        "sequence": entry.sequence,
        "queue": entry.traffic.queue,
        "address": entry.traffic.queue,
        "reason": "delivery_limit",
        "at": at_us,
    }
    hops = [hop | {"attempts": entry.failed, "delivery_count": entry.failed}]
    world.add(
        "dead_letters",
        **entry.key(),
        died_at=at_us,
        reason="delivery_limit",
        attempts=entry.failed,
        error_class=kind,
        error_type=kind if text else None,
        error_text=text or None,
        sent_at=entry.sent_at,
        target_queues=[dead_queue],
        lies_in=[] if redriven else [dead_queue],
        hops=[] if redriven else hops,
    )
    _lie(world, entry, dead_queue, at_us, redriven_us if redriven else None)


def _lie(world: World, entry: _QueueEntry, dead_queue: str, at_us: int, redriven_us: int | None) -> None:
    remaining: Row = {"message_id": entry.message_id, "sequence": world.new_id(), "queue": dead_queue, "address": entry.traffic.queue}
    remaining |= {"attempts": 0, "failed_attempts": 0, "delivery_count": 0, "sent_at": entry.sent_at, "entered_at": at_us}
    if redriven_us is None:
        world.add("messages", **remaining, state="ready", suspect=False, priority=4, body_bytes=512, hops=1)
        return
    world.add("messages", **remaining, state="settled", outcome="redriven", settled_at=redriven_us, target_queues=[entry.traffic.queue])
    world.count(dead_queue, redriven_us, moved_out=1)
    world.count(entry.traffic.queue, redriven_us, moved_in=1)
    _live(world, _QueueEntry(entry.traffic, entry.message_id, world.new_id(), entry.sent_at, redriven_us, poison=False))


def _still_here(world: World, entry: _QueueEntry, due_us: int | None) -> None:
    waits = due_us is not None and due_us > world.end_us
    counts = {"attempts": entry.failed, "failed_attempts": entry.failed, "delivery_count": entry.failed}
    here = {"state": "scheduled" if waits else "ready", "suspect": False, "priority": 4, "body_bytes": 512, "hops": 0}
    world.add("messages", **entry.key(), **here, **counts, sent_at=entry.sent_at, entered_at=entry.entered_at, due_at=due_us)


def _declare(world: World) -> None:
    for (queue, minute), counts in sorted(world.minutes.items()):
        world.add("deliveries_by_minute", queue=queue, minute=minute, **counts)
    here = Counter((row["queue"], row["state"]) for row in world.rows["messages"])
    for queue in list(world.queue_ids):
        states = {state: here[queue, state] for state in ("ready", "scheduled", "parked")}
        dead = queue.startswith("DLQ.")
        declared = {"address": "DLA" if dead else queue, "routing_type": "multicast" if dead else "anycast"}
        flags = {"durable": True, "auto_created": True, "paused": False, "options_json": "{}", "created_at": world.start_us}
        world.add("queues", queue=queue, **declared, **flags, **states)
    name = json.dumps({"name": f"shop-{world.broker_id[:4]}"})
    world.add("settings", from_at=world.start_us, pattern="", setting="broker", value_json=name)
    for traffic in QUEUES:
        limits: dict[str, float] = {"max_delivery_attempts": traffic.max_attempts, "redelivery_delay_ms": traffic.delay_ms}
        limits["redelivery_delay_multiplier"] = traffic.multiplier
        for setting, value in limits.items():
            world.add("settings", from_at=world.start_us, pattern=traffic.queue, setting=setting, value_json=json.dumps(value))
        world.add("policies", policy=f"p-{traffic.queue}", from_at=world.start_us, settings_json=json.dumps(limits))


# --- writing --------------------------------------------------------------------------------------------------------

_COUNTS = {name for name, kind in TABLES["deliveries_by_minute"] if kind == "int64"} - {"queue_id"}


def write_world(world: World, out: Path) -> dict[str, int]:
    out.mkdir(parents=True)
    for table in TABLES:
        rows = world.rows[table]
        if table != "attempts" or not rows:
            _write_part(world, out / table, table, rows)
            continue
        by_day: dict[str, list[Row]] = {}
        for row in sorted(rows, key=lambda row: row["at"]):
            by_day.setdefault(f"{datetime.fromtimestamp(row['at'] // _S_US, UTC):%Y-%m-%d}", []).append(row)
        for day, of_day in by_day.items():
            _write_part(world, out / table / f"day={day}", table, of_day)
    counts = {table: len(rows) for table, rows in world.rows.items()}
    manifest = {
        "format": "homing-export",
        "schema_version": SCHEMA_VERSION,
        "broker_id": world.broker_id,
        "exported_at": datetime.fromtimestamp(world.end_us / _S_US, UTC).isoformat(timespec="milliseconds"),
        "exported_at_us": world.end_us,
        "with_tracebacks": False,
        "rows": counts,
    }
    (out / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return counts


def _write_part(world: World, directory: Path, table: str, rows: list[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    shared = {"broker_id": world.broker_id, "schema_version": SCHEMA_VERSION}
    columns = []
    for name, kind in TABLES[table]:
        values = [shared.get(name, row.get(name, _default(table, name, row))) for row in rows]
        columns.append(pa.array(values, type=_arrow_type(kind)))
    pq.write_table(pa.table(columns, names=[name for name, _ in TABLES[table]]), directory / "part-00000.parquet")


def _default(table: str, name: str, row: Row) -> Any:
    if table == "deliveries_by_minute" and name in _COUNTS:
        return 0
    if name == "home_queue":
        return row["queue"].removeprefix("DLQ.")
    return row["hour"] if name in ("first_at", "last_at") else None


def _arrow_type(kind: str) -> Any:
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    strings = {"queue": pa.string(), "address": pa.string(), "reason": pa.string()}
    numbers = {"attempts": pa.int32(), "delivery_count": pa.int32()}
    hop = pa.struct({"sequence": pa.int64(), **strings, "at": time, **numbers, "expires_at": time})
    simple = {"string": pa.string(), "bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64(), "time": time}
    return simple.get(kind) or {"strings": pa.list_(pa.string()), "hops": pa.list_(hop)}[kind]
