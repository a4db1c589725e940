"""Virtual hosts from outside: a real server, pika, the command ``homing`` and the native client."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pika
import pika.exceptions
import pytest

from homing import client
from tests.amqp_support import AMQP, PERSISTENT, connect, connection, get
from tests.process import HomingCommand, Server

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("vhosts"), {**AMQP, "virtual-hosts": ["shop"]})
    yield server.start()
    server.close()
    gc.collect()


@pytest.fixture
def homing(broker: Server, tmp_path: Path) -> HomingCommand:
    command = HomingCommand(tmp_path)
    command.url = broker.url
    return command


def refusal(server: Server, virtual_host: str) -> str:
    """What a connection that opens this virtual host is told."""
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as refused:
        connect(server, virtual_host=virtual_host)
    return str(refused.value)


def test_the_same_names_in_two_virtual_hosts_are_two_things(broker: Server) -> None:
    with connection(broker) as here, connection(broker, virtual_host="shop") as there:
        channels = [(here.channel(), b"here", "fanout"), (there.channel(), b"there", "direct")]
        for ch, body, kind in channels:
            ch.exchange_declare("apart", kind, durable=True)
            ch.queue_declare("apart", durable=True)
            ch.queue_bind("apart", "apart", "key")
            ch.basic_publish("apart", "key", body, PERSISTENT)
            ch.basic_publish("", "apart", body, PERSISTENT)
        for ch, body, _ in channels:
            for exchange, key in (("apart", "key"), ("", "apart")):
                method, _, found = get(ch, "apart")
                assert (method.exchange, method.routing_key, found) == (exchange, key, body)
            assert ch.basic_get("apart")[0] is None


@pytest.mark.parametrize("name", ["only.there", "::shop.only.there"])
def test_nothing_of_another_virtual_host_can_be_named(broker: Server, name: str) -> None:
    with connection(broker) as here, connection(broker, virtual_host="shop") as there:
        theirs = there.channel()
        theirs.queue_declare("only.there")
        ours = here.channel()
        ours.confirm_delivery()
        with pytest.raises(pika.exceptions.UnroutableError):
            ours.basic_publish("", name, b"astray", mandatory=True)
        headers = pika.BasicProperties(headers={"CC": [name]})
        with pytest.raises(pika.exceptions.UnroutableError):
            ours.basic_publish("", "nobody", b"astray", headers, mandatory=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            ours.queue_declare(name, passive=True)
        assert (closed.value.reply_code, closed.value.reply_text) == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            here.channel().queue_bind(name, "amq.direct", "key")
        assert closed.value.reply_code == 404
        theirs.queue_delete("only.there")


def test_a_virtual_host_that_is_not_there_is_not_allowed(broker: Server) -> None:
    assert "(530) 'NOT_ALLOWED - vhost nowhere not found'" in refusal(broker, "nowhere")


def test_dead_letters_stay_in_their_virtual_host(broker: Server) -> None:
    with connection(broker, virtual_host="shop") as there:
        ch = there.channel()
        ch.queue_declare("dead", durable=True)
        ch.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
        ch.queue_declare("plain", durable=True)
        for queue in ("work", "plain"):
            ch.basic_publish("", queue, b"bad", PERSISTENT)
            method, _, _ = get(ch, queue, auto_ack=False)
            ch.basic_reject(method.delivery_tag, requeue=False)
        method, properties, _ = get(ch, "dead")
        assert (method.exchange, method.routing_key) == ("", "dead")
        death = properties.headers["x-death"][0]
        assert (death["queue"], death["exchange"], death["routing-keys"]) == ("work", "", ["work"])
        assert properties.headers["x-first-death-queue"] == "work"
        # The address settings' dead-letter address is one of the same virtual host too.
        assert get(ch, "DLQ.plain")[2] == b"bad"


def test_direct_replies_come_back_within_a_virtual_host(broker: Server) -> None:
    with connection(broker, virtual_host="shop") as there:
        ch = there.channel()
        ch.queue_declare("questions")
        answers: list[bytes] = []
        ch.basic_consume("amq.rabbitmq.reply-to", lambda _c, _m, _p, body: answers.append(body), auto_ack=True)
        ch.basic_publish("", "questions", b"?", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        server = there.channel()
        _, properties, _ = get(server, "questions")
        server.basic_publish("", properties.reply_to, b"!")
        for _ in range(100):
            there.process_data_events(0.1)
            if answers:
                break
        assert answers == [b"!"]


def _until_closed(opened: Any) -> NoReturn:
    while True:
        opened.process_data_events(1)


def test_made_and_deleted_by_command(broker: Server, homing: HomingCommand) -> None:
    assert homing.json("vhost", "add", "a.b") == {"name": "a.b", "prefix": "::a%2Eb.", "queues": 0, "messages": 0, "connections": 0}
    with connection(broker, virtual_host="a.b") as there:
        ch = there.channel()
        ch.exchange_declare("kept", "topic", durable=True)
        ch.queue_declare("kept", durable=True)
        ch.queue_bind("kept", "kept", "#")
        ch.confirm_delivery()
        for _ in range(3):
            ch.basic_publish("kept", "any", b"x", PERSISTENT)
        listed = {each["name"]: each for each in homing.json("vhost", "list")}
        assert listed["a.b"] == {"name": "a.b", "prefix": "::a%2Eb.", "queues": 1, "messages": 3, "connections": 1}
        assert homing.json("vhost", "delete", "a.b", "--yes") == {"queues": 1, "messages": 3}
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            _until_closed(there)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - vhost 'a.b' is deleted")
    assert "(530)" in refusal(broker, "a.b")
    homing.json("vhost", "add", "a.b")
    with connection(broker, virtual_host="a.b") as there, pytest.raises(pika.exceptions.ChannelClosedByBroker):
        there.channel().exchange_declare("kept", passive=True)
    assert homing("vhost", "delete", "/", "--yes").returncode == 2
    assert homing("vhost", "delete", "nowhere").returncode == 4
    homing.json("vhost", "delete", "a.b", "--yes")


async def test_native_clients_reach_them_by_their_full_names(broker: Server) -> None:
    with connection(broker, virtual_host="shop") as there:
        ch = there.channel()
        ch.queue_declare("both", durable=True)
        ch.basic_publish("", "both", b"from AMQP", PERSISTENT)
        async with client.connect(broker.url) as native:
            session = native.session(client.AckMode.INDIVIDUAL)
            consumer = session.consumer("::shop.both")
            message = await consumer.receive(timeout_ms=10_000)
            assert message is not None
            assert message.body == b"from AMQP"
            await message.acknowledge()
            await consumer.close()
            await session.producer("::shop.both").send(b"from native")
            with pytest.raises(client.HomingError):
                await session.producer("::nowhere.both").send(b"lost")
        method, _, body = get(ch, "both")
        assert (method.exchange, method.routing_key, body) == ("", "both", b"from native")


def test_a_restart_keeps_them(broker: Server, homing: HomingCommand) -> None:
    homing.json("vhost", "add", "stays")
    homing.json("vhost", "add", "goes")
    homing.json("vhost", "delete", "goes", "--yes")
    with connection(broker, virtual_host="stays") as there:
        ch = there.channel()
        ch.exchange_declare("kept", "topic", durable=True)
        ch.queue_declare("kept", durable=True)
        ch.queue_bind("kept", "kept", "#")
        ch.confirm_delivery()
        ch.basic_publish("kept", "before", b"1", PERSISTENT)
    broker.restart()
    homing.url = broker.url
    assert [each["name"] for each in homing.json("vhost", "list")] == ["/", "shop", "stays"]
    with connection(broker, virtual_host="stays") as there:
        ch = there.channel()
        ch.basic_publish("kept", "after", b"2", PERSISTENT)
        assert [get(ch, "kept")[2] for _ in range(2)] == [b"1", b"2"]
