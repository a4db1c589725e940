"""Events: what happens that an operator wants to hear of, as messages on the address ``homing.events``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from string import ascii_letters
from typing import Any

import pika.exceptions
import pytest

from homing import HomingError
from homing.client import AckMode, blocking
from tests.amqp_support import AMQP, channel, connection, get
from tests.process import ROOT, HomingCommand, Server, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
EVENTS = "homing.events"
SETTINGS: dict[str, Any] = {
    "#": {"redelivery-delay": 0},
    "die.#": {"max-delivery-attempts": 1, "dead-letters-threshold": 3, "owner": "team-die", "runbook": "https://wiki.example/die"},
    "full": {"max-length": 1, "overflow": "reject-publish"},
}


class Watched:
    """A broker, and a queue of all its events."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.native = blocking.connect(server.url)
        self._before = self.native.call("statistics")["events"]
        self.native.call("create-queue", queue="watch", address=EVENTS, routing_type="multicast")
        self._session = self.native.session(AckMode.INDIVIDUAL)
        self._consumer = self._session.consumer("watch")
        self.seen: list[dict[str, Any]] = []

    def fail(self, address: str, error: Exception, times: int = 1) -> None:
        """So many messages, each once."""
        with self.native.session(AckMode.INDIVIDUAL) as session:
            producer = session.producer(address)
            for _ in range(times):
                producer.send(b"x")
            consumer = session.consumer(address)
            for _ in range(times):
                message = consumer.receive(timeout_ms=20_000)
                assert message is not None
                message.nack(error=error, delay_ms=3_600_000)

    def event(self, name: str, subject: str | None = None) -> dict[str, Any]:
        """The next one that is called so; what comes before it is remembered."""
        for each in self.seen:
            if each["event"] == name and subject in (None, each["subject"]):
                self.seen.remove(each)
                return each
        while True:
            message = self._consumer.receive(timeout_ms=20_000)
            assert message is not None, f"no event {name}; seen: {self.seen}"
            message.acknowledge()
            reported = json.loads(message.body)
            assert message.properties["event"] == reported["event"]
            if reported["event"] == name and subject in (None, reported["subject"]):
                return dict(reported)
            self.seen.append(reported)

    def made(self) -> dict[str, int]:
        """Since a queue is bound."""
        counts = {name: each["made"] - self._before[name]["made"] for name, each in self.native.call("statistics")["events"].items()}
        return {name: number for name, number in counts.items() if number}

    def close(self) -> None:
        self.native.close()
        self.server.close()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    server = Server(tmp_path_factory.mktemp("events"), {**AMQP, "address-settings": SETTINGS, "broker": {"name": "north"}}).start()
    with blocking.connect(server.url) as native:
        with native.session(AckMode.INDIVIDUAL) as session:
            session.producer("unheard").send(b"x")
            message = session.consumer("unheard").receive(timeout_ms=20_000)
            assert message is not None
            message.nack(error="nobody listens", retryable=False)
        wait_until("it is dead", lambda: any(each["name"] == "DLQ.unheard" for each in native.listing("queues")))
    found = Watched(server)
    yield found
    found.close()


def test_a_fault_is_told_of_when_it_is_new_grows_and_comes_back(watched: Watched) -> None:
    watched.fail("slow", TimeoutError("no answer"))
    new = watched.event("fault.new")
    assert (new["broker"], new["queue"], new["error"], new["subject"]) == ("north", "slow", "TimeoutError: no answer", new["fault"])
    assert new["meaning"] == "deliveries of queue slow fail as none did before: TimeoutError: no answer"
    assert new["command"] == f"homing faults show {new['fault']}"
    watched.fail("slow", TimeoutError("no answer"), 11)
    assert watched.event("fault.growing")["failures"] == 10
    watched.native.call("fault-fixed", fault=new["fault"])
    watched.fail("slow", TimeoutError("no answer"))
    assert watched.event("fault.regressed")["fixed_in"] == "all versions"
    watched.native.call("mute-fault", fault=new["fault"])
    watched.native.call("fault-fixed", fault=new["fault"])
    watched.fail("slow", TimeoutError("no answer"))
    assert watched.made() == {"fault.new": 1, "fault.growing": 1, "fault.regressed": 1}


