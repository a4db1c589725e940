"""Every verb with every right, over every front end, against one broker: who lacks a right that the verb asks for is refused, told which,
changes nothing, and stands in the audit; who lacks any other right is not.

The cells come from what the verbs declare; one that declares a right of which there is no operation here fails.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import homing
from homing.broker.auth.access import Needs, declared
from homing.broker.core.rights import Right
from homing.broker.management.calls import VERBS
from homing.client import AckMode, blocking
from tests import inside
from tests.house import HASH, House, dead, filled, made, opened
from tests.process import HomingCommand, wait_until
from tests.stomp_support import Link, StompRefused

# pika leaves its sockets to the collector where a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SEND, CONSUME, BROWSE, CREATE, MANAGE, MONITOR, ADMINISTER = Right
CONFIRMED = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with opened(tmp_path_factory.mktemp("rights")) as found:
        yield found


# -- operations ----------------------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    front_end: str
    #: By its name in the audit, or the call of management.
    verb: str
    #: The rights it takes as it is done here.
    needs: frozenset[Right]
    act: Callable[[House, str, str, Any], object]
    #: By somebody who may; what it returns is given to ``act``.
    before: Callable[[House, str], Any]
    #: Rights without which it does not even find what it is about.
    sees: frozenset[Right] = frozenset()


OPERATIONS: list[Operation] = []


def nothing(house: House, name: str) -> None:
    """No preparation."""


def call(
    verb: str, *needs: Right, before: Callable[[House, str], Any] = nothing, sees: tuple[Right, ...] = ()
) -> Callable[[Callable[[str, Any], dict[str, Any]]], None]:
    """A call of management; what is decorated makes its arguments."""

    def add(arguments: Callable[[str, Any], dict[str, Any]]) -> None:
        def act(house: House, user: str, name: str, prepared: Any) -> object:
            return house.client(user).call(verb, **arguments(name, prepared))

        OPERATIONS.append(Operation("call", verb, frozenset(needs), act, before, frozenset(sees)))

    return add


def native(verb: str, *needs: Right, before: Callable[[House, str], Any] = nothing) -> Callable[[Callable[..., object]], None]:
    def add(act: Callable[[blocking.Connection, str], object]) -> None:
        def by(house: House, user: str, name: str, _: Any) -> object:
            return act(house.client(user), name)

        OPERATIONS.append(Operation("native", verb, frozenset(needs), by, before))

    return add


def amqp(verb: str, *needs: Right, before: Callable[[BlockingChannel, str], Any] | None = None) -> Callable[[Callable[..., object]], None]:
    def add(act: Callable[[BlockingChannel, str], object]) -> None:
        def by(house: House, user: str, name: str, _: Any) -> None:
            channel = house.channel(user)
            act(channel, name)
            channel.close()

        def prepare(house: House, name: str) -> None:
            if before is not None:
                channel = house.channel("admin")
                before(channel, name)
                channel.close()

        OPERATIONS.append(Operation("amqp", verb, frozenset(needs), by, prepare))

    return add


call("queue", MONITOR, before=made)(lambda name, _: {"queue": name})
call("counts", MONITOR, before=made)(lambda name, _: {"queue": name})
call("bindings", MONITOR, before=made)(lambda name, _: {"queue": name})
call("bindings", MONITOR)(lambda name, _: {"exchange": "amq.topic"})
call("exchanges", MONITOR)(lambda name, _: {})
call("connections", MONITOR)(lambda name, _: {})
call("policies", MONITOR)(lambda name, _: {})
call("list-settings", MONITOR)(lambda name, _: {})
call("vhosts", MONITOR)(lambda name, _: {})
call("settings", MONITOR)(lambda name, _: {})
call("statistics", MONITOR)(lambda name, _: {})
call("explain", MONITOR)(lambda name, _: {"address": name})
call("why", MONITOR, before=filled)(lambda name, number: {"message_id": number})
call("peek", BROWSE, before=filled)(lambda name, _: {"queue": name})
call("history", BROWSE, before=filled)(lambda name, number: {"message_id": number})
call("create-queue", CREATE)(lambda name, _: {"queue": name})
call("create-queue", CREATE, CONSUME, SEND)(lambda name, _: {"queue": name, "dead_letter_address": "elsewhere"})
call("create-queue", CREATE, CONSUME)(lambda name, _: {"queue": name, "address": "homing.events", "routing_type": "multicast"})
call("delete-queue", MANAGE, before=filled)(lambda name, _: {"queue": name})
call("purge", MANAGE, before=filled)(lambda name, _: {"queue": name})
call("pause", MANAGE, before=made)(lambda name, _: {"queue": name})
call("resume", MANAGE, before=made)(lambda name, _: {"queue": name})
call("delete-message", MANAGE, before=filled)(lambda name, number: {"message_id": number})
call("redrive", CONSUME, SEND, before=dead)(lambda name, _: {"queue": f"DLQ.{name}"})
call("peek-dead-letters", BROWSE, before=dead)(lambda name, _: {"queue": f"DLQ.{name}"})
call("delete-dead-letters", MANAGE, before=dead)(lambda name, _: {"queue": f"DLQ.{name}", "filter": {"from_queue": name}})
call("set-settings", MANAGE)(lambda name, _: {"layers": {name: {"max-length": 5}}})
call("set-settings", MANAGE, CONSUME, SEND)(lambda name, _: {"layers": {name: {"dead-letter-address": "elsewhere"}}})
call("set-settings", MANAGE, CONSUME, SEND)(lambda name, _: {"layers": {name: {"rules": [{"dead-letter-address": "elsewhere"}]}}})
call("preview-settings", MANAGE)(lambda name, _: {"layers": {name: {"max-delivery-attempts": 5}}})
call("set-policy", MANAGE)(lambda name, _: {"name": name, "pattern": f"^{name}$", "definition": {"max-length": 5}})
call("set-policy", MANAGE, CONSUME, SEND)(
    lambda name, _: {"name": name, "pattern": f"^{name}$", "definition": {"dead-letter-exchange": "amq.fanout"}}
)
call("add-vhost", ADMINISTER)(lambda name, _: {"name": name})
call("users", ADMINISTER)(lambda name, _: {})
call("add-user", ADMINISTER)(lambda name, _: {"name": name, "hash": HASH})
call("reload", ADMINISTER)(lambda name, _: {})
call("backup", ADMINISTER)(lambda name, _: {"name": name})
call("start-export", ADMINISTER, before=lambda house, name: house.admin.call("discard-export"))(lambda name, _: {})
call("discard-export", ADMINISTER)(lambda name, _: {})
call("export", ADMINISTER)(lambda name, _: {})
call("reports", BROWSE)(lambda name, _: {})
call("transaction-outcome")(lambda name, _: {"transaction_id": name})
call("unset-settings", MANAGE, before=lambda house, name: house.admin.call("set-settings", layers={name: {"max-length": 5}}))(
    lambda name, _: {"pattern": name}
)
call(
    "clear-policy",
    MANAGE,
    before=lambda house, name: house.admin.call("set-policy", name=name, pattern=f"^{name}$", definition={"max-length": 5}),
)(lambda name, _: {"name": name})
call("delete-vhost", ADMINISTER, before=lambda house, name: house.admin.call("add-vhost", name=name))(lambda name, _: {"name": name})


def two(house: House, name: str) -> int:
    made(house, f"{name}.to")
    return filled(house, name)


def fault(house: House, name: str) -> str:
    dead(house, name)
    return str(next(each["fault"] for each in house.admin.call("faults", queue=name)["items"]))


def another_connection(house: House, name: str) -> str:
    house.client(name, "admin").session().consumer(name).ready()
    (found,) = house.admin.call("consumers", queue=name)
    return str(found["connection"])


def dead_and_a_queue(house: House, name: str) -> None:
    dead(house, name)
    made(house, f"{name}.to")


def a_job(house: House, name: str) -> int:
    """One that waits for its canary."""
    dead(house, name)
    job: dict[str, Any] = house.admin.call("start-redrive", queue=f"DLQ.{name}", canary=1)
    wait_until("the canary is sent", lambda: house.admin.call("redrive-status", redrive=job["job_id"])["sent"] == 1)
    return int(job["job_id"])


def a_user(house: House, name: str) -> None:
    house.admin.call("add-user", name=name, hash=HASH, grants=[{"rights": ["send"]}])


def an_export(house: House, name: str) -> str:
    if house.admin.call("export")["state"] == "none":
        house.admin.call("start-export")
    wait_until("the export is made", lambda: house.admin.call("export")["state"] == "done")
    return str(house.admin.call("export")["name"])


def a_report(house: House, name: str) -> str:
    place = Path(house.admin.call("reports")["directory"]) / name
    place.mkdir(parents=True)
    (place / "report.html").write_text("a report")
    return name


call("export-part", ADMINISTER, before=an_export)(lambda name, made: {"name": made, "offset": 0})
call("report-part", BROWSE, before=a_report)(lambda name, made: {"name": made, "offset": 0})
call("move-message", CONSUME, SEND, before=two)(lambda name, number: {"message_id": number, "queue": f"{name}.to"})
call("move-dead-letters", CONSUME, SEND, before=dead_and_a_queue)(
    lambda name, _: {"queue": f"DLQ.{name}", "to": f"{name}.to", "filter": {"from_queue": name}}
)
call("start-redrive", CONSUME, SEND, before=dead_and_a_queue)(lambda name, _: {"queue": f"DLQ.{name}", "to": f"{name}.to"})
call("reckon-redrive", BROWSE, before=dead)(lambda name, _: {"queue": f"DLQ.{name}"})
call("histories", BROWSE, before=dead)(lambda name, _: {"queue": f"DLQ.{name}"})
for _verb in ("pause-redrive", "resume-redrive", "cancel-redrive"):
    call(_verb, CONSUME, before=a_job, sees=(BROWSE,))(lambda name, job: {"redrive": job})
call("edit", CONSUME, SEND, before=dead)(
    lambda name, found: {"queue": f"DLQ.{name}", "edits": [{"message_id": found["message_id"], "set": {"a": 1}}]}
)
call("retry", MANAGE, before=filled)(lambda name, _: {"queue": name, "now": True})
call("peek-retrying", BROWSE, before=filled)(lambda name, _: {"queue": name})
call("repeated", BROWSE, before=filled)(lambda name, _: {"queue": name})
call("mute-fault", MANAGE, before=fault, sees=(BROWSE,))(lambda name, found: {"fault": found})
call("fault-fixed", MANAGE, before=fault, sees=(BROWSE,))(lambda name, found: {"fault": found})
call("close-connection", MANAGE, before=another_connection)(lambda name, number: {"connection": number})
call("change-password", ADMINISTER, before=a_user)(lambda name, _: {"name": name, "hash": HASH})
call("delete-user", ADMINISTER, before=a_user)(lambda name, _: {"name": name})
call("grant", ADMINISTER, before=a_user)(lambda name, _: {"name": name, "rights": ["browse"], "pattern": name})
call("revoke", ADMINISTER, before=a_user)(lambda name, _: {"name": name, "rights": ["send"]})

#: Lists that anybody may ask for; what is in them is another matter.
LISTS = {"queues": MONITOR, "consumers": MONITOR, "faults": BROWSE, "fault": BROWSE, "last-attempts": BROWSE, "dead-letters": BROWSE}
LISTS |= {"redrives": BROWSE, "redrive-status": BROWSE, "retrying": BROWSE, "due": MONITOR, "events": MONITOR}


@native("open-producer", SEND, before=made)
def _send(connection: blocking.Connection, name: str) -> None:
    connection.session().producer(name).send(b"x")


@native("open-producer", SEND, CREATE)
def _send_to_what_is_not_there(connection: blocking.Connection, name: str) -> None:
    connection.session().producer(name).send(b"x")


@native("open-producer", SEND, before=made)
def _send_in_a_transaction(connection: blocking.Connection, name: str) -> None:
    with connection.session(AckMode.TRANSACTED) as session:
        session.producer(name).send(b"x")
        session.commit()


@native("subscribe", CONSUME, before=made)
def _consume(connection: blocking.Connection, name: str) -> None:
    connection.session().consumer(name).ready().close()


@native("subscribe", CONSUME, CREATE)
def _consume_from_what_is_not_there(connection: blocking.Connection, name: str) -> None:
    connection.session().consumer(name).ready().close()


def declare(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)


def both(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    channel.exchange_declare(f"x.{name}", "topic")


def bound(channel: BlockingChannel, name: str) -> None:
    both(channel, name)
    channel.queue_bind(name, f"x.{name}", "a.b")


def two_exchanges(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic")
    channel.exchange_declare(f"x.{name}", "topic")


amqp("declare-queue", CREATE)(declare)
amqp("declare-queue", CREATE, before=declare)(declare)
amqp("declare-queue", CREATE)(lambda channel, name: channel.queue_declare("", exclusive=True))
amqp("declare-queue", CREATE, CONSUME, SEND)(
    lambda channel, name: channel.queue_declare(name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "elsewhere"})
)
amqp("delete-queue", MANAGE, before=declare)(lambda channel, name: channel.queue_delete(name))
amqp("purge", MANAGE, before=declare)(lambda channel, name: channel.queue_purge(name))
amqp("declare-exchange", CREATE)(lambda channel, name: channel.exchange_declare(name, "direct"))
amqp("declare-exchange", CREATE, CONSUME, SEND)(
    lambda channel, name: channel.exchange_declare(name, "direct", arguments={"alternate-exchange": "amq.fanout"})
)
amqp("delete-exchange", MANAGE, before=both)(lambda channel, name: channel.exchange_delete(f"x.{name}"))
amqp("bind", SEND, CONSUME, before=both)(lambda channel, name: channel.queue_bind(name, f"x.{name}", "a.#"))
amqp("unbind", SEND, CONSUME, before=bound)(lambda channel, name: channel.queue_unbind(name, f"x.{name}", "a.b"))
amqp("bind", SEND, CONSUME, before=two_exchanges)(lambda channel, name: channel.exchange_bind(name, f"x.{name}", "a"))
amqp("unbind", SEND, CONSUME, before=two_exchanges)(lambda channel, name: channel.exchange_unbind(name, f"x.{name}", "a"))
amqp("consume", CONSUME, before=declare)(lambda channel, name: channel.basic_consume(name, lambda *_: None))
amqp("get", CONSUME, before=declare)(lambda channel, name: channel.basic_get(name, auto_ack=True))
amqp("make-reply-queue", CONSUME)(lambda channel, name: channel.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True))


@amqp("route", SEND, before=declare)
def _publish_to_a_queue(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x", CONFIRMED)


@amqp("route", SEND, before=bound)
def _publish_to_an_exchange(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.basic_publish(f"x.{name}", "a.b", b"x", CONFIRMED)


@amqp("route", SEND, before=declare)
def _publish_in_a_transaction(channel: BlockingChannel, name: str) -> None:
    channel.tx_select()
    channel.basic_publish("", name, b"x")
    channel.tx_commit()


def stomp(verb: str, *needs: Right, before: Callable[[House, str], Any] = nothing) -> Callable[[Callable[[Link, str], object]], None]:
    def add(act: Callable[[Link, str], object]) -> None:
        def by(house: House, user: str, name: str, _: Any) -> None:
            link = Link(house.server, login=user, passcode="pw", client_id=name)
            try:
                act(link, name)
            finally:
                link.close()

        OPERATIONS.append(Operation("stomp", verb, frozenset(needs), by, before))

    return add


def durable_subscription(house: House, name: str) -> None:
    link = Link(house.server, login="admin", passcode="pw", client_id=name)
    link.sure("SUBSCRIBE", id="s", destination=f"/topic/{name}", durable_subscription_name="s")
    link.sure("DISCONNECT")
    link.close()


stomp("open-producer", SEND, CREATE)(lambda link, name: link.sure("SEND", b"x", destination=f"/queue/{name}"))
stomp("open-producer", SEND, CREATE)(lambda link, name: link.sure("SEND", b"x", destination=f"/topic/{name}"))
stomp("subscribe", CONSUME, before=made)(lambda link, name: link.sure("SUBSCRIBE", id="s", destination=name))
stomp("peek", BROWSE, before=made)(lambda link, name: link.sure("SUBSCRIBE", id="s", destination=name, browser="true"))
stomp("end-subscription", CONSUME, before=durable_subscription)(
    lambda link, name: link.sure("UNSUBSCRIBE", id="s", durable_subscription_name="s")
)
stomp("subscribe-topic", CONSUME, CREATE)(lambda link, name: link.sure("SUBSCRIBE", id="s", destination=f"/topic/{name}"))


# -- the matrix ----------------------------------------------------------------------------------------------------------


#: Calls that ask by themselves, also where nothing is to be done, and then have this done, which asks for more.
ALSO = ("set-settings", "unset-settings")
ASKING = inside.asking()


def asking(operation: Operation) -> dict[str, Needs]:
    """The verbs that ask, by their names in the audit, and what they declare."""
    if operation.front_end != "call":
        return {operation.verb: ASKING[operation.verb]}
    own = known(VERBS[operation.verb])
    by = own.by or ASKING.get(operation.verb if operation.verb in ALSO else "")
    found = {by.action: by} if by else {}
    return found if own.by else {operation.verb: own, **found}


def known(verb: Any) -> Needs:
    found = declared(verb)
    assert found is not None
    return found


def test_there_is_an_operation_for_every_right_that_a_verb_declares() -> None:
    wanted = {(found.action, right) for found in ASKING.values() for right, _ in found.asks}
    wanted |= {(verb, right) for verb, handler in VERBS.items() if verb not in LISTS for right, _ in known(handler).asks}
    tried = {(name, right) for each in OPERATIONS for name, found in asking(each).items() for right, _ in found.asks if right in each.needs}
    assert tried == wanted
    assert {each.verb for each in OPERATIONS if each.front_end == "call"} | LISTS.keys() == VERBS.keys()


def refusal(house: House, operation: Operation, user: str, name: str, prepared: Any) -> str:
    """What the user is told; "" where it is done."""
    try:
        operation.act(house, user, name, prepared)
    except homing.HomingError as error:
        return f"{error.code}: {error.message}"
    except StompRefused as error:
        return f"access-refused: {error}"
    except pika.exceptions.ChannelClosedByBroker as error:
        return f"{'access-refused' if error.reply_code == 403 else error.reply_code}: {error.reply_text}"
    return ""


@pytest.mark.parametrize("operation", OPERATIONS, ids=[f"{number}-{each.front_end}-{each.verb}" for number, each in enumerate(OPERATIONS)])
def test_who_lacks_a_right_is_refused_just_what_takes_it(house: House, operation: Operation) -> None:
    verbs, reported = asking(operation), Counter[tuple[str, str]]()

    def lines() -> Counter[tuple[str, str]]:
        return Counter((line["user"], line["result"]) for line in house.lines() if line["action"] in verbs and line["user"] != "admin")

    before = lines()
    for right in Right:
        user, name = f"no-{right}", house.name()
        prepared = operation.before(house, name)
        state = house.state() if right in operation.needs else None
        said = refusal(house, operation, user, name, prepared)
        if right in operation.needs:
            assert said.startswith("access-refused"), f"without {right}: {said or 'it was done'}"
            assert f"{right} access to " in said
            assert house.state() == state
            reported[user, "access-refused"] += 1
        elif right in operation.sees:
            assert said.startswith("access-refused"), f"without {right}: {said}"
            assert f"{right} access to " in said
            reported[user, "access-refused"] += 1
        else:
            assert said == "", f"without {right}, which it does not ask for"
            reported[user, "done"] += sum(found.audited for found in verbs.values())
    wait_until("the audit has a line of each", lambda: lines() - before == +reported)


def refused(right: Right, call: Callable[[], object]) -> bool:
    """Whether it is, and the right is named."""
    try:
        call()
    except homing.HomingError as error:
        return error.code == "access-refused" and f"{right} access to queue '" in error.message
    return False


def test_who_may_see_nothing_of_a_list_is_told_so(house: House) -> None:
    """To lack a right is no absence: not of dead letters, and not of a job or a fault that is there."""
    name = house.name()
    found = fault(house, name)
    (message_id,) = house.admin.call("fault", fault=found)["groups"][0]["message_ids"]
    (attempt,) = house.admin.call("history", message_id=message_id)["attempts"]
    keeping = house.admin.session().consumer(name).ready()
    job = a_job(house, house.name())
    filled(house, late := house.name())
    for right in Right:
        client = house.client(f"no-{right}")
        for verb in ("queues", "consumers"):
            assert refused(right, partial(client.listing, verb)) is (right is MONITOR)
        for verb, queue in (("consumers", name), ("due", late)):
            assert refused(right, partial(client.call, verb, queue=queue)) is (right is MONITOR)
        for more in ({}, {"limit": 1}, {"limit": 1, "kinds": ["fault.new", "dead-letters.first"]}):
            assert refused(right, partial(client.call, "events", **more)) is (right is MONITOR)
        for verb in ("dead-letters", "redrives"):
            assert refused(right, partial(client.call, verb)) is (right is BROWSE)
        for only in (None, name, late):
            assert refused(right, partial(client.call, "faults", queue=only)) is (right is BROWSE)
        assert refused(right, partial(client.call, "fault", fault=found)) is (right is BROWSE)
        assert refused(right, partial(client.call, "redrive-status", redrive=job)) is (right is BROWSE)
        (last,) = client.call("last-attempts", stays=[[message_id, attempt["sequence"]]])
        assert (last is not None and last.get("refused") == "browse") is (right is BROWSE)
    keeping.close()


def test_what_stands_in_the_way_of_a_deletion_is_told_to_who_may_delete(house: House) -> None:
    """Not how much is in it, to anybody else; and the audit has a line of each refusal."""
    name, other = house.name(), house.name()
    filled(house, name)
    filled(house, other)
    keeping = house.admin.session().consumer(name).ready()
    ways = {"if_empty": "queue-not-empty", "if_unused": "queue-in-use"}

    def code(client: Any, way: str) -> str:
        with pytest.raises(homing.HomingError) as told:
            client.call("delete-queue", queue=name, **{way: True})
        return told.value.code

    for way, why in ways.items():
        assert code(house.client("no-manage"), way) == "access-refused"
        assert code(house.admin, way) == why

    def over_amqp(user: str, delete: Callable[[BlockingChannel], object]) -> str:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as told:
            delete(house.channel(user))
        return f"{told.value.reply_code} {told.value.reply_text}"

    house.channel("admin").exchange_declare(f"x.{name}")
    house.channel("admin").queue_bind(name, f"x.{name}")
    kinds: dict[str, Callable[[BlockingChannel], object]] = {
        "not empty": lambda channel: channel.queue_delete(other, if_empty=True),
        "in use": lambda channel: channel.queue_delete(name, if_unused=True),
        f"exchange 'x.{name}' in vhost '/' in use": lambda channel: channel.exchange_delete(f"x.{name}", if_unused=True),
    }
    for why, delete in kinds.items():
        told = over_amqp("no-manage", delete)
        assert told.startswith("403 ACCESS_REFUSED - manage access"), told
        assert "in use" not in told
        assert "empty" not in told
        told = over_amqp("admin", delete)
        assert told.startswith("406 ")
        assert why in told
    keeping.close()
    wanted = {
        *(("delete-queue", name, result) for result in ("access-refused", *ways.values(), "precondition-failed")),
        *(("delete-queue", other, result) for result in ("access-refused", "precondition-failed")),
        *(("delete-exchange", f"x.{name}", result) for result in ("access-refused", "in-use")),
    }
    wait_until(
        "the audit has them", lambda: {(each["action"], *each["on"], each["result"]) for each in house.lines() if each.get("on")} >= wanted
    )


def test_a_passive_declaration_tells_nobody_anything_who_has_no_right_there(house: House) -> None:
    """Neither how much is in a queue, nor whether there is one; any right will do, as with RabbitMQ from 4.2.6 on."""
    name, other = house.name(), house.name()
    filled(house, name)
    house.admin.call("add-user", name=other, hash=HASH, grants=[{"rights": ["send"], "pattern": f"{other}.#", "keys": "a.#"}])
    house.admin.call("create-queue", queue=f"{other}.work")
    house.channel("admin").exchange_declare(f"{other}.x", "topic")

    def told(user: str, channel: Callable[[BlockingChannel], Any]) -> tuple[int, str]:
        try:
            method = channel(house.channel(user)).method
        except pika.exceptions.ChannelClosedByBroker as error:
            return error.reply_code, error.reply_text
        return 0, str(getattr(method, "message_count", ""))

    def passive(queue: str) -> Callable[[BlockingChannel], Any]:
        return lambda channel: channel.queue_declare(queue, passive=True)

    def exchange(queue: str) -> Callable[[BlockingChannel], Any]:
        return lambda channel: channel.exchange_declare(queue, passive=True)

    for right in Right:
        assert told(f"no-{right}", passive(name)) == (0, "1")
    for queue in (name, f"{name}.missing"):
        assert told(other, passive(queue)) == (403, f"ACCESS_REFUSED - access to queue '{queue}' in vhost '/' refused for user '{other}'")
    for queue in ("amq.topic", "missing"):
        said = f"ACCESS_REFUSED - access to exchange '{queue}' in vhost '/' refused for user '{other}'"
        assert told(other, exchange(queue)) == (403, said)
    assert told(other, passive(f"{other}.work")) == (0, "0")
    assert told(other, passive(f"{other}.none"))[0] == 404
    assert [told(other, exchange(each))[0] for each in (f"{other}.x", "homing.failure")] == [0, 0]
    refused = {
        ("look-up-queue", name),
        ("look-up-queue", f"{name}.missing"),
        ("look-up-exchange", "amq.topic"),
        ("look-up-exchange", "missing"),
    }
    wait_until(
        "the audit has them", lambda: {(each["action"], *each.get("on", ())) for each in house.lines() if each["user"] == other} >= refused
    )


def test_what_is_left_out_of_a_list_is_counted(house: House, homing: HomingCommand) -> None:
    """Of whoever may see some of it: on the wire, and under the tables of the command."""
    mine, others = f"mine.{house.name()}", house.name()
    for name in (mine, others):
        fault(house, name)
    grants = [{"rights": ["browse", "monitor"], "pattern": pattern} for pattern in ("mine.#", "DLQ.mine.#")]
    house.admin.call("add-user", name="some", hash=HASH, grants=grants)
    client = house.client("some")
    for verb, right in {"queues": MONITOR, "faults": BROWSE, "dead-letters": BROWSE, "events": MONITOR}.items():
        page = client.call(verb, limit=1)
        assert page["left_out"]["right"] == right
        assert page["left_out"]["queues"] > 0
        assert all(mine in each.get("name", each.get("queue", "")) for each in page["items"])
    assert client.call("due")["left_out"]["right"] == MONITOR
    homing.url = house.server.url.replace("//", "//some:pw@")
    for command, which in {"queues": MONITOR, "faults": BROWSE, "dead": BROWSE}.items():
        assert re.search(rf"^\d+ queues? (is|are) left out: you lack the right {which} there$", homing(command).stderr, re.MULTILINE)
    homing.url = house.server.url.replace("//", "//no-browse:pw@")
    done = homing("dead")
    assert (done.returncode, done.stdout) == (1, "")
    assert "browse access to queue 'DLQ." in done.stderr
    assert "homing user grant no-browse browse --on 'DLQ." in done.stderr
