"""Narrow grants, and changes of rights that act at once on what is open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from argon2 import PasswordHasher
from pika.adapters.blocking_connection import BlockingChannel

import homing
from homing.client import AckMode
from tests.house import HASH, House, dead, made, opened
from tests.process import ROOT, HomingCommand, wait_until

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened(tmp_path_factory.mktemp("rights")) as found:
        yield found


def user_with(house: House, *grants: dict[str, Any]) -> str:
    name = house.name()
    house.admin.call("add-user", name=name, hash=HASH, grants=list(grants))
    return name


def test_a_grant_is_for_its_names_its_virtual_host_and_its_keys(house: House) -> None:
    house.admin.call("add-vhost", name="eu")
    user = user_with(
        house,
        {"rights": ["configure", "write", "read"], "pattern": "app.#", "virtual_host": "eu"},
        {"rights": ["write", "read"], "pattern": "amq.topic", "virtual_host": "eu", "keys": "orders.*"},
    )
    with pytest.raises(pika.exceptions.AMQPConnectionError, match="NOT_ALLOWED - access to vhost"):
        house.amqp(user)
    opened = house.amqp(user, "eu")

    def refused(act: Callable[[BlockingChannel], object]) -> bool:
        channel = opened.channel()
        try:
            act(channel)
        except pika.exceptions.ChannelClosedByBroker as error:
            return error.reply_code == 403 and "in vhost 'eu'" in error.reply_text
        channel.close()
        return False

    def publish(key: str) -> Callable[[BlockingChannel], object]:
        def act(channel: BlockingChannel) -> None:
            channel.confirm_delivery()
            channel.basic_publish("amq.topic", key, b"x")

        return act

    dead_letters = {"x-dead-letter-exchange": ""}
    assert not refused(lambda channel: channel.queue_declare("app.q"))
    assert refused(lambda channel: channel.queue_declare("other"))
    assert refused(lambda channel: channel.queue_declare("app.a", arguments=dead_letters)), "any queue could be written to"
    assert not refused(lambda channel: channel.queue_declare("app.b", arguments={**dead_letters, "x-dead-letter-routing-key": "app.q"}))
    assert not refused(lambda channel: channel.queue_bind("app.q", "amq.topic", "orders.*"))
    assert refused(lambda channel: channel.queue_bind("app.q", "amq.topic", "orders.#"))
    assert refused(lambda channel: channel.queue_bind("app.q", "amq.direct", "orders.eu"))
    assert not refused(publish("orders.eu"))
    assert refused(publish("bills.eu"))
    opened.close()
    client = house.client(user)
    client.session().producer("::eu.app.q").send(b"x")
    with pytest.raises(homing.HomingError, match="send access to address"):
        client.session().producer("app.q").send(b"x")


def test_events_are_for_whoever_may_consume_them(house: House) -> None:
    user = user_with(house, {"rights": ["create", "consume"], "pattern": "mine.#"})
    client = house.client(user)

    def made() -> None:
        client.call("create-queue", queue="mine.a", address="homing.events", routing_type="multicast")

    def subscribed() -> None:
        client.session().consumer("homing.events::mine.b").ready().close()

    for act in (made, subscribed):
        with pytest.raises(homing.HomingError, match=r"consume access to address 'homing\.events'"):
            act()
    house.admin.call("grant", name=user, rights=["consume"], pattern="homing.events")
    made()
    subscribed()


def test_who_may_not_follow_events_is_told_what_to_grant_for_good(house: House, tmp_path: Path) -> None:
    user = user_with(house, {"rights": ["monitor"]})
    command, url = HomingCommand(tmp_path), house.server.url.replace("//", f"//{user}:pw@")

    def refused() -> str:
        done = command("events", "--follow", url=url)
        assert done.returncode == 1
        return done.stderr

    said = refused()
    assert "create access to queue 'events.*'" in said
    assert f"homing user grant {user} create --on 'events.*' (it takes create on 'events.*' and consume on homing.events)" in said
    house.admin.call("grant", name=user, rights=["create"], pattern="events.*")
    assert f"homing user grant {user} consume --on 'homing.events'" in refused()
    house.admin.call("grant", name=user, rights=["consume"], pattern="homing.events")
    following = subprocess.Popen(
        [sys.executable, "-m", "homing", "events", "--follow", "--url", url], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with following:
        wait_until("it follows", lambda: any(each["name"].startswith("events.") for each in house.admin.listing("queues")))
        dead(house, house.name())
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["event"] == "fault.new"
        following.terminate()


def test_what_is_granted_and_revoked_acts_on_connections_that_are_open(house: House) -> None:
    user, name = user_with(house), house.name()
    made(house, name)
    sender = user_with(house, {"rights": ["send"]})
    client, over_amqp = house.native(user), house.amqp(sender)
    with pytest.raises(homing.HomingError, match="send access"):
        client.session().producer(name).send(b"x")
    house.admin.call("grant", name=user, rights=["send"], pattern=name)
    client.session().producer(name).send(b"x")
    house.admin.call("grant", name=user, rights=["consume"], pattern=name)
    consumer = client.session().consumer(name)
    assert consumer.receive(timeout_ms=20_000) is not None
    house.admin.call("revoke", name=user, rights=["consume"], pattern=name)
    with pytest.raises(homing.HomingError, match="the right to consume from queue"):
        consumer.receive(timeout_ms=20_000)
    channel = over_amqp.channel()
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x")
    house.admin.call("revoke", name=sender, rights=["send"])
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="send access to queue"):
        channel.basic_publish("", name, b"x")
    client.close()
    over_amqp.close()


def test_dead_letters_of_what_was_acknowledged_are_made_for_who_may_send_there(house: House) -> None:
    name = house.name()
    made(house, name)
    house.admin.call("set-settings", layers={name: {"keep-settled-failures": True}})
    found = []
    for rights in (["consume"], ["consume", "send"]):
        house.admin.session().producer(name).send(b"x")
        with house.amqp(user_with(house, {"rights": rights, "pattern": name})) as program:
            channel = program.channel()
            method, _, _ = next(channel.consume(name, auto_ack=True))
            said = {"delivery_tag": method.delivery_tag, "consumer_tag": method.consumer_tag, "error_type": "Late", "routing_key": name}
            channel.confirm_delivery()
            channel.basic_publish("homing.failure", "", b"x", pika.BasicProperties(headers=said))
        (fault,) = house.admin.call("faults", queue=name)["items"]
        found.append((fault["failures"], fault["dead"]))
    assert found == [(1, 0), (2, 1)]


@pytest.mark.parametrize(("pattern", "shown"), [("#", True), ("DLQ.#", False)])
def test_a_fault_is_shown_with_its_dead_letter_to_who_may_browse_where_it_failed(house: House, pattern: str, shown: bool) -> None:
    name = house.name()
    dead(house, name)
    client = house.native(user_with(house, {"rights": ["browse"], "pattern": pattern}))
    for verb in ("peek", "peek-dead-letters"):
        (message,) = client.call(verb, queue=f"DLQ.{name}")["messages"]
        assert (message["fault"] is not None) is shown
        assert message["refused"] == (None if shown else "browse")
    # A dry run tells no more than that, and that neither end of the way may be used.
    plan = client.call("reckon-redrive", queue=f"DLQ.{name}")
    assert [each["fault"] is not None for each in plan["samples"]] == [shown]
    refused = {(each["code"], each["queue"], each["messages"]) for each in plan["would_bounce"] if each["code"].endswith("refused")}
    assert refused == {("consume-refused", f"DLQ.{name}", 1), ("access-refused", name, 1)}
    client.close()


@pytest.mark.parametrize("change", ["change-password", "delete-user"])
def test_a_login_that_counts_no_more_ends_at_once(house: House, change: str) -> None:
    user = user_with(house, {"rights": ["consume", "create"]})
    client, over_amqp = house.native(user), house.amqp(user)
    consumer = client.session().consumer(house.name()).ready()
    other = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("another")
    house.admin.call(change, name=user, **({"hash": other} if change == "change-password" else {}))
    with pytest.raises(homing.HomingError):
        consumer.receive(timeout_ms=20_000)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="this login counts no more"):
        over_amqp.process_data_events(20)
    with pytest.raises(homing.HomingError, match="the user or the password is wrong"):
        house.native(user)
    client.close()


@pytest.mark.parametrize("lost", ["consume", "send", "all of them"])
def test_a_redrive_stops_when_who_started_it_may_not_go_on(house: House, lost: str) -> None:
    name = house.name()
    dead(house, name)
    dead(house, name)
    grants = [{"rights": [right], "pattern": "#"} for right in ("consume", "send", "browse")]
    user = user_with(house, *grants)
    job = house.client(user).call("start-redrive", queue=f"DLQ.{name}", canary=1)["job_id"]
    wait_until("the canary is sent", lambda: house.admin.call("redrive-status", redrive=job)["sent"] == 1)
    if lost == "all of them":
        house.admin.call("delete-user", name=user)
    else:
        house.admin.call("revoke", name=user, rights=[lost], pattern="#")
    with house.admin.session(AckMode.INDIVIDUAL) as session:
        message = session.consumer(name).receive(timeout_ms=20_000)
        assert message is not None
        message.acknowledge()
    wait_until("it has stopped", lambda: house.admin.call("redrive-status", redrive=job)["state"] == "stopped")
    found = house.admin.call("redrive-status", redrive=job)
    right = "send" if lost == "send" else "consume"
    assert (found["sent"], found["succeeded"], found["user"]) == (1, 1, user)
    assert found["why"].startswith(f"{right} access to queue ")
    assert house.admin.call("queue", queue=f"DLQ.{name}")["messages"] == 1
    reported = {"action": "redrive", "user": user, "from": f"redrive {job}", "result": "access-refused", "right": right}
    wait_until("the audit has it", lambda: any(reported.items() <= line.items() for line in house.lines()))


def test_the_audit_says_which_dead_letters_were_meant_where_they_went_and_how_many(house: House) -> None:
    name = house.name()
    dead(house, name)
    dead(house, name)
    queue, target = f"DLQ.{name}", house.name()
    made(house, target)
    error_type = house.admin.call("peek-dead-letters", queue=queue)["messages"][0]["fault"]["error_class"]
    wanted = {"error_type": error_type, "body_contains": b"x", "where": "JMSPriority = 4"}
    (first, second) = [each["message_id"] for each in house.admin.call("peek-dead-letters", queue=queue, filter=wanted)["messages"]]
    house.admin.call("histories", queue=queue, filter=wanted)
    house.admin.call("move-dead-letters", queue=queue, to=target, filter={"message_ids": [first]})
    house.admin.call("delete-dead-letters", queue=queue, filter={"message_ids": [second]})
    house.admin.call("redrive", queue=target)

    keys = ("action", "filter", "to", "messages")

    def lines() -> list[Any]:
        mine = [line for line in house.lines() if {queue, target} & {*line.get("on", ())}]
        return [{key: line[key] for key in keys if key in line} for line in mine][-5:]

    shown = {"filter": {**wanted, "body_contains": "x"}, "messages": 2}
    expected = [
        {"action": "peek-dead-letters", **shown},
        {"action": "histories", **shown},
        {"action": "move-dead-letters", "filter": {"message_ids": [first]}, "to": target, "messages": 1},
        {"action": "delete-dead-letters", "filter": {"message_ids": [second]}, "messages": 1},
        {"action": "redrive", "messages": 1},
    ]
    wait_until("the audit has it", lambda: lines() == expected)


def test_the_audit_tells_settings_that_are_set_from_those_taken_back(house: House) -> None:
    name, user = house.name(), user_with(house)
    set_some, unset = ("set-settings", {"layers": {name: {"max-length": 5}}}), ("unset-settings", {"pattern": name})
    for verb, arguments in (set_some, unset):
        with pytest.raises(homing.HomingError, match="manage access to address"):
            house.client(user).call(verb, **arguments)
        house.admin.call(verb, **arguments)
    wanted = [
        *(("set-settings", user, "access-refused"), ("set-settings", "admin", "done")),
        *(("unset-settings", user, "access-refused"), ("unset-settings", "admin", "done")),
    ]

    def found() -> list[tuple[str, str, str]]:
        return [(line["action"], line["user"], line["result"]) for line in house.lines() if line.get("on") == [name]]

    wait_until("the audit has a line of each", lambda: len(found()) >= len(wanted))
    assert found() == wanted


def test_no_line_of_the_audit_has_a_hash_or_a_password(house: House) -> None:
    name = house.name()
    made(house, name)
    house.admin.call("purge", queue=name)
    wait_until("the audit has it", lambda: any(line["action"] == "purge" and line["on"] == [name] for line in house.lines()))
    text = (house.server.directory / "audit.log").read_text() + house.server.log_path.read_text()
    assert "argon2id" not in text
    logins = [line for line in house.lines() if line["action"] == "login"]
    assert {(line["user"], line["protocol"], line["result"]) for line in logins} >= {("admin", "native", "done")}
    line = next(line for line in house.lines() if line["action"] == "purge" and line["on"] == [name])
    assert line.keys() == {"action", "from", "messages", "on", "result", "time", "user"}
    assert line["from"].startswith("127.0.0.1:")
