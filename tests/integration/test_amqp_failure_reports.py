"""Why a delivery failed, as clients of AMQP tell it: by a message to ``homing.failure`` before the nack."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aio_pika
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from examples.failure_reports.report import EXCHANGE, failure
from examples.failure_reports.with_aio_pika import reported
from examples.failure_reports.with_pika import reporting
from homing.client import blocking
from tests.amqp_support import AMQP, amqp_port, channel, connect, consume, count, cut, get, wait_for_count
from tests.process import Server, wait_until

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
MOST_BYTES = 100_000
RULES = [{"name": "no answer", "error-type": "OSError", "action": "dead-letter"}]
SETTINGS: dict[str, Any] = {
    "ruled": {"rules": RULES},
    "kept.#": {"keep-settled-failures": True, "redelivery-delay": 0},
    "secret": {"traceback-redactions": ["password=\\S+"]},
    "#": {"redelivery-delay": "1h"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {"max-message-bytes": MOST_BYTES}
    server = Server(tmp_path_factory.mktemp("reports"), {**AMQP, "address-settings": SETTINGS, "limits": limits})
    yield server.start()
    server.close()


@pytest.fixture
def ch(broker: Server) -> Iterator[BlockingChannel]:
    with channel(broker) as opened:
        yield opened


@pytest.fixture
def native(broker: Server) -> Iterator[blocking.Connection]:
    with blocking.connect(broker.url) as opened:
        yield opened


def held(ch: BlockingChannel, queue: str, body: bytes = b"x") -> int:
    """The tag of a message that is out with this channel."""
    ch.queue_declare(queue, durable=True)
    ch.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    tag: int = get(ch, queue, auto_ack=False)[0].delivery_tag
    return tag


def report(ch: BlockingChannel, tag: int, **reported: Any) -> None:
    ch.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers={"delivery_tag": tag, **reported}))


def faults(native: blocking.Connection, queue: str) -> dict[str, dict[str, Any]]:
    return {each["error_class"]: each for each in native.call("faults", queue=queue)["items"]}


def attempt(native: blocking.Connection, queue: str, error_class: str) -> dict[str, Any]:
    """Of the one message that failed so in the queue."""
    wait_until(f"{error_class} is on record", lambda: error_class in faults(native, queue))
    (found,) = native.call("history", message_id=faults(native, queue)[error_class]["message_ids"][0])["attempts"]
    reported: dict[str, Any] = found
    return reported


def refused_with(opened: BlockingChannel, do: Callable[[BlockingChannel], object]) -> tuple[int, str]:
    """How the broker closes the channel that this was done on."""
    ch = opened.connection.channel()

    def answered() -> None:
        do(ch)
        ch.basic_qos()

    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
        answered()
    return refusal.value.reply_code, refusal.value.reply_text


def test_what_is_told_before_a_nack_is_its_attempts(ch: BlockingChannel, native: blocking.Connection) -> None:
    tag = held(ch, "told")
    reported = {"error_type": "TimeoutError", "bases": ["OSError", "Exception"], "error_text": "no answer", "traceback": "line 1\nline 2"}
    report(ch, tag, **reported, other=[1])
    ch.basic_nack(tag)
    known = attempt(native, "told", "TimeoutError")
    fault = known["fault"]
    assert known["outcome"] == "nack"
    assert {name: fault[name] for name in reported} == reported
    method, _, _ = get(ch, "told")
    assert method.redelivered


def test_it_decides_what_becomes_of_the_message(ch: BlockingChannel, native: blocking.Connection) -> None:
    report(ch, tag := held(ch, "never"), retryable=False, reason="cannot be read")
    ch.basic_nack(tag)
    wait_for_count(ch, "DLQ.never", 1)
    assert attempt(native, "never", "nack")["fault"]["reason"] == "cannot be read"
    report(ch, tag := held(ch, "ruled"), error_type="TimeoutError", bases=["OSError", "Exception"])
    ch.basic_nack(tag)
    wait_for_count(ch, "DLQ.ruled", 1)
    report(ch, tag := held(ch, "later"), delay_ms=600_000)
    ch.basic_nack(tag)
    assert attempt(native, "later", "nack")["delay_ms"] == 600_000
    assert count(ch, "later") == 0
    report(ch, tag := held(ch, "uncounted"), count=False)
    ch.basic_nack(tag)
    assert get(ch, "uncounted")[0].redelivered
    assert faults(native, "uncounted") == {}
    report(ch, tag := held(ch, "rejected"), error_type="KeyError")
    ch.basic_reject(tag, requeue=False)
    wait_for_count(ch, "DLQ.rejected", 1)
    assert attempt(native, "rejected", "KeyError")["outcome"] == "rejected"


def test_one_of_several_is_told_of_and_secrets_are_not(ch: BlockingChannel, native: blocking.Connection) -> None:
    tags = [held(ch, "secret") for _ in range(3)]
    report(ch, tags[1], error_type="Denied", error_text="password=hunter2 is wrong", traceback="login(password=hunter2)")
    ch.basic_nack(tags[-1], multiple=True)
    fault = attempt(native, "secret", "Denied")["fault"]
    assert (fault["error_text"], fault["traceback"]) == ("*** is wrong", "login(***")
    assert {name: each["failures"] for name, each in faults(native, "secret").items()} == {"Denied": 1, "nack": 2}


def test_it_waits_for_its_nack_behind_a_cancelled_consumer_and_is_confirmed(ch: BlockingChannel, native: blocking.Connection) -> None:
    ch.confirm_delivery()
    ch.queue_declare("cancelled", durable=True)
    ch.basic_publish("", "cancelled", b"x", pika.BasicProperties(delivery_mode=2))
    tags: list[int] = []
    name = consume(ch, "cancelled", 1, lambda method, _, __: tags.append(method.delivery_tag))
    report(ch, tags[0], error_type="Confirmed")  # returns when it is
    ch.basic_cancel(name)
    ch.basic_nack(tags[0])
    assert attempt(native, "cancelled", "Confirmed")["outcome"] == "nack"


def test_a_transaction_holds_it_with_its_nack_and_a_rollback_forgets_both(ch: BlockingChannel, native: blocking.Connection) -> None:
    ch.tx_select()
    ch.queue_declare("transacted", durable=True)
    ch.basic_publish("", "transacted", b"x", pika.BasicProperties(delivery_mode=2))
    ch.tx_commit()
    tag = get(ch, "transacted", auto_ack=False)[0].delivery_tag
    report(ch, tag, error_type="Forgotten")
    ch.basic_nack(tag)
    ch.tx_rollback()
    ch.basic_nack(tag)
    ch.tx_commit()
    tag = get(ch, "transacted", auto_ack=False)[0].delivery_tag
    report(ch, tag, error_type="Told")
    ch.basic_nack(tag)
    ch.tx_commit()
    assert {name: each["failures"] for name, each in faults(native, "transacted").items()} == {"Told": 1, "nack": 1}


def test_what_is_no_report_closes_the_channel(ch: BlockingChannel) -> None:
    def published(**headers: Any) -> tuple[int, str]:
        return refused_with(ch, lambda other: other.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers=headers)))

    assert published() == (406, "PRECONDITION_FAILED - a failure report names its delivery in the header delivery_tag, a whole number")
    assert published(delivery_tag=7) == (406, "PRECONDITION_FAILED - unknown delivery tag 7")
    assert published(delivery_tag=7, delay_ms="1s") == (
        406,
        "PRECONDITION_FAILED - the failure report gives delay_ms as something other than a whole number",
    )
    long = {"error_text": "x" * 60_000}

    def much(other: BlockingChannel) -> None:
        for _ in range(20):
            report(other, held(other, "much"), **long)

    code, why = refused_with(ch, much)
    assert (code, "settle what was reported" in why) == (406, True)


def test_a_channel_that_ends_believes_what_was_reported_and_not_settled(broker: Server, native: blocking.Connection) -> None:
    for how, queue in (("nack", "believed-closed"), ("connection-lost", "believed-lost")):
        opened = connect(broker)
        ch = opened.channel()
        told, beside = held(ch, queue), held(ch, queue)
        report(ch, told, error_type="Raised", error_text=f"in {queue}")
        opened.process_data_events(0)
        opened.close() if how == "nack" else cut(opened)
        assert attempt(native, queue, "Raised")["outcome"] == how
        assert faults(native, queue)["Raised"]["failures"] == 1
        assert ("connection-lost" in faults(native, queue)) == (how == "connection-lost"), beside


def test_a_quiet_report_is_not_confirmed_and_never_closes_the_channel(ch: BlockingChannel, native: blocking.Connection) -> None:
    tag = held(ch, "quiet")
    ch.confirm_delivery()
    plain = ch._impl  # of which nobody waits for confirms
    for headers in ({"delivery_tag": 99, "quiet": True}, {"delivery_tag": "x", "quiet": True}, {"quiet": True, "host": "web-1"}):
        plain.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers=headers))
    plain.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers={"delivery_tag": tag, "quiet": True, "error_type": "Quiet"}))
    # Its confirm is number 1.
    ch.basic_publish("", "quiet", b"next", pika.BasicProperties(delivery_mode=2))
    ch.basic_nack(tag)
    assert attempt(native, "quiet", "Quiet")["outcome"] == "nack"


def delivered(ch: BlockingChannel, queue: str) -> tuple[str, int]:
    """Tags of a consumer and of the message that it holds."""
    ch.queue_declare(queue, durable=True)
    ch.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
    tags: list[int] = []
    name = consume(ch, queue, 1, lambda method, _, __: tags.append(method.delivery_tag))
    return name, tags[0]


def consumed(ch: BlockingChannel, queue: str) -> tuple[str, int]:
    """Tags of a consumer that has acknowledged a message, and of that."""
    name, tag = delivered(ch, queue)
    ch.basic_ack(tag)
    ch.basic_cancel(name)
    return name, tag


def test_a_failure_after_the_acknowledgement_is_kept_and_counts_once(ch: BlockingChannel, native: blocking.Connection) -> None:
    name, tag = consumed(ch, "late")
    for _ in range(2):
        report(ch, tag, consumer_tag=name, error_type="Late", error_text="too late", task="shop.charge")
    known = attempt(native, "late", "Late")
    assert (known["outcome"], known["decision"], known["fault"]["task"]) == ("acknowledged", "drop", "shop.charge")
    group = faults(native, "late")["Late"]
    assert (group["failures"], group["text"], group["dead"], group["waiting"]) == (1, "too late (task shop.charge)", 0, 0)
    (ended,) = native.call("history", message_id=group["message_ids"][0])["outcomes"]
    assert (ended["outcome"], ended["reason"]) == ("dropped", "acknowledged")
    assert refused_with(ch, lambda other: report(other, consumed(other, "late")[1], error_type="Late"))[0] == 406


def test_what_counts_also_when_acknowledged_is_told_before(ch: BlockingChannel, native: blocking.Connection) -> None:
    ch.queue_declare("also", durable=True)
    for _ in range(4):
        ch.basic_publish("", "also", b"x", pika.BasicProperties(delivery_mode=2))
    tags: list[int] = []
    name = consume(ch, "also", 4, lambda method, _, __: tags.append(method.delivery_tag))
    for number, tag in enumerate(tags):
        report(ch, tag, consumer_tag=name, error_type=f"Also{number}", also_acknowledged=number != 1)
    ch.basic_ack(tags[1], multiple=True)
    ch.basic_nack(tags[2], requeue=False)
    ch.basic_ack(tags[3])
    wait_until("three are told", lambda: len(faults(native, "also")) == 3)
    outcomes = {error: attempt(native, "also", error)["outcome"] for error in faults(native, "also")}
    assert outcomes == {"Also0": "acknowledged", "Also2": "rejected", "Also3": "acknowledged"}


def test_a_dead_letter_is_made_of_it_where_the_settings_say_so(ch: BlockingChannel, native: blocking.Connection) -> None:
    name, tag = consumed(ch, "kept.late")
    own = {"id": "7", "retries": 2, "argsrepr": "(1,)"}
    said = {
        "delivery_tag": tag,
        "consumer_tag": name,
        "error_type": "Late",
        "exchange": "",
        "routing_key": "kept.late",
        "message_headers": own,
    }
    properties = pika.BasicProperties(headers=said, content_type="application/json", delivery_mode=2, correlation_id="7")
    ch.basic_publish(EXCHANGE, "", b"[1]", properties)
    wait_for_count(ch, "DLQ.kept.late", 1)
    native.call("start-redrive", queue="DLQ.kept.late", filter={})
    method, came, body = get(ch, "kept.late")
    assert (body, came.content_type, came.correlation_id, came.delivery_mode) == (b"[1]", "application/json", "7", 2)
    assert (method.routing_key, {header: came.headers[header] for header in own}) == ("kept.late", own)
    assert came.headers["x-first-death-queue"] == "kept.late"
    assert "error_type" not in came.headers


def test_what_was_sent_back_and_fails_after_its_acknowledgement_has_not_succeeded(ch: BlockingChannel, native: blocking.Connection) -> None:
    name, tag = delivered(ch, "kept.back")
    ch.basic_cancel(name)
    tags = [tag]

    def fail(**more: object) -> None:
        ch.basic_ack(tags[-1])
        report(ch, tags[-1], consumer_tag=name, error_type="Back", routing_key="kept.back", story="task 8", **more)

    fail()
    wait_for_count(ch, "DLQ.kept.back", 1)
    job = native.call("start-redrive", queue="DLQ.kept.back", filter={})["job_id"]
    name = consume(ch, "kept.back", 1, lambda method, _, __: tags.append(method.delivery_tag))
    fail(again=True)
    ch.basic_cancel(name)
    ch.basic_publish("", "kept.back", b"the second try", pika.BasicProperties(delivery_mode=2))
    name = consume(ch, "kept.back", 1, lambda method, _, __: tags.append(method.delivery_tag))
    fail()
    wait_for_count(ch, "DLQ.kept.back", 1)
    counts = ("waiting", "succeeded", "redriven", "back_succeeded", "back_died", "dead")
    assert [faults(native, "kept.back")["Back"][count] for count in counts] == [0, 0, 1, 0, 1, 1]
    status = native.call("redrive-status", redrive=job)
    assert [status[count] for count in ("sent", "succeeded", "died", "gone")] == [1, 0, 1, 0]


@pytest.mark.parametrize(("size", "dead"), [(MOST_BYTES, 1), (MOST_BYTES + 1, 0)])
def test_what_is_too_large_is_reported_and_no_dead_letter(ch: BlockingChannel, native: blocking.Connection, size: int, dead: int) -> None:
    for when in ("before", "after"):
        queue = f"kept.{when}.{size}"
        name, tag = delivered(ch, queue)
        said = {"delivery_tag": tag, "consumer_tag": name, "error_type": "Large", "routing_key": queue, "also_acknowledged": True}
        if when == "after":
            ch.basic_ack(tag)
        ch.basic_publish(EXCHANGE, "", b"x" * size, pika.BasicProperties(headers=said))
        if when == "before":
            ch.basic_ack(tag)
        assert attempt(native, queue, "Large")["outcome"] == "acknowledged"
        assert faults(native, queue)["Large"]["dead"] == dead


def test_tries_of_one_task_are_one_story_and_a_broker_that_is_killed_knows_it(broker: Server) -> None:
    for number in range(3):
        if number:
            broker.kill()
            broker.start()
        with channel(broker) as ch:
            ch.confirm_delivery()
            name, tag = consumed(ch, "kept.tried")
            report(ch, tag, consumer_tag=name, error_type=f"Try{number}", story="task 7", again=number < 2, routing_key="kept.tried")
    with blocking.connect(broker.url) as native:
        wait_until("it is dead", lambda: faults(native, "kept.tried")["Try2"]["dead"] == 1)
        (message_id,) = faults(native, "kept.tried")["Try2"]["message_ids"]
        tries = native.call("history", message_id=message_id)["attempts"]
    assert [(each["attempt"], each["fault"]["error_type"]) for each in tries] == [(1, "Try0"), (2, "Try1"), (3, "Try2")]


def test_a_last_try_that_is_given_back_for_good_is_of_the_same_story(ch: BlockingChannel, native: blocking.Connection) -> None:
    name, tag = consumed(ch, "given-back")
    report(ch, tag, consumer_tag=name, error_type="Try0", story="actor 7", again=True)
    ch.basic_publish("", "given-back", b"second", pika.BasicProperties(delivery_mode=2, headers={"retries": 1}, expiration="600000"))
    ch.basic_publish("", "given-back", b"beside", pika.BasicProperties(delivery_mode=2))
    tags: list[int] = []
    name = consume(ch, "given-back", 2, lambda method, _, __: tags.append(method.delivery_tag))
    for number in tags:
        story = "actor 7" if number == tags[0] else "actor 8"
        report(ch, number, consumer_tag=name, error_type=f"Of {story}", story=story, retryable=False, also_acknowledged=True)
        ch.basic_nack(number, requeue=False)
    wait_for_count(ch, "DLQ.given-back", 2)
    message_id, beside = (faults(native, "given-back")[f"Of actor {number}"]["message_ids"][0] for number in (7, 8))
    tries = native.call("history", message_id=message_id)["attempts"]
    assert [(each["attempt"], each["outcome"], each["fault"]["error_type"]) for each in tries] == [
        (1, "acknowledged", "Try0"),
        (2, "rejected", "Of actor 7"),
    ]
    assert [each["attempt"] for each in native.call("history", message_id=beside)["attempts"]] == [1]
    queue = native.call("queue", queue="given-back")
    counts = [queue[name] for name in ("messages", "delivering", "sent", "succeeded", "dead_lettered")]
    assert counts == [0, 0, 3, 1, 2], queue
    _, came, body = get(ch, "DLQ.given-back")
    assert (body, came.headers["retries"], came.headers["x-death"][0]["reason"]) == (b"second", 1, "rejected")
    assert (came.headers["x-death"][0]["count"], came.headers["x-death"][0]["original-expiration"]) == (1, "600000")
    assert came.expiration is None
    assert get(ch, "DLQ.given-back")[2] == b"beside"


def test_what_a_program_says_of_itself_is_told_of_its_consumers(broker: Server, native: blocking.Connection) -> None:
    with channel(broker) as ch:
        said = {"quiet": True, "program": "worker.py", "host": "web-1", "program_version": "2.3", "instrumented": "pika 1.4.4"}
        ch._impl.basic_publish(EXCHANGE, "", b"", pika.BasicProperties(headers=said))
        ch.queue_declare("introduced", durable=True)
        ch.basic_publish("", "introduced", b"x", pika.BasicProperties(delivery_mode=2))
        tags: list[int] = []
        consume(ch, "introduced", 1, lambda method, _, __: tags.append(method.delivery_tag))
        ch.basic_reject(tags[0], requeue=False)
        wait_for_count(ch, "DLQ.introduced", 1)
        (consumer,) = native.call("consumers", queue="introduced")
        assert (consumer["client"], consumer["host"], consumer["version"]) == ("worker.py", "web-1", "2.3")
        assert consumer["instrumented"] == "pika 1.4.4"
    (met,) = faults(native, "introduced")["rejected"]["programs"]
    assert (met["client_id"], met["host"], met["version"]) == ("worker.py", "web-1", "2.3")


def test_the_exchange_is_there_and_stays_as_it_is(ch: BlockingChannel) -> None:
    ch.exchange_declare(EXCHANGE, "direct", passive=True)
    ch.exchange_declare(EXCHANGE, "direct", durable=True)
    ch.queue_declare("bound", durable=True)
    for code, do in [
        (406, lambda other: other.exchange_declare(EXCHANGE, "topic", durable=True)),
        (403, lambda other: other.exchange_delete(EXCHANGE)),
        (403, lambda other: other.exchange_declare("homing.other", "direct")),
        (403, lambda other: other.queue_declare("homing.other")),
        (403, lambda other: other.queue_bind("bound", EXCHANGE, "")),
        (403, lambda other: other.exchange_bind(EXCHANGE, "amq.topic", "#")),
    ]:
        assert refused_with(ch, do)[0] == code


def test_a_pika_consumer_tells_why(ch: BlockingChannel, native: blocking.Connection) -> None:
    def handle(body: bytes) -> None:
        raise ValueError(f"not a number: {int(body)}")

    ch.queue_declare("with-pika", durable=True)
    ch.basic_publish("", "with-pika", b"nothing", pika.BasicProperties(delivery_mode=2))
    done: list[int] = []

    def one(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        reporting(handle)(channel, method, properties, body)
        done.append(method.delivery_tag)

    ch.basic_consume("with-pika", one)
    while not done:
        ch.connection.process_data_events(0.05)
    wait_for_count(ch, "DLQ.with-pika", 1)
    fault = attempt(native, "with-pika", "ValueError")["fault"]
    assert (fault["error_type"], fault["bases"]) == ("ValueError", ["Exception", "BaseException"])
    assert fault["error_text"] == "invalid literal for int() with base 10: b'nothing'"
    assert fault["traceback"].startswith("Traceback (most recent call last)")


async def test_an_aio_pika_consumer_tells_why(broker: Server, native: blocking.Connection) -> None:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port(broker)}/")
    async with connection:
        opened = await connection.channel()
        queue = await opened.declare_queue("with-aio-pika", durable=True)
        await opened.default_exchange.publish(aio_pika.Message(b"x", delivery_mode=2), "with-aio-pika")
        seen: list[bool] = []
        async with asyncio.timeout(20), queue.iterator() as messages:
            async for message in messages:
                seen.append(bool(message.redelivered))
                async with reported(message):
                    if len(seen) == 1:
                        raise LookupError("not there yet")
                if len(seen) == 2:
                    break
    assert seen == [False, True]
    assert (await asyncio.to_thread(attempt, native, "with-aio-pika", "LookupError"))["fault"]["error_text"] == "not there yet"


def test_long_texts_are_cut_where_the_broker_sees_it() -> None:
    text = failure(ValueError("x" * 40_000))["error_text"]
    assert text == "x" * 15_000 + "\n… 10000 characters left out …\n" + "x" * 15_000
