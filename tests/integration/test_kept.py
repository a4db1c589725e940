"""Messages that their senders did not want kept, in durable queues: what is kept of them all the same."""

from __future__ import annotations

import gc
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread

import pika
import pika.exceptions
import pyarrow.dataset as ds
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from homing.client import blocking
from homing.journal.upkeep.lost import CAME, WENT
from tests.amqp_support import AMQP, PERSISTENT, channel, connect, count, cut, get, wait_for_count
from tests.process import HomingCommand, Server

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

QUORUM = {"x-queue-type": "quorum"}
#: What a program may say of a message without asking for it to be kept.
MODES = {
    "nothing": pika.BasicProperties(),
    "one": pika.BasicProperties(delivery_mode=1),
    "headers": pika.BasicProperties(headers={"a": 1}),
    "expiration": pika.BasicProperties(expiration="600000", priority=3),
}


@pytest.fixture
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server({**AMQP, "limits": {"window-messages": 50}})


def publish(ch: BlockingChannel, key: str, number: int, properties: pika.BasicProperties, exchange: str = "") -> None:
    for each in range(number):
        ch.basic_publish(exchange, key, b"%d" % each, properties)


def by_minutes(broker: Server) -> dict[str, dict[str, int]]:
    """What table ``minute`` counts of each queue of a broker that has stopped, all together; of what is not durable none is here then."""
    with closing(sqlite3.connect(broker.data / "homing.db")) as journal:
        journal.row_factory = sqlite3.Row
        names = [row["name"] for row in journal.execute("PRAGMA table_info(minute)")][2:]
        sums = ", ".join(f"sum({name}) AS {name}" for name in names)
        found = {}
        for row in journal.execute(f"SELECT name, {sums} FROM minute JOIN queue USING (queue_id) GROUP BY 1"):
            counts = {name: row[name] for name in names}
            came, went = (sum(counts[f"transient_{name}"] for name in way) for way in (CAME, WENT))
            assert came == went + counts["kept"] + counts["lost"], counts
            found[row["name"]] = {name: value for name, value in counts.items() if value}
    return found


def send_once(broker: Server, queue: str = "once") -> None:
    with blocking.connect(broker.url) as connection, connection.session() as session:
        session.producer(queue).send(b"one", durable=False, duplicate_id="one")


