"""Policies from outside: set by command or in broker.yaml, on queues that are there and on new ones, at once and after a restart."""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from homing.journal.store.packing import pack, unpack
from tests.amqp_support import AMQP, PERSISTENT, channel, connection, count, get, wait_for_count
from tests.process import HomingCommand, Server, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
CONFIG: dict[str, Any] = {
    **AMQP,
    "address-settings": {},
    "virtual-hosts": ["shop"],
    "policies": {"from-file": {"pattern": r"^filed\.", "definition": {"max-length": 2}}},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("policies"), CONFIG)
    yield server.start()
    server.close()
    gc.collect()


@pytest.fixture
def homing(broker: Server, tmp_path: Path) -> HomingCommand:
    command = HomingCommand(tmp_path)
    command.url = broker.url
    return command


@pytest.fixture
def ch(broker: Server) -> Iterator[BlockingChannel]:
    with channel(broker) as opened:
        opened.confirm_delivery()
        yield opened


def fill(ch: BlockingChannel, queue: str, messages: int) -> None:
    for number in range(messages):
        ch.basic_publish("", queue, str(number).encode(), PERSISTENT)


def deaths(properties: Any) -> list[tuple[str, str, int]]:
    return [(each["queue"], each["reason"], each["count"]) for each in properties.headers["x-death"]]


def effective(homing: HomingCommand, queue: str) -> tuple[Any, Any]:
    found = next(each for each in homing.json("queues") if each["name"] == queue)
    return found["policy"], found["effective_policy_definition"]


def test_a_length_limit_holds_for_queues_that_are_there_and_is_lifted_again(ch: BlockingChannel, homing: HomingCommand) -> None:
    ch.queue_declare("short.old", durable=True)
    fill(ch, "short.old", 5)
    homing.json("policy", "set", "short", r"^short\.", '{"max-length": 3}', "--apply-to", "queues")
    wait_for_count(ch, "short.old", 3)
    assert get(ch, "short.old")[2] == b"2"
    ch.queue_declare("short.new", durable=True, arguments={"x-max-length": 9})
    fill(ch, "short.new", 5)
    wait_for_count(ch, "short.new", 3)
    assert effective(homing, "short.new") == ("short", {"max-length": 3})
    shown = {each["key"]: each for each in homing.json("explain", "short.new")["settings"]}
    assert (shown["max-length"]["value"], shown["max-length"]["pattern"]) == (3, "policy short")
    assert (shown["max-delivery-attempts"]["value"], shown["max-delivery-attempts"]["pattern"]) == (-1, "default of classic queues")
    homing.json("policy", "clear", "short")
    assert effective(homing, "short.new") == (None, {})
    fill(ch, "short.new", 5)
    assert count(ch, "short.new") == 8


def test_a_dead_letter_exchange_comes_and_goes_with_its_policy(ch: BlockingChannel, homing: HomingCommand) -> None:
    ch.exchange_declare("graves", "direct", durable=True)
    for queue, key in (("grave", "buried"), ("other-grave", "own")):
        ch.queue_declare(queue, durable=True)
        ch.queue_bind(queue, "graves", key)
    ch.queue_declare("mortal", durable=True)
    own = {"x-dead-letter-exchange": "graves", "x-dead-letter-routing-key": "own"}
    ch.queue_declare("mortal.own", durable=True, arguments=own)
    definition = '{"dead-letter-exchange": "graves", "dead-letter-routing-key": "buried"}'
    homing.json("policy", "set", "mortals", "^mortal", definition, "--apply-to", "queues")
    assert homing.json("policy", "explain", "mortal")["dead_letter_exchange"] == "graves"
    assert "without end" in homing("policy", "explain", "mortal").stdout
    for queue, grave in (("mortal", "grave"), ("mortal.own", "other-grave")):
        fill(ch, queue, 1)
        method, _, _ = get(ch, queue, auto_ack=False)
        ch.basic_reject(method.delivery_tag, requeue=False)
        method, properties, _ = get(ch, grave)
        assert method.exchange == "graves"
        death = properties.headers["x-death"][0]
        assert (death["queue"], death["reason"], death["count"], death["routing-keys"]) == (queue, "rejected", 1, [queue])
    homing.json("policy", "clear", "mortals")
    fill(ch, "mortal", 1)
    method, _, _ = get(ch, "mortal", auto_ack=False)
    ch.basic_reject(method.delivery_tag, requeue=False)
    assert (count(ch, "mortal"), count(ch, "grave")) == (0, 0)


