"""What comes back by hand (redrive, job, move, edit) pushes nothing out of a queue, and keeps what it has: times, priority, key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import AckMode, Connection
from tests.acceptance.semantics_support import holds, look, name, receive, send, until
from tests.amqp_support import AMQP, PERSISTENT, channel, get
from tests.process import HomingCommand, Server

SETTINGS: dict[str, Any] = {
    "#": {"max-delivery-attempts": 1},
    "twice.#": {"max-delivery-attempts": 2, "redelivery-delay": "10m"},
    "by.settings.messages.#": {"max-length": 4, "overflow": "drop-head"},
    "by.settings.bytes.#": {"max-length-bytes": 4, "overflow": "drop-head"},
}
OPTIONS: dict[str, Any] = AMQP

#: Of so many dead letters, and one that waits, three find room.
DEAD, ROOM = 6, 3
#: What makes a queue that drops its oldest have four places, or those of four bodies of one byte.
LIMITS = [f"{where}.{what}" for where in ("argument", "policy", "settings") for what in ("messages", "bytes")]


async def die(connection: Connection, queue: str, count: int = DEAD, **options: Any) -> list[int]:
    """The numbers of so many dead letters in ``DLQ.<queue>``."""
    await send(connection, queue, *range(count), **options)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for _ in range(count):
            await (await receive(consumer)).nack(error=ValueError("no"), retryable=False)
    await holds(connection, f"DLQ.{queue}", messages=count)
    return [each["message_id"] for each in await look(connection, f"DLQ.{queue}")]


async def limited(connection: Connection, limit: str) -> str:
    """A queue of four places, in one of which something waits."""
    queue = name(f"by.{limit}")
    where, what = limit.split(".")
    definition = {"max-length" if what == "messages" else "max-length-bytes": 4, "overflow": "drop-head"}
    if where == "policy":
        await connection.call("set-policy", name=queue, pattern=f"^{queue}$", definition=definition)
    declared = {key.replace("-", "_"): value for key, value in definition.items()} if where == "argument" else {}
    await connection.call("create-queue", queue=queue, **declared)
    await send(connection, queue, 7)
    return queue


async def dropped(connection: Connection, queue: str) -> int:
    return int((await connection.call("queue", queue=queue))["dropped"])


async def code_of(call: Any) -> str | None:
    try:
        await call
    except homing.HomingError as error:
        return error.code
    return None


@pytest.mark.parametrize("limit", LIMITS)
async def test_nothing_is_pushed_out(connection: Connection, server: Server, limit: str) -> None:
    queue = await limited(connection, limit)
    source = name()
    numbers = await die(connection, source)
    dead, all_of = f"DLQ.{source}", {"queue": f"DLQ.{source}", "filter": {"from_queue": source}}

    async def kept(where: int = ROOM) -> None:
        await holds(connection, queue, messages=1 + where, pending=1 + where)
        assert await dropped(connection, queue) == 0
        await holds(connection, dead, messages=DEAD - where)

    plan = await connection.call("reckon-redrive", **all_of, to=queue)
    assert {each["code"]: each["messages"] for each in plan["would_bounce"]}["queue-full"] == DEAD - ROOM
    job = await connection.redrive(dead, to=queue, wait=True, stop_above=None)
    assert (job["state"], job["sent"], job["left"]) == ("stopped", ROOM, DEAD - ROOM)
    assert job["why"] == f"queue {queue} has no room for what was left"
    await kept()
    for call in (
        connection.call("move-message", message_id=numbers[-1], queue=queue),
        connection.call("move-dead-letters", **all_of, to=queue),
        connection.edit(numbers[-1], body=b"9", to=queue),
    ):
        assert await code_of(call) == "queue-full"
    await kept()
    # What gives way to itself needs no room.
    (first, *_) = await look(connection, queue)
    await connection.edit(first["message_id"], body=b"8")
    await kept()
    assert [each["body"] for each in await look(connection, queue)][-1] == b"8"
    await connection.call("purge", queue=queue)
    await send(connection, queue, 7)
    assert await code_of(connection.call("move-dead-letters", **all_of, to=queue)) is None
    await holds(connection, dead, messages=0)
    await holds(connection, queue, messages=4)
    assert await dropped(connection, queue) == 0


async def test_at_once_it_is_refused_where_dead_letters_came_from(connection: Connection) -> None:
    queue = name()
    await connection.call("create-queue", queue=queue, max_length=DEAD, overflow="drop-head")
    await die(connection, queue)
    await send(connection, queue, *range(DEAD - 2))
    with pytest.raises(homing.HomingError) as refused:
        await connection.call("redrive", queue=f"DLQ.{queue}")
    assert (refused.value.code, f"queue {queue} has no room" in str(refused.value)) == ("queue-full", True)
    await holds(connection, queue, messages=DEAD)
    assert await dropped(connection, queue) == 0
    await holds(connection, f"DLQ.{queue}", messages=DEAD - 2)


async def test_what_is_not_durable_goes_back_too(connection: Connection) -> None:
    queue = name()
    await connection.call("create-queue", queue=queue, max_length=DEAD, overflow="drop-head")
    await die(connection, queue, durable=False)
    await send(connection, queue, 7, durable=False)
    assert await code_of(connection.call("redrive", queue=f"DLQ.{queue}")) == "queue-full"
    await holds(connection, queue, messages=DEAD)
    await holds(connection, f"DLQ.{queue}", messages=1)
    await connection.call("purge", queue=queue)
    assert (await connection.call("redrive", queue=f"DLQ.{queue}")) == {"messages": 1}
    assert await dropped(connection, queue) == 0


async def test_a_job_waits_while_somebody_makes_room(connection: Connection) -> None:
    queue = name()
    await connection.call("create-queue", queue=queue, max_length=2, overflow="drop-head")
    source = name()
    await die(connection, source)
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        await consumer.ready()
        job = await connection.redrive(f"DLQ.{source}", to=queue, stop_above=None)

        async def waits() -> bool:
            return bool((await connection.call("redrive-status", redrive=job["job_id"]))["waits_for"] == queue)

        await until("it waits for room", waits)
        bodies = []
        for _ in range(DEAD):
            message = await receive(consumer)
            bodies.append(message.body)
            await message.acknowledge(confirm=True)

        async def ended() -> dict[str, Any]:
            found: dict[str, Any] = await connection.call("redrive-status", redrive=job["job_id"])
            return found if found["ended_ms"] is not None else {}

        done = await until("it has ended", ended)
    assert (done["state"], done["sent"], done["left"], done["waits_for"]) == ("done", DEAD, 0, "")
    assert sorted(bodies) == [b"%d" % number for number in range(DEAD)]


async def test_what_never_died_keeps_its_times(connection: Connection, server: Server, tmp_path: Path) -> None:
    """Of a delay, a time to live, a hold and a priority; on an edit, a move and a redrive elsewhere. The delay of a failure goes."""
    queue, elsewhere, third = name("twice"), name("twice"), name("twice")
    await send(connection, queue, b"delay", delay_ms=3_600_000, priority=8)
    await send(connection, queue, b"ttl", ttl_ms=3_600_000)
    await send(connection, queue, b"failed", b"held")
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, selector="AMQSize = 4 OR AMQSize = 6", prefetch=1)
        for _ in range(2):
            await (await receive(consumer)).nack(error=ValueError("no"))
    await holds(connection, queue, scheduled=3)
    assert await connection.retry(queue, body_contains=b"held", hold=True) == 1
    for target in (elsewhere, third):
        await connection.call("create-queue", queue=target)
    before = {each["body"]: each for each in await look(connection, queue)}
    said = {body: (each["state"], each["due_at_ms"], each["expires_at_ms"], each["priority"]) for body, each in before.items()}
    assert [said[body][0] for body in (b"delay", b"held", b"ttl", b"failed")] == ["scheduled", "on-hold", "ready", "scheduled"]
    said[b"failed"] = ("ready", None, None, 4)

    async def are(where: str) -> None:
        async def look_again() -> bool:
            found = await look(connection, where)
            return {each["body"]: (each["state"], each["due_at_ms"], each["expires_at_ms"], each["priority"]) for each in found} == said

        await until(f"all is as it was in {where}", look_again)

    command = HomingCommand(tmp_path)
    dry = command("edit", str(before[b"failed"]["message_id"]), "--set", "a=b", "--dry-run", url=server.url).stdout
    assert "goes at once: the delay after its last failure is dropped" in dry
    plan = await connection.call("reckon-redrive", queue=queue, to=elsewhere)
    assert plan["drops"] == [{"code": "redelivery-delay", "messages": 2}], "at most: one of them was sent with a delay"
    for each in before.values():
        await connection.edit(each["message_id"], properties={"a": "b"})
    await are(queue)
    # On hold it is not for ever, though what took its place has not failed.
    assert await connection.retry(queue, release=True) == 1
    await holds(connection, queue, pending=3)
    said[b"held"] = ("ready", None, None, 4)
    for each in await look(connection, queue):
        await connection.call("move-message", message_id=each["message_id"], queue=elsewhere)
    await are(elsewhere)
    assert (await connection.redrive(elsewhere, to=third, wait=True))["sent"] == len(said)
    await are(third)
    for each in await look(connection, third):
        assert (await connection.call("why", message_id=each["message_id"]))["places"][0]["queue"] == third, "found by its number"


async def test_a_time_to_live_of_the_queue_holds_and_lengthens_none(connection: Connection, server: Server) -> None:
    queue, short = name(), name()
    await connection.call("create-queue", queue=queue, message_ttl_ms=3_600_000)
    await connection.call("create-queue", queue=short)
    await send(connection, short, b"soon", ttl_ms=600_000)
    (before,) = await look(connection, short)
    await connection.call("move-message", message_id=before["message_id"], queue=queue)
    await holds(connection, queue, pending=1)
    (there,) = await look(connection, queue)
    assert there["expires_at_ms"] == before["expires_at_ms"], "the shorter one"
    copy = await connection.edit(there["message_id"], body=b"edited")
    await holds(connection, queue, pending=1)
    (there,) = await look(connection, queue)
    assert (there["message_id"], there["expires_at_ms"]) == (copy, before["expires_at_ms"])
    # A death has cleared the expiration; what is sent back has that of the queue, anew.
    await connection.call("purge", queue=queue)
    await die(connection, queue, 1, ttl_ms=600_000)
    assert (await connection.redrive(f"DLQ.{queue}", wait=True))["sent"] == 1
    await holds(connection, queue, pending=1)
    (back,) = await look(connection, queue)
    assert back["expires_at_ms"] - back["entered_at_ms"] == 3_600_000


async def test_routing_keys_and_expirations_of_amqp(connection: Connection, server: Server) -> None:
    queue, dead = name(), name()
    with channel(server) as amqp:
        amqp.exchange_declare(queue, "topic", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        amqp.queue_declare(queue, durable=True, arguments=arguments)
        amqp.queue_declare(dead, durable=True)
        amqp.queue_bind(queue, queue, "order.#")
        for how in ("redrive", "job", "move"):
            amqp.basic_publish(queue, "order.created", how.encode(), PERSISTENT)
            method, _, _ = get(amqp, queue, auto_ack=False)
            amqp.basic_reject(method.delivery_tag, requeue=False)
            await holds(connection, dead, pending=1)
            (letter,) = await look(connection, dead)
            if how == "job":
                await connection.redrive(dead, wait=True)
            elif how == "redrive":
                await connection.call("redrive", queue=dead)
            else:
                await connection.call("move-message", message_id=letter["message_id"], queue=queue)
            method, properties, body = get(amqp, queue, auto_ack=False)
            assert (body.decode(), method.exchange, method.routing_key) == (how, queue, "order.created")
            # Dead again, its account tells how it had come in each time.
            amqp.basic_reject(method.delivery_tag, requeue=False)
            method, properties, _ = get(amqp, dead)
            (death,) = properties.headers["x-death"]
            assert (death["count"], death["exchange"], death["routing-keys"]) == (2, queue, ["order.created"])
            assert method.routing_key == dead
        said = PERSISTENT.__class__(delivery_mode=2, expiration="3600000")
        amqp.basic_publish("", queue, b"expires", said)
        await holds(connection, queue, pending=1)
        (there,) = await look(connection, queue)
        await connection.edit(there["message_id"], properties={"a": 1})
        await holds(connection, queue, pending=1)
        _, properties, _ = get(amqp, queue)
        assert (properties.expiration, properties.headers) == ("3600000", {"a": 1})


async def test_the_command_line(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    numbers = await die(connection, queue)
    dead = f"DLQ.{queue}"
    removal = command.json("dead", "delete", dead, "--from-queue", queue, "--dry-run", url=server.url)
    assert [(each["queue"], each["messages"], each["exact"]) for each in removal] == [(dead, DEAD, True)]
    assert [each["message_id"] for each in removal[0]["samples"]] == numbers[:5]
    shown = command("dead", "delete", dead, "--id", str(numbers[0]), "--dry-run", url=server.url).stdout
    assert shown.startswith(f"1 message of {dead} would be removed\n  such as {numbers[0]}  dead-lettered from {queue}")
    (fault,) = (await connection.call("faults", queue=queue))["items"]
    of_fault = command.json("dead", "delete", dead, "--fault", fault["fault"], "--dry-run", url=server.url)
    assert of_fault[0] in command.json("faults", "delete", fault["fault"], "--dry-run", url=server.url)
    small = name()
    await connection.call("create-queue", queue=small, max_length=2, overflow="drop-head")
    shown = command("dead", "move", dead, small, "--from-queue", queue, "--dry-run", url=server.url).stdout
    assert f"{DEAD - 2} would wait or stay: the queue has no room for them, and nothing is pushed out ({small})" in shown
    shown = command("edit", str(numbers[0]), "--set", "a=b", "--to", small, "--dry-run", url=server.url).stdout
    assert "no room" not in shown
    await holds(connection, dead, messages=DEAD)
    # One thing, whatever it is called; the old words are not shown.
    plans = [
        command.json(*words, dead, "--id", str(numbers[0]), "--dry-run", url=server.url) for words in (["redrive"], ["redrives", "start"])
    ]
    assert plans[0] == plans[1]
    assert " start " not in command("redrives", "--help").stdout
    begun = command("redrives", "start", dead, "--id", str(numbers[0]), url=server.url)
    assert (begun.returncode, "shows how it fares" in begun.stderr) == (0, True)
    await holds(connection, queue, messages=1)
    job = command.json("redrive", dead, "--where", "AMQSize = 1", "--limit", "2", url=server.url)
    assert (job["state"], job["sent"]) == ("done", 2)
    for verb, sent, left in ((("redrive", dead), 2, 1), (("faults", "redrive", fault["fault"]), 0, 1)):
        full = command(*verb, "--to", small, url=server.url)
        assert (full.returncode, f"is stopped: queue {small} has no room for what was left" in full.stdout) == (1, True)
        assert f"{sent} sent" in full.stdout
        assert f"{left} left where they were" in full.stdout
    assert await dropped(connection, small) == 0
    for words, state in ((("fixed", "1.4"), "1.4"), (("reopen",), None), (("fixed",), ""), (("reopen",), None)):
        assert command.json("faults", words[0], fault["fault"], *words[1:], url=server.url)["fixed_in"] == state
        (there,) = (await connection.call("faults", queue=queue))["items"]
        assert there["fixed_in"] == state
        assert (there["fixed_ms"] is None) == (state is None)