def test_dead_letters_are_told_of_at_the_first_and_at_the_threshold(watched: Watched) -> None:
    watched.fail("die.slowly", KeyError("x"), 2)
    first = watched.event("dead-letters.first", "die.slowly")
    assert (first["dead_in"], first["reason"], first["command"]) == ("DLQ.die.slowly", "delivery_limit", "homing faults die.slowly")
    watched.fail("die.slowly", KeyError("x"), 3)
    assert watched.event("dead-letters.threshold", "die.slowly")["number"] == 3
    job = watched.native.call("start-redrive", queue="DLQ.die.slowly")["job_id"]
    done = watched.event("redrive.done")
    assert (done["subject"], done["queue"], done["sent"]) == (str(job), "DLQ.die.slowly", 5)
    assert done["command"] == f"homing redrives status {job}"
    assert {(each["owner"], each["runbook"]) for each in (first, done)} == {("team-die", "https://wiki.example/die")}


def test_of_a_storm_there_are_a_handful(watched: Watched) -> None:
    with watched.native.session(AckMode.INDIVIDUAL) as session:
        producer, consumer = session.producer("storm"), session.consumer("storm")
        for letter in ascii_letters:
            producer.send(b"x")
            message = consumer.receive(timeout_ms=20_000)
            assert message is not None
            message.nack(error=type(f"Error{letter}", (Exception,), {})(""), delay_ms=3_600_000)
    wait_until("all have failed", lambda: len(watched.native.listing("faults", queue="storm")) == len(ascii_letters))
    assert watched.native.call("statistics")["events"]["fault.new"]["left_out"] == len(ascii_letters) - 10


def test_a_full_queue_is_told_of_once(watched: Watched) -> None:
    with watched.native.session() as session:
        producer = session.producer("full")
        producer.send(b"x")
        for _ in range(3):
            with pytest.raises(HomingError) as refusal:
                producer.send(b"x")
            assert refusal.value.code == "queue-full"
    full = watched.event("queue.full")
    assert (full["subject"], full["number"]) == ("full", 1)
    assert watched.made()["queue.full"] == 1


def test_an_amqp_queue_has_those_that_it_is_bound_to(watched: Watched) -> None:
    with channel(watched.server) as ch:
        ch.queue_declare("alarms", durable=True)
        ch.queue_bind("alarms", EVENTS, "dead-letters.*")
        watched.fail("die.over-amqp", ValueError("x"))
        method, properties, body = get(ch, "alarms")
        assert (method.exchange, method.routing_key, properties.content_type) == (EVENTS, "dead-letters.first", "application/json")
        assert json.loads(body)["subject"] == "die.over-amqp"
        ch.exchange_declare(EVENTS, "topic", passive=True)


def test_nobody_else_sends_or_makes_what_is_called_so(watched: Watched) -> None:
    native = watched.native
    for do in (
        lambda: native.session().producer(EVENTS).send(b"x"),
        lambda: native.session().producer("homing.mine").send(b"x"),
        lambda: native.session().consumer("homing.mine").ready(),
        lambda: native.call("create-queue", queue="homing.mine"),
        lambda: native.call("create-queue", queue="mine", address="homing.mine"),
    ):
        with pytest.raises(HomingError) as refusal:
            do()
        assert refusal.value.code == "reserved-name"
    with connection(watched.server) as opened:
        for publish in (
            lambda ch: ch.basic_publish(EVENTS, "fault.new", b"x"),
            lambda ch: ch.exchange_delete(EVENTS),
            lambda ch: ch.exchange_bind(EVENTS, "amq.topic", "#"),
            lambda ch: ch.queue_declare("homing.mine"),
        ):
            ch = opened.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                _answered(ch, publish)
            assert closed.value.reply_code == 403