def test_a_quorum_queue_keeps_what_it_confirmed_whatever_its_delivery_mode(broker: Server, homing: HomingCommand) -> None:
    with channel(broker) as ch:
        ch.confirm_delivery()
        ch.exchange_declare("all", "fanout", durable=True)
        # More than are kept in memory, so that some are on disk only.
        for name, properties in MODES.items():
            ch.queue_declare(name, durable=True, arguments=QUORUM)
            publish(ch, name, 60, properties)
        # Of several queues only the quorum one keeps it.
        for name, arguments in {"all.classic": {}, "all.quorum": QUORUM, "all.second": {}}.items():
            ch.queue_declare(name, durable=True, arguments=arguments)
            ch.queue_bind(name, "all")
        publish(ch, "", 3, MODES["nothing"], "all")
        # One that failed, and one that was dead-lettered into a classic queue, stay what they are.
        ch.queue_declare("failing", durable=True, arguments={**QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        ch.queue_declare("dead", durable=True)
        publish(ch, "failing", 2, MODES["nothing"])
        for requeue in (True, False):
            ch.basic_nack(get(ch, "failing", auto_ack=False)[0].delivery_tag, requeue=requeue)
        # Taken here, and not kept.
        for number in range(2):
            ch.queue_declare(f"passing.{number}", arguments=QUORUM)
            ch.queue_declare("", exclusive=True, durable=True, arguments=QUORUM)
        publish(ch, "passing.0", 2, MODES["nothing"])
        wait_for_count(ch, "dead", 1)
    broker.kill()
    broker.start()
    with channel(broker) as ch:
        there = {name: count(ch, name) for name in [*MODES, "all.quorum", "all.classic", "all.second", "failing", "dead"]}
        assert there == {**dict.fromkeys(MODES, 60), "all.quorum": 3, "all.classic": 0, "all.second": 0, "failing": 1, "dead": 1}
        for name in ("nothing", "one"):
            method, properties, body = get(ch, name)
            assert (method.redelivered, properties.delivery_mode in (None, 1), body) == (False, True, b"0")
        assert get(ch, "failing")[1].delivery_mode in (None, 1)
        assert get(ch, "dead")[1].delivery_mode in (None, 1)
        rest = [get(ch, "one")[2] for _ in range(59)]
        assert rest == [b"%d" % number for number in range(1, 60)]
    broker.restart()
    with channel(broker) as ch:
        there = {name: count(ch, name) for name in [*MODES, "all.quorum", "dead"]}
        assert there == {"nothing": 59, "one": 0, "headers": 60, "expiration": 60, "all.quorum": 3, "dead": 0}
    log = broker.logged("quorum-not-durable")
    assert [
        line.partition("quorum-not-durable: ")[2].partition(" is of")[0] for line in log.splitlines() if "quorum-not-durable" in line
    ] == [
        "queue 'passing.0' in vhost '/'",
        next(line for line in log.splitlines() if "amq.gen-" in line).partition("quorum-not-durable: ")[2].partition(" is of")[0],
        "queue 'passing.1' in vhost '/'",
    ]
    broker.stop()
    assert homing("journal", "check", "--data", broker.data).returncode == 0


def test_an_orderly_stop_keeps_what_is_not_durable(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    settings = {"#": {"redelivery-delay": 0}, "given.away": {"keep-at-stop": False}}
    broker = start_server({**AMQP, "address-settings": settings})
    with channel(broker) as ch:
        ch.exchange_declare("both", "fanout", durable=True)
        for name in ("orders", "given.away", "first", "second"):
            ch.queue_declare(name, durable=True)
        for name in ("first", "second"):
            ch.queue_bind(name, "both")
        ch.queue_declare("passing")
        ch.queue_declare("deleted", durable=True, auto_delete=True)
        generated = ch.queue_declare("", durable=True).method.queue
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        ch.queue_declare("failing", durable=True, arguments=dead)
        ch.queue_declare("dead", durable=True)
        publish(ch, "orders", 3, MODES["one"])
        ch.basic_publish("", "orders", b"kept anyway", pika.BasicProperties(delivery_mode=2))
        ch.basic_publish("", "orders", b"soon over", pika.BasicProperties(expiration="1500"))
        publish(ch, "", 2, MODES["headers"], "both")
        for name in ("given.away", "passing", "deleted", generated, "failing", "failing"):
            publish(ch, name, 1, MODES["nothing"])
        method, _, _ = get(ch, "failing", auto_ack=False)
        ch.basic_nack(method.delivery_tag, requeue=False)
        get(ch, "failing", auto_ack=False)  # held: comes back at the stop
        get(ch, "orders", auto_ack=False)
    send_once(broker)
    assert broker.stop() == 0
    counted = by_minutes(broker)
    assert counted["orders"].items() >= {"sent": 5, "transient_sent": 4, "kept": 4}.items()
    assert counted["given.away"] == {"sent": 1, "transient_sent": 1, "lost": 1}
    assert (
        counted["failing"].items() >= {"sent": 2, "transient_sent": 2, "kept": 2, "dead_lettered": 1, "delivered": 2, "failed": 1}.items()
    )
    kept = {"orders": 4, "first": 2, "second": 2, "failing": 1, "once": 1}
    not_kept = {"given.away": 1, "passing": 1, "deleted": 1, generated: 1}
    line = f"kept 10 (orders 4, first 2, second 2, failing 1, once 1), not kept 4 (given.away 1, passing 1, deleted 1, {generated} 1)"
    assert f"kept-at-stop: messages that were not durable: {line}" in broker.logged("kept-at-stop")
    broker.ahead_s = 2
    broker.start()
    assert broker.ready["at_last_stop"] == {"kept": kept, "not_kept": not_kept}
    assert f"the stop before had: {line}" in broker.logged("the stop before had")
    broker.kill()  # durable from then on
    broker.start()
    assert "at_last_stop" not in broker.ready
    send_once(broker)
    with channel(broker) as ch:
        assert count(ch, "once") == 1, "what is there is known when it is sent again"
        assert [get(ch, "orders")[2] for _ in range(4)] == [b"0", b"1", b"2", b"kept anyway"]
        assert count(ch, generated) == 0
        there = {name: count(ch, name) for name in ("orders", "given.away", "first", "second", "failing", "dead")}
        assert there == {"orders": 0, "given.away": 0, "first": 2, "second": 2, "failing": 1, "dead": 1}
        method, properties, body = get(ch, "first")
        assert (body, properties.headers, properties.delivery_mode in (None, 1)) == (b"0", {"a": 1}, True)
        assert get(ch, "dead")[1].headers["x-death"][0]["queue"] == "failing"
    broker.stop()
    assert by_minutes(broker)
    assert homing("journal", "check", "--data", broker.data).returncode == 0


def test_a_stop_without_time_says_what_it_gave_away(start_server: Callable[..., Server]) -> None:
    broker = start_server({**AMQP, "broker": {"stop-timeout": 0}})
    with channel(broker) as ch:
        ch.queue_declare("orders", durable=True)
        publish(ch, "orders", 3, MODES["one"])
    broker.stop()
    broker.start()
    assert broker.ready["at_last_stop"] == {"kept": {}, "not_kept": {"orders": 3}}


def test_beyond_its_share_of_memory_it_goes_on_on_disk_and_holds_up_nobody(
    start_server: Callable[..., Server], homing: HomingCommand
) -> None:
    limits = {"memory-limit": "4MiB", "temp-limit": "6MiB"}
    broker = start_server({**AMQP, "http": {"port": 0}, "broker": limits, "limits": {"window-messages": 200}})
    body = bytes(10_000)

    def flood() -> None:
        with suppress(pika.exceptions.AMQPError):
            sender = connect(broker).channel()
            for _ in range(3_000):
                sender.basic_publish("", "flooded", body)

    with channel(broker) as ch:
        ch.confirm_delivery()
        for name, durable in {"bulk": True, "flooded": True, "passing": False, "deleted": True}.items():
            ch.queue_declare(name, durable=durable)
        for number in range(200):
            ch.basic_publish("", "bulk", b"%06d" % number + body)
            if number < 100:
                ch.basic_publish("", "passing", body, pika.BasicProperties(delivery_mode=2))
                ch.basic_publish("", "deleted", body)
        statistics = homing.json("status", url=broker.url)
        assert statistics["memory_bytes"] < 4 << 20
        assert statistics["spilled_bytes"] > 1 << 20
        assert all(each["transient"] for each in homing.json_lines("peek", "bulk", "--count", "200", url=broker.url))
        ch.queue_delete("deleted")
        # Its limit on disk stops those that send more of it, and nobody else.
        flooding = Thread(target=flood, daemon=True)
        flooding.start()
        broker.logged("producers-wait: temp-limit")
        waiting = [homing.json("status", url=broker.url), homing.json("health", url=f"http://{broker.ready['http']}")]
        assert [[(each["limit"], each["producers"]) for each in said["producers_wait"]] for said in waiting] == [[("temp-limit", 1)]] * 2
        assert [each["blocked"]["limit"] for each in homing.json("connections", url=broker.url) if each["blocked"]] == ["temp-limit"]
        assert {each["blocked"] for each in homing.json("queues", url=broker.url)} == {"temp-limit"}
        ch.basic_publish("", "bulk", b"durable", PERSISTENT)
        assert homing.json("status", url=broker.url)["memory_bytes"] < 5 << 20
        assert [int(get(ch, "bulk")[2][:6]) for _ in range(150)] == list(range(150))
    broker.kill()
    flooding.join(10)
    gc.collect()
    broker.start()
    with channel(broker) as ch:
        assert count(ch, "bulk") == 1
        assert get(ch, "bulk")[2] == b"durable"
        ch.confirm_delivery()
        for number in range(300):
            ch.basic_publish("", "bulk", b"%06d" % number + body)
            if number % 3 == 0:
                ch.basic_publish("", "flooded", b"%06d" % number + body)
        assert count(ch, "bulk") == 300
    # Some are read back, and held when the broker stops.
    holder = connect(broker).channel()
    assert [int(get(holder, "bulk")[2][:6]) for _ in range(150)] == list(range(150))
    held = [get(holder, "bulk", auto_ack=False) for _ in range(50)]
    holder.basic_nack(held[40][0].delivery_tag, requeue=True)
    broker.restart()
    del holder
    gc.collect()
    # What was put back is on disk already.
    assert broker.ready["at_last_stop"]["kept"] == {"bulk": 149, "flooded": 100}
    with channel(broker) as ch:
        for name, expected in {"bulk": range(150, 300), "flooded": range(0, 300, 3)}.items():
            assert [int(get(ch, name)[2][:6]) for _ in expected] == [*expected]
    assert broker.log_path.read_text().count("temp-limit-changed") == 1
    broker.stop()
    assert by_minutes(broker)
    assert homing("journal", "check", "--data", broker.data).returncode == 0


def test_what_fails_is_kept(start_server: Callable[..., Server], homing: HomingCommand) -> None:
    settings = {
        "#": {"redelivery-delay": 0, "expiry-address": "EXP", "auto-create-expiry-resources": True},
        "limited": {"max-delivery-attempts": 3},
        "delayed": {"redelivery-delay": "1h"},
        "held": {"redelivery-delay": "1h", "keep-failed": False},
        "unkept.#": {"keep-failed": False},
    }
    broker = start_server({**AMQP, "address-settings": settings})
    failing = ("rejected", "limited", "delayed", "held", "recovered", "moved", "edited", "unkept.rejected")
    names = (*failing, "lost", "expiring", "first", "second")
    homing.url = broker.url
    with channel(broker) as ch:
        ch.exchange_declare("both", "fanout", durable=True)
        for name in (*names, "elsewhere"):
            ch.queue_declare(name, durable=True)
        ch.queue_declare("passing")
        for name in ("first", "second"):
            ch.queue_bind(name, "both")
        for name in (*failing, "passing"):
            ch.basic_publish(exchange="", routing_key=name, body=b"as its tutorial has it")
            ch.basic_publish(exchange="", routing_key=name, body=b"never failed")
        ch.basic_publish("both", "", b"for both")
        ch.basic_publish("", "expiring", b"late", pika.BasicProperties(expiration="1"))
        for name in ("rejected", "unkept.rejected", "first", "passing"):
            ch.basic_reject(get(ch, name, auto_ack=False)[0].delivery_tag, requeue=False)
        for name in ("limited", "limited", "delayed", "held"):
            ch.basic_nack(get(ch, name, auto_ack=False)[0].delivery_tag)
        get(ch, "recovered", auto_ack=False)
        ch.basic_recover(requeue=True)
        send_once(broker, "lost")
        losing = connect(broker)
        get(losing.channel(), "lost", auto_ack=False)
        cut(losing)
        homing("settings", "set", "held", "keep-failed=true")
        assert homing.json("retry", "held", "--hold")["messages"] == 1
        (moved, _), (edited, _) = (homing.json_lines("peek", name) for name in ("moved", "edited"))
        homing.json("move", str(moved["message_id"]), "elsewhere")
        homing.json("edit", str(edited["message_id"]), "--set", "a=1", "--yes")
        wait_for_count(ch, "EXP.expiring", 1)
        wait_for_count(ch, "lost", 1)
        ch.confirm_delivery()
        ch.basic_publish("", "elsewhere", b"durable", PERSISTENT)  # all before it is on disk
        dead = {each["queue"]: each["transient"] for each in homing.json("dead")}
        assert dead == {"DLQ.rejected": 0, "DLQ.unkept.rejected": 1, "DLQ.first": 0, "DLQ.passing": 0, "EXP.expiring": 0}
    broker.kill()
    gc.collect()
    broker.start()
    found = {each["queue"]: each["messages"] for each in homing.json("dead")}
    assert found == {"DLQ.rejected": 1, "DLQ.first": 1, "DLQ.passing": 1, "EXP.expiring": 1}
    (rejected,) = homing.json_lines("peek", "DLQ.rejected")
    history = homing.json("history", str(rejected["message_id"]))
    assert [each["outcome"] for each in history["attempts"]] == ["rejected"]
    send_once(broker, "lost")
    with channel(broker) as ch:
        there = {name: count(ch, name) for name in names}
        assert there == {**dict.fromkeys(names, 0), **dict.fromkeys(("limited", "recovered", "lost", "edited"), 1)}
        assert [get(ch, "elsewhere")[2] for _ in range(2)] == [b"as its tutorial has it", b"durable"]
        (limited,) = homing.json_lines("peek", "limited")
        assert (limited["delivery_count"], limited["failed"], limited["durable"], limited["transient"]) == (2, 2, False, False)
        method, _, _ = get(ch, "limited", auto_ack=False)
        ch.basic_nack(method.delivery_tag)  # the third
        wait_for_count(ch, "DLQ.limited", 1)
        assert get(ch, "edited")[1].headers["a"] == "1"
        assert get(ch, "lost")[0].redelivered
    assert [len(homing.json("retrying", name)) for name in ("delayed", "held")] == [1, 1]
    broker.stop()
    assert by_minutes(broker)
    assert homing("journal", "check", "--data", broker.data).returncode == 0


def test_an_export_counts_all_that_ordinary_programs_send(
    start_server: Callable[..., Server], homing: HomingCommand, tmp_path: Path
) -> None:
    """A hundred as pika sends them: ten are rejected and die, three wait, the others succeed. Ten more come after a kill."""
    broker = start_server(AMQP)
    with channel(broker) as ch:
        ch.queue_declare("dead", durable=True)
        ch.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        publish(ch, "orders", 100, MODES["nothing"])
        for number in range(97):
            method, _, _ = get(ch, "orders", auto_ack=False)
            if number % 10 == 5:
                ch.basic_reject(method.delivery_tag, requeue=False)
            else:
                ch.basic_ack(method.delivery_tag)
        wait_for_count(ch, "orders", 3)

    def counted(name: str) -> dict[str, int]:
        assert homing("journal", "export", "--data", broker.data, "--out", tmp_path / name).returncode == 0
        rows = ds.dataset(tmp_path / name / "deliveries_by_minute", format="parquet", partitioning=None).to_table().to_pylist()
        found: Counter[str] = Counter()
        for row in rows:
            if row["queue"] == "orders":
                found.update({key: value for key, value in row.items() if isinstance(value, int) and key not in ("queue_id", "failed_ms")})
        return {key: value for key, value in found.items() if value}

    first = counted("live")
    assert (first["sent"], first["transient_sent"], first["kept"], first["dead_lettered"]) == (100, 100, 10, 10)
    # Of the last that died and what came before; the one after it may be in memory alone.
    assert first["succeeded"] == first["transient_succeeded"] in (86, 87)
    broker.kill()
    broker.start()
    with channel(broker) as ch:
        publish(ch, "orders", 10, MODES["nothing"])
        wait_for_count(ch, "orders", 10)
    assert broker.stop() == 0
    last = counted("stopped")
    assert (last["sent"], last["transient_sent"], last["dead_lettered"], last["failed"], last["kept"]) == (110, 110, 10, 10, 20)
    assert last["succeeded"] + last["lost"] == 90
    assert last["succeeded"] in (86, 87)