def test_a_retry_round_and_its_end_by_policy(ch: BlockingChannel, homing: HomingCommand) -> None:
    """The well-known retry: work → (rejected) → wait → (expired) → work, by policies alone; then a delivery limit."""
    for queue in ("round.work", "round.wait", "round.end"):
        ch.queue_declare(queue, durable=True)
    back = {"dead-letter-exchange": "", "dead-letter-routing-key": "round.work", "message-ttl": 300}
    homing.json("policy", "set", "wait", r"^round\.wait$", json.dumps(back))
    homing.json("policy", "set", "work", r"^round\.work$", '{"dead-letter-exchange": "", "dead-letter-routing-key": "round.wait"}')
    fill(ch, "round.work", 1)
    ch.basic_reject(get(ch, "round.work", auto_ack=False)[0].delivery_tag, requeue=False)
    method, properties, _ = get(ch, "round.work", auto_ack=False)
    assert deaths(properties) == [("round.wait", "expired", 1), ("round.work", "rejected", 1)]
    ended = {"delivery-limit": 1, "dead-letter-exchange": "", "dead-letter-routing-key": "round.end"}
    homing.json("policy", "set", "work", r"^round\.work$", json.dumps(ended))
    ch.basic_nack(method.delivery_tag, requeue=True)
    method, properties, _ = get(ch, "round.work", auto_ack=False)
    assert properties.headers["x-delivery-count"] == 1, "a queue with a delivery limit shows how often"
    ch.basic_nack(method.delivery_tag, requeue=True)
    _, properties, _ = get(ch, "round.end")
    assert deaths(properties)[0] == ("round.work", "delivery_limit", 1)
    homing.json("policy", "clear", "work")
    homing.json("policy", "clear", "wait")


def test_an_idle_queue_expires_by_policy(ch: BlockingChannel, homing: HomingCommand) -> None:
    for name in ("idle.soon", "busy"):
        ch.queue_declare(name, durable=True)
    homing.json("policy", "set", "idle", r"^idle\.", '{"expires": 500}')
    wait_until("the queue is gone", lambda: "idle.soon" not in {each["name"] for each in homing.json("queues")})
    homing.json("policy", "clear", "idle")
    assert "busy" in {each["name"] for each in homing.json("queues")}, "the policy does not hold for it"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"no queue 'idle\.soon'"):
        ch.queue_declare("idle.soon", passive=True)


def test_an_alternate_exchange_by_policy(ch: BlockingChannel, homing: HomingCommand) -> None:
    ch.exchange_declare("picky", "direct", durable=True)
    ch.exchange_declare("catch-all", "fanout", durable=True)
    ch.queue_declare("caught", durable=True)
    ch.queue_bind("caught", "catch-all")
    homing.json("policy", "set", "ae", "^picky$", '{"alternate-exchange": "catch-all"}', "--apply-to", "exchanges")
    ch.basic_publish("picky", "nobody", b"x", mandatory=True)
    assert get(ch, "caught")[0].exchange == "picky"
    homing.json("policy", "clear", "ae")
    with pytest.raises(pika.exceptions.UnroutableError):
        ch.basic_publish("picky", "nobody", b"x", mandatory=True)


def test_a_pattern_that_takes_too_long_is_refused_and_harms_nobody(broker: Server, ch: BlockingChannel, homing: HomingCommand) -> None:
    """What google-re2 takes is never slow. Else what is slow on a name that is there is refused; on a later one it does not hold."""
    homing.url = broker.url
    long = f"slow.{'a' * 200}1"
    assert homing("policy", "set", "slow", "(a+)+1$", '{"max-length": 7}').returncode == 0
    ch.queue_declare(long)
    assert effective(homing, long) == ("slow", {"max-length": 7})
    refused = homing("policy", "set", "slow", "^(?!amq)slow.(a|aa)+$", '{"max-length": 9}')
    assert refused.returncode == 2
    assert "takes too long on a name that is there" in refused.stderr
    assert effective(homing, long) == ("slow", {"max-length": 7})
    ch.queue_delete(long)
    assert homing("policy", "set", "slow", "^(?!amq)slower.(a|aa)+$", '{"max-length": 9}', "--priority", "1").returncode == 0
    for number in range(20):
        ch.queue_declare(f"slower.{'a' * 200}{number}")
        ch.queue_delete(f"slower.{'a' * 200}{number}")
    assert [each["name"] for each in homing.json("policy", "list") if each.get("slow")] == ["slow"]
    broker.logged("policy-slow: policy slow holds where its pattern takes too long only if before, as for queues slower.")
    assert homing("policy", "clear", "slow").returncode == 0


