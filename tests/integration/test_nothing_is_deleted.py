"""Whatever is configured, and however it fails, over whichever protocol: a durable message is there, once, also after a kill."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from ruamel.yaml import YAML

import homing
from examples.demo.processes import SETTINGS as DEMO
from homing.broker.config.config import Config
from homing.client import AckMode, RedeliveryPolicy, blocking
from tests.amqp_support import AMQP, PERSISTENT, channel, connect, cut, get
from tests.integration.test_documentation import blocks
from tests.process import ROOT, Server, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SECTIONS = ("limits", "broker", "journal", "address-settings", "addresses", "queues", "virtual-hosts", "policies", "users")
#: All that a broker.yaml may have.
KEYS = {field.alias for field in Config.model_fields.values()}
#: Queues of messages that their consumers keep.
HELD = ("held", "held.amqp")
#: More often than any limit that holds without a configuration.
OFTEN = 25


def examples() -> dict[str, dict[str, Any]]:
    """What the documentation and the demo configure. Patterns that stand alone are address settings."""
    found = {"demo": {"address-settings": {"#": DEMO}}}
    for page in sorted((ROOT / "docs").glob("*.md")):
        for number, text in enumerate(blocks(page, "yaml"), 1):
            written = YAML(typ="safe").load(text)
            if not isinstance(written, dict) or "scrape_configs" in written:  # no broker.yaml; Prometheus's
                continue
            whole = written if set(written) <= KEYS else {"address-settings": written}
            # Nobody here knows the passwords of users, and a node's log is in a database.
            found[f"{page.name} {number}"] = {key: value for key, value in whole.items() if key in SECTIONS and key != "users"}
            whole.get("journal", {}).pop("replication", None)
    return found


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "empty": dict.fromkeys(SECTIONS),
    "four lines": {"address-settings": {"orders.#": {"max-delivery-attempts": 3}}},
    "shipped": {key: value for key, value in YAML(typ="safe").load(ROOT / "broker.yaml").items() if key in SECTIONS},
    **examples(),
}


class Both(NamedTuple):
    server: Server
    amqp: BlockingChannel
    native: blocking.Connection

    def found(self) -> Counter[str]:
        """Message -> in how many queues it is, waiting, parked, or whatever."""
        names = [queue["name"] for queue in self.native.call("queues")]
        peeked = [self.native.call("peek", queue=name, limit=1000)["messages"] for name in names]
        return Counter(bytes(message["body"]).decode() for messages in peeked for message in messages)

    def figure(self, queue: str, what: str) -> int:
        return int(self.native.call("queue", queue=queue)[what])

    def hold(self) -> None:
        """Two messages, for longer than consumers may: the broker looks at that once a second, so it is asked for at the end."""
        native, amqp = HELD
        self.native.call("create-queue", queue=native, consumer_timeout_ms=1)
        self.send(native)
        assert self.native.session(AckMode.INDIVIDUAL).consumer(native).receive(timeout_ms=10_000) is not None
        self.publish(amqp, consumer_timeout=1)
        self.take(amqp)

    def attempts(self, address: str) -> int:
        """Those of its limit, or many."""
        settings = {each["key"]: each["value"] for each in self.native.call("explain", address=address)["settings"]}
        limit = int(settings["max-delivery-attempts"])
        return limit if limit > 0 else OFTEN

    def send(self, address: str) -> None:
        self.native.session().producer(address).send(address.encode())

    def publish(self, queue: str, **arguments: Any) -> None:
        self.amqp.queue_declare(queue, durable=True, arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()})
        self.amqp.basic_publish("", queue, queue.encode(), PERSISTENT)

    def take(self, queue: str) -> int:
        """Its tag."""
        return int(get(self.amqp, queue, auto_ack=False)[0].delivery_tag)


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """One broker for each configuration; at the end it is killed, and all that failed must be there again."""
    server = Server(tmp_path_factory.mktemp("kept"), {**AMQP, "address-settings": {}, **CONFIGURATIONS[request.param]})
    try:
        server.start()
        with channel(server) as ch, blocking.connect(server.url) as native:
            before = Both(server, ch, native)
            before.hold()
            yield before
            wait_until("their time was over", lambda: all(before.figure(name, "failed") == 1 for name in HELD))
            kept = before.found()
            assert [kept[name] for name in HELD] == [1, 1]
        server.kill()
        server.start()
        with channel(server) as ch, blocking.connect(server.url) as native:
            assert Both(server, ch, native).found() == kept
    finally:
        server.close()
        gc.collect()


WAYS: dict[str, Callable[[Both, str], None]] = {}


def way(test: Callable[[Both, str], None]) -> Callable[[Both, str], None]:
    WAYS[test.__name__.replace("_", "-")] = test
    return test


# -- Homing's own protocol ---------------------------------------------------------------------------------------------


def fail(both: Both, address: str, mode: AckMode = AckMode.INDIVIDUAL, times: int = 1, **options: Any) -> Iterator[tuple[Any, Any]]:
    """(session, message), ``times`` times; what is done with them fails it."""
    both.send(address)
    with both.native.session(mode) as session:
        consumer = session.consumer(address, **options)
        for _ in range(times):
            message = consumer.receive(timeout_ms=10_000)
            assert message is not None
            yield session, message


@way
def nacked_up_to_its_limit(both: Both, address: str) -> None:
    for _, message in fail(both, address, times=both.attempts(address)):
        message.nack(delay_ms=0)


@way
def nacked_once(both: Both, address: str) -> None:
    for _, message in fail(both, address):
        message.nack()


@way
def never_to_be_tried_again(both: Both, address: str) -> None:
    for _, message in fail(both, address):
        message.nack(retryable=False)


@way
def beyond_a_policy_of_the_consumer(both: Both, address: str) -> None:
    for _, message in fail(both, address, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0)):
        message.nack()


@way
def recovered(both: Both, address: str) -> None:
    for session, _ in fail(both, address, AckMode.CLIENT):
        session.recover()


@way
def rolled_back(both: Both, address: str) -> None:
    for session, _ in fail(both, address, AckMode.TRANSACTED):
        session.rollback()


@way
def with_a_lost_connection(both: Both, address: str) -> None:
    both.send(address)
    lost = blocking.connect(both.server.url, reconnect=False)
    consumer = lost.session(AckMode.CLIENT).consumer(address)
    assert consumer.receive(timeout_ms=10_000) is not None
    number = next(each["connection"] for each in both.native.call("consumers") if each["queue"] == address)
    both.native.call("close-connection", connection=number)
    with pytest.raises(homing.HomingError):
        consumer.receive(timeout_ms=10_000)
    lost.close()


@way
def raised_by_a_listener(both: Both, address: str) -> None:
    called = threading.Event()

    def handler(message: blocking.Message) -> None:
        called.set()
        raise TimeoutError(message.message_id)

    both.send(address)
    with both.native.session() as session:
        listener = session.listen(address, handler)
        assert called.wait(20)
        listener.stop()


@way
def expired(both: Both, address: str) -> None:
    both.native.call("create-queue", queue=f"{address}.late")
    both.native.call("create-queue", queue=address, message_ttl_ms=1, expiry_address=f"{address}.late")
    both.send(address)


@way
def without_room(both: Both, address: str) -> None:
    both.native.call("create-queue", queue=address, max_length=0, overflow="drop-head", dead_letter_address="DLA")
    both.send(address)


# -- AMQP --------------------------------------------------------------------------------------------------------------


@way
def rejected(both: Both, queue: str) -> None:
    both.publish(queue)
    both.amqp.basic_reject(both.take(queue), requeue=False)


@way
def rejected_of_a_queue_that_goes(both: Both, queue: str) -> None:
    with channel(both.server) as own:
        own.queue_declare(queue, durable=True, auto_delete=True)
        own.basic_publish("", queue, queue.encode(), PERSISTENT)
        own.basic_nack(get(own, queue, auto_ack=False)[0].delivery_tag, requeue=False)
        own.basic_cancel(own.basic_consume(queue, lambda *_: None))


@way
def rejected_in_a_transaction(both: Both, queue: str) -> None:
    both.publish(queue)
    with channel(both.server) as own:
        own.tx_select()
        own.basic_reject(get(own, queue, auto_ack=False)[0].delivery_tag, requeue=False)
        own.tx_commit()


@way
def expired_or_without_room(both: Both, queue: str) -> None:
    both.amqp.queue_declare(f"{queue}.aside", durable=True)
    for name, arguments in {"late": {"message_ttl": 1}, "full": {"max_length": 0}}.items():
        both.publish(f"{queue}.{name}", **arguments, dead_letter_exchange="", dead_letter_routing_key=f"{queue}.aside")
        wait_until("it left", lambda name=name: not both.figure(f"{queue}.{name}", "messages"))
        wait_until("it is set aside", lambda name=name: both.found()[f"{queue}.{name}"] == 1)
    both.publish(queue)


@way
def recovered_over_amqp(both: Both, queue: str) -> None:
    both.publish(queue, delivery_limit=0)
    with channel(both.server) as own:
        get(own, queue, auto_ack=False)
        own.basic_recover(requeue=True)


@way
def rejected_to_an_exchange_that_is_not_there(both: Both, queue: str) -> None:
    both.publish(queue, dead_letter_exchange="nowhere")
    both.amqp.basic_reject(both.take(queue), requeue=False)


def requeue(both: Both, queue: str, times: int) -> None:
    for _ in range(times):
        both.amqp.basic_reject(both.take(queue), requeue=True)


@way
def requeued_up_to_its_limit(both: Both, queue: str) -> None:
    for kind in ("classic", "quorum"):
        name = queue if kind == "classic" else f"{queue}.quorum"
        both.publish(name, queue_type=kind)
        at_once = both.native.call("explain", address=name)["amqp_returns_at_once"]
        requeue(both, name, both.attempts(name) if at_once else 1)
        wait_until("it is where it belongs", lambda name=name: both.found()[name] == 1)


@way
def requeued_beyond_a_limit_of_its_own(both: Both, queue: str) -> None:
    both.publish(queue, delivery_limit=0)
    requeue(both, queue, 1)


@way
def consumed_over_a_lost_connection(both: Both, queue: str) -> None:
    both.publish(queue, delivery_limit=0)
    lost = connect(both.server)
    get(lost.channel(), queue, auto_ack=False)
    cut(lost)


@pytest.mark.parametrize("name", WAYS)
def test_a_failed_message_is_there(both: Both, name: str) -> None:
    address = f"orders.{name}"
    WAYS[name](both, address)
    wait_until("nobody holds it", lambda: not any(each["delivering"] for each in both.native.call("queues") if each["name"] not in HELD))
    wait_until("it is where it belongs", lambda: both.found()[address] == 1)
