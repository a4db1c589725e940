"""The scenarios. Each is a function from a started-fresh broker to figures; nothing in it knows which broker that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.load import LoadError
from benchmarks.stage import MIB, Cost, Figures, Stage

QUEUE: Final = "bench"
WINDOW: Final = 1000
PREFETCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Scenario:
    """``main`` names the figure that is compared and drawn. ``full``, ``short`` and ``smoke`` are parameters for ``run``."""

    key: str
    title: str
    main: str
    unit: str
    higher_is_better: bool
    run: Callable[[Stage, Mapping[str, int]], Figures]
    full: Mapping[str, int]
    short: Mapping[str, int]
    smoke: Mapping[str, int]
    #: Further figures that the table shows.
    also: tuple[str, ...] = ()


def _rate(count: int, started_ns: int, ended_ns: int) -> float:
    return count / max(1, ended_ns - started_ns) * 1e9


def _flow(stage: Stage, count: int, produce: dict[str, object], consume: dict[str, object]) -> Figures:
    """Warm up with a tenth, then measure from the producer's first send to the last of: all confirmed, all acknowledged."""
    stage.run_both(max(1, count // 10), produce, consume)
    cost = Cost(stage)
    sent, got = stage.run_both(count, produce, consume)
    figures = {"msgs_per_s": _rate(count, sent["started_ns"], max(sent["ended_ns"], got["ended_ns"]))}
    return figures | cost.figures(count)


def s1_durable(stage: Stage, size: Mapping[str, int]) -> Figures:
    stage.start(QUEUE)
    figures = _flow(stage, size["count"], {"queue": QUEUE, "window": WINDOW}, {"queue": QUEUE, "prefetch": PREFETCH, "ack": "each"})
    stage.wait_for_depth(QUEUE, 0)
    return figures


def s2_transient(stage: Stage, size: Mapping[str, int]) -> Figures:
    stage.start(QUEUE, durable=0)
    produce = {"queue": QUEUE, "window": WINDOW, "durable": 0, "confirm": 0}
    return _flow(stage, size["count"], produce, {"queue": QUEUE, "prefetch": PREFETCH, "ack": "none"})


def s3_paced(stage: Stage, size: Mapping[str, int]) -> Figures:
    stage.start(QUEUE)
    produce = {"queue": QUEUE, "window": 10 * WINDOW, "rate": size["rate"]}
    consume: dict[str, object] = {"queue": QUEUE, "prefetch": PREFETCH, "ack": "each", "stamp": 1}
    stage.run_both(max(1, size["count"] // 10), produce, consume)
    cost = Cost(stage)
    sent, got = stage.run_both(size["count"], produce, consume)
    figures = {f"deliver_{name}": got[name] for name in ("p50_ms", "p99_ms", "max_ms")}
    figures |= {f"confirm_{name}": sent[name] for name in ("p50_ms", "p99_ms", "max_ms")}
    return figures | cost.figures(size["count"])


def s4_backlog(stage: Stage, size: Mapping[str, int]) -> Figures:
    """Fill without a consumer, SIGKILL, start again, drain. The consumer knocks every 5 ms from the moment of the second start.

    ``settle_s`` before the kill: RabbitMQ writes the names of new quorum queues with a delay, and forgets them when killed before.
    ``window`` is the prefetch too: 1,000 bodies of 10 MiB are no window.
    """
    count, payload = size["count"], size["count"] * stage.body_bytes
    stage.start(QUEUE)
    filled = stage.run("produce", count, queue=QUEUE, window=size["window"])
    figures = {"fill_per_s": _rate(count, filled["started_ns"], filled["ended_ns"])}
    figures["fill_rss_mib"] = stage.peer.usage().peak_rss_bytes / MIB
    figures["disk_per_payload"] = stage.disk_bytes() / payload
    consumer = stage.load("consume", count=count, queue=QUEUE, prefetch=size["window"], ack="each", late=1)
    time.sleep(size["settle_s"])
    stage.peer.kill()
    stage.peer.launch()
    consumer.go()
    drained = stage.complete(consumer, count)
    figures["serves_after_s"] = (drained["first_ns"] - stage.peer.started_ns) / 1e9
    figures["drain_per_s"] = _rate(count, drained["first_ns"], drained["ended_ns"])
    figures["drain_rss_mib"] = stage.peer.usage().peak_rss_bytes / MIB
    stage.wait_for_depth(QUEUE, 0)
    time.sleep(size["settle_s"])
    figures["disk_after_per_payload"] = stage.disk_bytes() / payload
    figures["peak_rss_mib"] = max(figures["fill_rss_mib"], figures["drain_rss_mib"])
    return figures


def s5_churn(stage: Stage, size: Mapping[str, int]) -> Figures:
    """Each message is rejected until the broker dead-letters it. Timed to the last rejection; then all must be dead letters."""
    count, deliveries = size["count"], size["deliveries"]
    stage.start(QUEUE, delivery_limit=deliveries)
    stage.run("produce", count, queue=QUEUE, window=WINDOW)
    cost = Cost(stage)
    got = stage.run("consume", count * deliveries, queue=QUEUE, prefetch=PREFETCH, ack="reject", late=1)
    figures = {"deliveries_per_s": _rate(count * deliveries, got["first_ns"], got["ended_ns"])} | cost.figures(count * deliveries)
    stage.wait_for_depth(f"DLQ.{QUEUE}", count)
    stage.wait_for_depth(QUEUE, 0)
    return figures


def s6_one_at_a_time(stage: Stage, size: Mapping[str, int]) -> Figures:
    stage.start(QUEUE)
    stage.run("produce", max(1, size["count"] // 10), queue=QUEUE, window=1)
    cost = Cost(stage)
    sent = stage.run("produce", size["count"], queue=QUEUE, window=1)
    figures = {"msgs_per_s": _rate(size["count"], sent["started_ns"], sent["ended_ns"]), "confirm_p50_ms": sent["p50_ms"]}
    return figures | {"confirm_p99_ms": sent["p99_ms"]} | cost.figures(size["count"])


def s7_delayed(stage: Stage, size: Mapping[str, int]) -> Figures:
    """Every message fails once, to come back at a moment of its own within ``spread_s``; the window opens when all have failed."""
    count = size["count"]
    stage.start(QUEUE)
    stage.run("produce", count, queue=QUEUE, window=WINDOW)
    words = {"lead_ms": size["lead_s"] * 1000, "spread_ms": size["spread_s"] * 1000}
    got = stage.run("consume", count, queue=QUEUE, prefetch=PREFETCH, ack="delay", late=1, **words)
    if got["overrun"]:
        raise LoadError(f"{stage.peer.name}: {got['overrun']} messages failed only after their time had come; raise S7.lead_s")
    figures = {f"late_{name}": got[name] for name in ("p50_ms", "p99_ms", "max_ms")}
    figures["early"] = float(got["early"])
    figures["delayed_per_s"] = _rate(count, got["first_ns"], got["delayed_ns"])
    figures["peak_rss_mib"] = stage.peer.usage().peak_rss_bytes / MIB
    stage.wait_for_depth(QUEUE, 0)
    return figures


def s8_fan_out(stage: Stage, size: Mapping[str, int]) -> Figures:
    """One message, ``queues`` queues, a consumer each; then a fill without consumers to see what a shared body takes on disk."""
    count, queues = size["count"], size["queues"]
    stage.start(QUEUE, queues=queues, exchange="fan")
    produce: dict[str, object] = {"queue": QUEUE, "exchange": "fan", "window": WINDOW}
    consume: dict[str, object] = {"queue": QUEUE, "queues": queues, "connections": queues, "prefetch": PREFETCH, "ack": "each"}
    stage.run_both(max(1, count // 10), produce, consume, queues)
    cost = Cost(stage)
    sent, got = stage.run_both(count, produce, consume, queues)
    figures = {"msgs_per_s": _rate(count, sent["started_ns"], max(sent["ended_ns"], got["ended_ns"]))} | cost.figures(count)
    before = stage.disk_bytes()
    stage.run("produce", size["stored"], **produce)
    figures["disk_per_payload"] = (stage.disk_bytes() - before) / (size["stored"] * stage.body_bytes)
    return figures


def s9_many_clients(stage: Stage, size: Mapping[str, int]) -> Figures:
    """First idle connections, then a fifth of all connections produce and the rest consume, over ``queues`` queues."""
    count, connections, queues = size["count"], size["connections"], size["queues"]
    stage.start(QUEUE, queues=queues)
    stage.run_both(queues, _many(queues, queues), _many(queues, queues) | {"ack": "each"})
    time.sleep(size["settle_s"])  # what a broker loads after its start is no connection's
    before = stage.peer.usage().rss_bytes
    idle = stage.load("idle", connections=connections)
    time.sleep(size["settle_s"])
    figures = {"idle_kib": (stage.peer.usage().rss_bytes - before) / 1024 / connections}
    idle.go()
    stage.complete(idle, connections)
    cost = Cost(stage)
    producers = max(queues, connections // 5)
    consume = _many(connections - producers, queues) | {"ack": "each", "prefetch": 100}
    sent, got = stage.run_both(count, _many(producers, queues) | {"window": 100}, consume)
    figures["msgs_per_s"] = _rate(count, sent["started_ns"], max(sent["ended_ns"], got["ended_ns"]))
    return figures | cost.figures(count)


def s10_returned(stage: Stage, size: Mapping[str, int]) -> Figures:
    """Some messages go round: each is put back at once, without a limit, ``count`` times in all (of durable ones a tenth), by a consumer
    that holds one and by one that holds 50.
    """
    stage.start(QUEUE)
    figures: Figures = {}
    for kind, durable, count in (("transient", 0, size["count"]), ("durable", 1, size["count"] // 10)):
        stage.run("produce", size["messages"], queue=QUEUE, window=WINDOW, durable=durable)
        for prefetch in (1, 50):
            before = stage.peer.usage().written_bytes
            got = stage.run("consume", count, queue=QUEUE, prefetch=prefetch, ack="return")
            seconds = (got["ended_ns"] - got["first_ns"]) / 1e9
            figures[f"{kind}_{prefetch}_per_s"] = count / seconds
            figures[f"{kind}_{prefetch}_mib_per_s"] = (stage.peer.usage().written_bytes - before) / MIB / seconds
        stage.run("consume", size["messages"], queue=QUEUE, prefetch=PREFETCH, ack="each")
    stage.wait_for_depth(QUEUE, 0)
    return figures


def s11_routed(stage: Stage, size: Mapping[str, int]) -> Figures:
    """Transient, confirmed, to a consumer; each routing key is new and matches one of an exchange's bindings, all to one queue."""
    stage.start(QUEUE, durable=0)
    figures: Figures = {}
    consume: dict[str, object] = {"queue": QUEUE, "prefetch": PREFETCH, "ack": "none"}
    many, count = size["bindings"], size["count"]
    # Not every broker has an index of headers: fewer there, for they take as long.
    cases = (("topic_1", "topic", 1, count), ("topic_100", "topic", 100, count), ("topic", "topic", many, count))
    for name, kind, bindings, number in (*cases, ("headers", "headers", many, count // 20)):
        stage.peer.set_up(QUEUE, durable=0, exchange=name, type=kind, bindings=bindings)
        produce = {"queue": QUEUE, "window": WINDOW, "durable": 0, "exchange": name, "bindings": bindings}
        flow = _flow(stage, number, produce, consume)
        figures |= {f"{name}_per_s": flow["msgs_per_s"], f"{name}_cpu_s_per_100k": flow["cpu_s_per_100k"]}
    return figures


def _many(connections: int, queues: int) -> dict[str, Any]:
    return {"queue": QUEUE, "queues": queues, "connections": connections}


COST: Final = ("cpu_s_per_100k", "peak_rss_mib", "written_mib_per_100k", "rows_per_message")

GOING_ROUND: Final = (
    *("transient_1_per_s", "transient_1_mib_per_s", "transient_50_mib_per_s"),
    *("durable_1_per_s", "durable_50_per_s", "durable_1_mib_per_s", "durable_50_mib_per_s"),
)

ROUTED: Final = (
    *("topic_1_per_s", "topic_100_per_s", "headers_per_s"),
    *("topic_1_cpu_s_per_100k", "topic_100_cpu_s_per_100k", "topic_cpu_s_per_100k", "headers_cpu_s_per_100k"),
)

SCENARIOS: Final = {
    each.key: each
    for each in (
        Scenario(
            "S1", "durable, confirmed, each message acknowledged", "msgs_per_s", "msgs/s", True, s1_durable,
            {"count": 300_000}, {"count": 50_000}, {"count": 400}, COST,
        ),
        Scenario(
            "S2", "transient, automatic acknowledgement", "msgs_per_s", "msgs/s", True, s2_transient,
            {"count": 500_000}, {"count": 100_000}, {"count": 400}, COST,
        ),
        Scenario(
            "S3", "1,000 messages a second, open loop", "deliver_p50_ms", "ms", False, s3_paced,
            {"count": 10_000, "rate": 1000}, {"count": 3_000, "rate": 1000}, {"count": 200, "rate": 1000},
            ("deliver_p99_ms", "deliver_max_ms", "confirm_p50_ms", "confirm_p99_ms", "confirm_max_ms", *COST),
        ),
        Scenario(
            "S4", "backlog: fill, kill, serve, drain", "fill_per_s", "msgs/s", True, s4_backlog,
            {"count": 500_000, "window": WINDOW, "settle_s": 5}, {"count": 50_000, "window": WINDOW, "settle_s": 2},
            {"count": 400, "window": WINDOW, "settle_s": 0},
            ("fill_rss_mib", "disk_per_payload", "serves_after_s", "drain_per_s", "drain_rss_mib", "disk_after_per_payload"),
        ),
        Scenario(
            "S5", "redelivery churn into the dead-letter queue", "deliveries_per_s", "deliveries/s", True, s5_churn,
            {"count": 20_000, "deliveries": 3}, {"count": 5_000, "deliveries": 3}, {"count": 100, "deliveries": 3}, COST,
        ),
        Scenario(
            "S6", "one at a time, each waits for its confirm", "msgs_per_s", "msgs/s", True, s6_one_at_a_time,
            {"count": 20_000}, {"count": 4_000}, {"count": 100}, ("confirm_p50_ms", "confirm_p99_ms", *COST),
        ),
        Scenario(
            "S7", "waiting for redelivery at random times", "late_p99_ms", "ms", False, s7_delayed,
            {"count": 1_000_000, "lead_s": 90, "spread_s": 60}, {"count": 20_000, "lead_s": 10, "spread_s": 10},
            {"count": 300, "lead_s": 1, "spread_s": 1}, ("late_p50_ms", "late_max_ms", "early", "delayed_per_s", "peak_rss_mib"),
        ),
        Scenario(
            "S8", "fan-out to 10 queues, durable", "msgs_per_s", "msgs/s", True, s8_fan_out,
            {"count": 50_000, "queues": 10, "stored": 20_000}, {"count": 10_000, "queues": 10, "stored": 5_000},
            {"count": 100, "queues": 10, "stored": 100}, ("disk_per_payload", *COST),
        ),
        Scenario(
            "S9", "many clients: connections over queues", "msgs_per_s", "msgs/s", True, s9_many_clients,
            {"count": 200_000, "connections": 1000, "queues": 200, "settle_s": 2},
            {"count": 20_000, "connections": 200, "queues": 40, "settle_s": 1},
            {"count": 400, "connections": 20, "queues": 4, "settle_s": 0}, ("idle_kib", *COST),
        ),
        Scenario(
            "S10", "messages that go round, put back at once", "transient_50_per_s", "returns/s", True, s10_returned,
            {"count": 100_000, "messages": 100}, {"count": 20_000, "messages": 100}, {"count": 400, "messages": 20}, GOING_ROUND,
        ),
        Scenario(
            "S11", "routing of keys that are new, over AMQP", "topic_per_s", "msgs/s", True, s11_routed,
            {"count": 100_000, "bindings": 5000}, {"count": 20_000, "bindings": 5000}, {"count": 400, "bindings": 200}, ROUTED,
        ),
    )
}  # fmt: skip