def test_a_queue_keeps_what_a_policy_gave_it_whose_pattern_is_slow_at_a_start(tmp_path: Path) -> None:
    """As one that an older broker took is, which asked for no time."""
    server, homing = Server(tmp_path / "slow", AMQP).start(), HomingCommand(tmp_path)
    try:
        homing.url = server.url
        kept, other = (f"slow.{'a' * 200}{end}" for end in (1, 2))
        assert homing("policy", "set", "old", "^(?!amq)slow.*1", '{"max-length": 7}').returncode == 0
        with connection(server) as opened:
            for name in (kept, other):
                opened.channel().queue_declare(name, durable=True)
        server.stop()
        with sqlite3.connect(server.directory / "data" / "homing.db") as journal:
            ((blob,),) = journal.execute("SELECT content_blob FROM declaration WHERE kind = 'policy'").fetchall()
            content = unpack(blob) | {"pattern": "^(?!amq)slow.(a|aa)+$"}
            journal.execute("UPDATE declaration SET content_blob = ? WHERE kind = 'policy'", (pack(content),))
        journal.close()
        server.start()
        homing.url = server.url
        assert effective(homing, kept) == ("old", {"max-length": 7})
        assert effective(homing, other) == (None, {})
        assert homing.json("status")["slow_policies"] == ["old"]
        assert "slow patterns of policies: old" in homing("status").stdout
        assert [each.get("slow") for each in homing.json("policy", "list")] == [True]
        assert homing("policy", "list").stdout.splitlines()[1].endswith("slow")
        server.logged("policy-slow: policy old holds where")
    finally:
        server.close()


def test_priority_and_virtual_host(broker: Server, ch: BlockingChannel, homing: HomingCommand) -> None:
    with connection(broker, virtual_host="shop") as there:
        for opened in (ch, there.channel()):
            opened.queue_declare("ranked", durable=True)
    homing.json("policy", "set", "low", "^ranked$", '{"max-length": 1}')
    homing.json("policy", "set", "high", "^ranked$", '{"message-ttl": 60000}', "--priority", "5")
    homing.json("policy", "set", "low", "^ranked$", '{"max-length": 7}', "--vhost", "shop")
    assert effective(homing, "ranked") == ("high", {"message-ttl": 60_000})
    assert effective(homing, "::shop.ranked") == ("low", {"max-length": 7})
    listed = {(each["virtual_host"], each["name"]) for each in homing.json("policy", "list")}
    assert {("/", "low"), ("/", "high"), ("shop", "low"), ("/", "from-file")} <= listed
    assert homing("policy", "set", "bad", "(a+", '{"max-length": 1}').returncode == 2
    assert homing("policy", "set", "bad", "a", "no json").returncode == 2
    assert homing("policy", "set", "bad", "a", '{"max-length": 99999999999999999999999}').returncode == 2
    assert homing("policy", "set", "bad", "a", '{"max-length": 1}', "--vhost", "nowhere").returncode == 4
    assert homing("policy", "clear", "nothing").returncode == 4
    assert homing("policy", "clear", "from-file").returncode == 1


def test_a_restart_keeps_policies_and_a_reload_takes_up_the_files(broker: Server, homing: HomingCommand) -> None:
    homing.json("policy", "set", "lasting", r"^lasting\.", '{"max-length": 2, "overflow": "reject-publish"}')
    with channel(broker) as ch:
        for queue in ("lasting.old", "filed.old"):
            ch.queue_declare(queue, durable=True)
    broker.kill()
    broker.start()
    homing.url = broker.url
    assert effective(homing, "lasting.old") == ("lasting", {"max-length": 2, "overflow": "reject-publish"})
    assert effective(homing, "filed.old") == ("from-file", {"max-length": 2})
    with channel(broker) as ch:
        ch.confirm_delivery()
        fill(ch, "lasting.old", 2)
        with pytest.raises(pika.exceptions.NackError):
            fill(ch, "lasting.old", 1)
        fill(ch, "filed.old", 4)
        wait_for_count(ch, "filed.old", 2)
        broker.config["policies"] = {"from-file": {"pattern": r"^filed\.", "definition": {"max-length": 1}}}
        broker.write_config()
        os.kill(broker.pid, signal.SIGHUP)
        wait_for_count(ch, "filed.old", 1)
        broker.config["policies"] = {}
        broker.write_config()
        os.kill(broker.pid, signal.SIGHUP)
        wait_until("the policy is gone", lambda: effective(homing, "filed.old") == (None, {}))
