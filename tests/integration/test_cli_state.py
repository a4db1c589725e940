"""What a broker says of its own state, and who is told what: each command on a real one. One broker for all tests here."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pika
import pytest

from tests.amqp_support import get, wait_for_count
from tests.process import HomingCommand, Server, wait_until

LIMIT: Final = 400_000
CONFIG = {
    "broker": {"store-limit": LIMIT},
    "log": {"file": "homing.log"},
    "amqp": {"port": 0},
    "http": {"port": 0},
    "address-settings": {"#": {"max-delivery-attempts": 1, "redelivery-delay": 0}},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("state"), CONFIG)
    yield server.start()
    server.close()


@pytest.fixture
def shell(broker: Server, homing: HomingCommand) -> HomingCommand:
    homing.url = broker.url
    return homing


def test_queues_are_chosen_sorted_and_cut_off(shell: HomingCommand) -> None:
    for number, name in enumerate(("eu.a", "eu.b", "us.a", "eu.b.late")):
        shell("send", name, "--body", "x", "--count", str(number + 1))

    def names(*words: str) -> list[str]:
        return [each["queue"] for each in shell.json("queues", *words)]

    assert names("eu.*") == ["eu.a", "eu.b"]
    assert names("eu.#") == ["eu.a", "eu.b", "eu.b.late"]
    assert names(".b") == ["eu.b", "eu.b.late"]
    assert names("eu", "--sort", "messages", "--top", "2") == ["eu.b.late", "eu.b"]
    shell("receive", "us.a", "--fail", "no")
    wait_until("it is dead", lambda: names("DLQ") == ["DLQ.us.a"])
    first = shell.json("queues", "--sort", "dead", "--top", "1")[0]
    assert (first["name"], first["dead"], first["pending"]) == ("DLQ.us.a", 1, 1)
    assert shell("queues", "nothing").stdout == "no queue fits nothing\n"
    assert shell("queues", "a..*").returncode == 2
    long = f"long.{'x' * 200}"
    shell("queue", "create", long)
    assert long in shell("queues", "long").stdout, "a pipe gets everything"


def connected(broker: Server, name: str) -> pika.BlockingConnection:
    port = int(broker.ready["amqp"].rpartition(":")[2])
    said = {"connection_name": name, "host": "web-3", "program_version": "2026.11"}
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, client_properties=said))


@contextmanager
def held_back(shell: HomingCommand, broker: Server, number: int, address: str) -> Iterator[None]:
    """There is a publisher like pika's tutorial's, which sends until it is told to wait."""
    connection, told = connected(broker, "shop@web-3"), list[str]()
    connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    channel = connection.channel()
    channel.queue_declare(address, durable=True)
    for _ in range(number):
        channel.basic_publish("", address, b"x" * 1000, pika.BasicProperties(delivery_mode=2))
    wait_until("it is told so", lambda: (connection.process_data_events(0.01), told)[1])
    try:
        yield
    finally:
        shell("queue", "delete", address, "--yes")  # so that it is read again, and may say goodbye
        connection.close()


def test_who_is_connected_and_who_waits_for_what(shell: HomingCommand, broker: Server) -> None:
    before = shell.json("status")
    assert (before["producers_wait"], shell.json("health")["producers_wait"]) == ([], [])
    assert before["limits"]["store-limit"]["limit"] == LIMIT
    with connected(broker, "billing@web-3") as connection, held_back(shell, broker, 2_000, "orders"):
        channel = connection.channel()
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume("orders", lambda *_: None, consumer_tag="billing-1")
        (blocked,) = [each for each in shell.json("connections") if each["blocked"]]
        assert (blocked["client"], blocked["host"], blocked["version"]) == ("shop@web-3", "web-3", "2026.11")
        assert (blocked["product"], blocked["product_version"]) == ("Pika Python Client Library", pika.__version__)
        assert (blocked["blocked"]["limit"], blocked["blocked"]["producers"]) == ("store-limit", 1)
        (consumer,) = shell.json("consumers", "orders")
        assert (consumer["consumer_tag"], consumer["client"], consumer["host"]) == ("billing-1", "billing@web-3", "web-3")
        assert consumer["blocked"] == "it holds as many as it may"
        # What fails is taken, though it is not durable and there is no room to keep it.
        channel.queue_declare("failing", durable=True)
        channel.basic_publish("", "failing", b"not durable")
        channel.basic_reject(get(channel, "failing", auto_ack=False)[0].delivery_tag, requeue=False)
        wait_for_count(channel, "DLQ.failing", 1)
        assert [each["transient"] for each in shell.json("dead", "DLQ.failing")] == [1]
        assert shell.json("status")["failed_not_kept"] == 1
        assert "found no room on disk" in " ".join(shell("status").stdout.split())
        shell("queue", "delete", "DLQ.failing", "--yes")

        assert "store-limit" in shell("connections").stdout
        assert "billing-1" in shell("consumers").stdout

        status = shell.json("status")
        (reached,) = status["producers_wait"]
        assert (reached["limit"], reached["producers"], reached["since_ms"]) == ("store-limit", 1, blocked["blocked"]["since_ms"])
        level, files = status["limits"]["store-limit"], status["journal"]
        assert level["used"] > level["limit"] == LIMIT
        assert 0 < status["limits"]["memory-limit"]["used"] < status["limits"]["memory-limit"]["limit"]
        assert min(files["database_bytes"], files["disk_free_bytes"], status["disk"]["free_bytes"], status["log_bytes"]) > 0
        assert "1 producer waits for " in shell("status").stdout
        assert shell("statistics").stdout.startswith("producers"), "its old name"
        assert {each["blocked"] for each in shell.json("queues")} == {"store-limit"}
        assert "producers wait: store-limit" in shell("queues").stdout

        probe = f"http://{broker.ready['http']}"
        for place in (broker.url, probe):
            done = shell("health", "--url", place)
            assert (done.returncode, done.stdout.splitlines()[0]) == (0, "ready"), "consumers must come"
            assert "store-limit" in done.stdout
        with urllib.request.urlopen(f"{probe}/metrics") as answer:
            assert b'homing_producers_wait{limit="store-limit"} 1.0' in answer.read()


def test_a_full_queue_is_named_to_whoever_has_logged_in_alone(shell: HomingCommand, broker: Server) -> None:
    shell("queue", "create", "small", "max-length=3", "overflow=block")
    with held_back(shell, broker, 10, "small"):
        assert [each["name"] for each in shell.json("queues") if each["blocked"] == "queue-full"] == ["small"]
        assert " full " in shell("queues", "small").stdout
        (reached,) = shell.json("status")["producers_wait"]
        assert "small" in reached["why"]
        (told,) = shell.json("health", "--url", f"http://{broker.ready['http']}")["producers_wait"]
        assert (told["limit"], told["why"], told["producers"]) == ("queue-full", None, 1)


def test_the_ids_by_which_programs_know_a_message_are_shown_and_found(shell: HomingCommand, broker: Server) -> None:
    with connected(broker, "shop@web-3") as connection:
        channel = connection.channel()
        channel.queue_declare("ids", durable=True)
        for number in range(3):
            headers = {"traced": True} if number else None
            said = pika.BasicProperties(
                content_type="text/plain", headers=headers, delivery_mode=2, priority=3, correlation_id="c", reply_to="r",
                message_id=f"m-{number}", timestamp=1_700_000_000, type="t", app_id="shop" if number < 2 else "cart",
            )  # fmt: skip
            channel.basic_publish("", "ids", b"x", said)
        channel.basic_publish("", "ids", b"x")
    shown = [(each["amqp_message_id"], each["app_id"]) for each in shell.json_lines("peek", "ids")]
    assert shown == [("m-0", "shop"), ("m-1", "shop"), ("m-2", "cart"), (None, None)]
    assert "message-id m-2  app-id cart" in shell("peek", "ids").stdout
    (found,) = shell.json_lines("peek", "ids", "--amqp-message-id", "m-1")
    assert found["app_id"] == "shop"
    assert [each["amqp_message_id"] for each in shell.json_lines("peek", "ids", "--app-id", "cart")] == ["m-2"]
    life = shell.json("history", str(found["message_id"]))["message"]
    assert (life["amqp_message_id"], life["app_id"]) == ("m-1", "shop")
    told = shell("history", str(found["message_id"])).stdout
    assert "=m-1" in told
    assert "=shop" in told
    for message_id in ("--amqp-message-id", "m-0"), ("--app-id", "nobody"):
        shell("dead", "delete", "ids", *message_id, "--living", "--yes")
    assert [each["amqp_message_id"] for each in shell.json_lines("peek", "ids")] == ["m-1", "m-2", None]