def _answered(ch: Any, do: Callable[[Any], object]) -> None:
    do(ch)
    ch.basic_qos()


def test_an_event_that_dies_is_dropped_and_no_event(watched: Watched) -> None:
    watched.fail("die.quietly", ValueError("x"))
    with closing(blocking.connect(watched.server.url)) as native, native.session(AckMode.INDIVIDUAL) as session:
        native.call("create-queue", queue="careless", address=EVENTS, routing_type="multicast", max_length=2)
        before = native.call("queue", queue="careless")
        for number in range(4):
            watched.fail(f"die.{number}", ValueError("x"))
            watched.event("dead-letters.first", f"die.{number}")
        # Two for each: the fault and the death. The two that came last are left.
        assert native.call("queue", queue="careless")["dropped"] - before["dropped"] == 6
        consumer = session.consumer("careless")
        for name in ("fault.new", "dead-letters.first"):
            message = consumer.receive(timeout_ms=20_000)
            assert message is not None
            reported = json.loads(message.body)
            assert (reported["event"], reported["queue"]) == (name, "die.3")
            message.nack(error="cannot be read", retryable=False)
        wait_until("both are dropped", lambda: native.call("queue", queue="careless")["dropped"] - before["dropped"] == 8)
        assert "DLQ.careless" not in {each["name"] for each in native.listing("queues")}
        native.call("delete-queue", queue="careless")
    assert not [each for each in watched.seen if each.get("queue") == "careless"]


def test_the_command_follows(watched: Watched) -> None:
    command = [sys.executable, "-m", "homing", "events", "--follow", "--url", watched.server.url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        wait_until("it listens", lambda: any(each["name"].startswith("events.") for each in watched.native.listing("queues")))
        watched.fail("die.followed", KeyError("x"))
        assert following.stdout is not None
        lines = [json.loads(following.stdout.readline()) for _ in range(2)]
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 0
    assert [(line["event"], line["queue"]) for line in lines] == [("fault.new", "die.followed"), ("dead-letters.first", "die.followed")]


def test_durable_queues_have_them_after_a_restart(watched: Watched, homing: HomingCommand) -> None:
    watched.native.call("create-queue", queue="kept", address=EVENTS, routing_type="multicast", selector="event = 'fault.new'")
    watched.fail("die.last", KeyError("x"))
    watched.native.close()
    watched.server.restart()
    watched.native = blocking.connect(watched.server.url)
    with watched.native.session() as session:
        message = session.consumer("kept").receive(timeout_ms=20_000)
        assert message is not None
        assert json.loads(message.body)["queue"] == "die.last"
    assert homing.json("events", url=watched.server.url)["fault.new"] == {"made": 0, "left_out": 0}


def test_they_are_kept_whether_anybody_listens_or_not(watched: Watched, homing: HomingCommand) -> None:
    """Made before there was a queue of events, and before a restart."""
    url = watched.server.url
    kept = homing.json("events", "--since", "1h", "--kind", "dead-letters.*", "--kind", "fault.new", url=url)
    first = [(each["event"], each["queue"]) for each in kept if each["queue"] == "unheard"]
    assert first == [("fault.new", "unheard"), ("dead-letters.first", "unheard")]
    assert {each["event"] for each in kept} <= {"fault.new", "dead-letters.first", "dead-letters.threshold"}
    shown = homing("events", "--kind", "dead-letters.first", url=url).stdout
    assert "messages of queue unheard are dead-lettered (not-retryable); the first ones are in DLQ.unheard" in shown
    assert homing.json("events", "--since", "2100-01-01", url=url) == []
    assert "there are no events" in homing("events", "--kind", "nothing", url=url).stderr
