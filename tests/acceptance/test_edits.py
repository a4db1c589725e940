"""Edit and send again: the one comes and the other goes in one commit, both lives tell of it, and each queue's balance holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pytest

import homing
from homing.client import AckMode, Connection
from homing.journal.read.check import check
from tests.acceptance.semantics_support import history, holds, look, name, outcomes, receive, running, send, totals
from tests.amqp_support import AMQP, amqp_port
from tests.process import HomingCommand, Server

COUNT = 30
SETTINGS = {"#": {"max-delivery-attempts": 1, "signature-properties": ["signature"]}}


OPTIONS: dict[str, Any] = {"limits": {"window-messages": 10}} | AMQP


async def die(connection: Connection, queue: str, count: int = COUNT, **properties: Any) -> list[int]:
    """The numbers of so many ValueErrors in ``DLQ.<queue>``."""
    for number in range(count):
        body = json.dumps({"n": number, "total": 5, "of": {"name": "Ann", "age": 3}}).encode()
        await send(connection, queue, body, properties={"region": "eu", "n": number, **properties})
    async with connection.session(AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(queue, prefetch=1)
        for _ in range(count):
            await (await receive(consumer)).nack(error=ValueError("total"))
    await holds(connection, f"DLQ.{queue}", messages=count)
    return [each["message_id"] for each in await look(connection, f"DLQ.{queue}")]


def balances(server: Server, queue: str, here: int) -> dict[str, int]:
    """The journal's counts of a queue, of which the balance holds."""
    found = totals(server, queue)
    gone = ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out")
    assert found["sent"] + found["moved_in"] == sum(found[each] for each in gone) + here
    return found


async def test_one_message(connection: Connection, server: Server) -> None:
    queue = name()
    (number,) = await die(connection, queue, 1)
    patch = [{"op": "replace", "path": "/total", "value": 6}, {"op": "remove", "path": "/of/age"}]
    copy = await connection.edit(number, patch=patch, properties={"region": "us"}, without_properties=["n"])
    await holds(connection, f"DLQ.{queue}", messages=0)
    (there,) = await look(connection, queue)
    assert json.loads(there["body"]) == {"n": 0, "total": 6, "of": {"name": "Ann"}}
    assert (there["message_id"], there["properties"], there["failed"], there["delivery_count"], there["hops"]) == (
        *(copy, {"region": "us"}, 0, 0, []),
    )
    async with connection.session(AckMode.INDIVIDUAL) as session:
        message = await receive(session.consumer(queue, prefetch=1))
        assert (message.message_id, message.delivery_count) == (copy, 1)
        await message.acknowledge(confirm=True)
    assert await outcomes(connection, number) == ["dead-lettered", "edited"]
    assert await outcomes(connection, copy) == ["succeeded"]
    lineage = [(each["message_id"], each["original"], each["queue"]) for each in (await history(connection, number))["edits"]]
    assert lineage == [(copy, number, queue)]
    assert (await history(connection, copy))["edits"] == (await history(connection, number))["edits"]
    assert balances(server, queue, 0)["moved_in"] == 1
    assert balances(server, f"DLQ.{queue}", 0)["moved_out"] == 1
    (fault,) = (await connection.call("faults", queue=queue))["items"]
    assert [fault[each] for each in ("failures", "waiting", "dead", "succeeded", "died", "redriven")] == [1, 0, 0, 1, 1, 1]
    dead = (await connection.call("queue", queue=f"DLQ.{queue}"))["edited"]
    assert dead == 1


async def test_the_original_may_stay_and_the_other_go_elsewhere(connection: Connection, server: Server) -> None:
    queue, elsewhere = name(), name()
    await connection.call("create-queue", queue=elsewhere)
    (number,) = await die(connection, queue, 1)
    first = await connection.edit(number, body=b"whole", to=elsewhere, keep_original=True)
    second = await connection.edit(number, patch={"total": None, "more": 1}, to=elsewhere, keep_original=True)
    found = await look(connection, elsewhere)
    assert [each["message_id"] for each in found] == [first, second]
    for copy in (first, second):
        (there,) = (await history(connection, copy))["references"]
        assert there["queue"] == elsewhere, "what takes its place is found by its number"
    assert [each["body"] for each in found] == [b"whole", b'{"n":0,"of":{"name":"Ann","age":3},"more":1}']
    assert [each["message_id"] for each in await look(connection, f"DLQ.{queue}")] == [number]
    assert [each["message_id"] for each in (await history(connection, number))["edits"]] == [first, second]
    assert balances(server, f"DLQ.{queue}", 1)["moved_out"] == 0
    assert balances(server, elsewhere, 2)["moved_in"] == 2


async def test_what_is_refused_stays_as_it_was(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue = name()
    (number,) = await die(connection, queue, 1, signature="abc")
    before = await look(connection, f"DLQ.{queue}")

    async def refused(message_id: int = number, **wanted: Any) -> str:
        with pytest.raises(homing.HomingError) as error:
            await connection.edit(message_id, **wanted)
        return error.value.code

    assert await refused(body=b"x") == "message-signed"
    command, edit = HomingCommand(tmp_path), ("edit", str(number), "--set", "a=b", "--dry-run")
    assert f"{number}  carries signature, a signature: only --yes edits it" in command(*edit, url=server.url).stdout
    assert command.json(*edit, url=server.url) == [{"message_id": number, "difference": ["+a: b"], "signed_by": ["signature"]}]
    assert await refused(body=b"x", queue=queue, signed=True) == "no-such-message"
    assert await refused(1 << 50, body=b"x") == "no-such-message"
    assert await refused(properties={"_AMQ_ORIG_QUEUE": "x"}, signed=True) == "invalid-property"
    assert await refused(without_properties=["_HOMING_AMQP"], signed=True) == "invalid-property"
    assert await refused(properties={"x": "y" * 70_000}, signed=True) == "properties-too-large"
    assert await refused(body=b"x" * (16 * 1024 * 1024 - 1024), signed=True) == "message-too-large"
    assert await refused(patch=[{"op": "test", "path": "/total", "value": 7}], signed=True) == "patch-failed"
    assert await refused(patch=[{"op": "fly"}], signed=True) == "no-patch"
    assert await refused(signed=True, to=queue, keep_original=True) == "invalid-argument"
    assert await refused(signed=True, properties={}, without_properties=[]) == "invalid-argument"
    assert await refused(body=b"x", patch={}, signed=True) == "invalid-argument"
    assert await refused(properties={"a": 1}, without_properties=["a"], signed=True) == "invalid-argument"
    assert await refused(body=b"x", to="nowhere", signed=True) == "no-such-queue"
    async with connection.session(AckMode.INDIVIDUAL) as session:
        held = await receive(session.consumer(f"DLQ.{queue}", prefetch=1))
        assert await refused(body=b"x", signed=True) == "message-held"
        await held.release()
    await holds(connection, f"DLQ.{queue}", pending=1, delivering=0)
    changed = ("delivery_count", "assigned")
    now = await look(connection, f"DLQ.{queue}")
    assert [{k: v for k, v in each.items() if k not in changed} for each in now] == [
        {k: v for k, v in each.items() if k not in changed} for each in before
    ]
    assert await connection.edit(number, body=b"x", signed=True)


@pytest.mark.parametrize(
    "edits",
    [
        None,
        [],
        [{}],
        [{"message_id": 1}, {"message_id": 1}],
        [{"message_id": 1, "body": "text"}],
        [{"message_id": 1, "set": []}],
        [{"message_id": 1, "unset": [1]}],
        [{"message_id": 1, "set": {"a": 1, "b": 2}, "unset": ["b"]}],
        [7],
    ],
)
async def test_what_is_no_edit_is_refused(connection: Connection, edits: Any) -> None:
    queue = name()
    await connection.call("create-queue", queue=queue)
    with pytest.raises(homing.HomingError) as refused:
        await connection.call("edit", queue=queue, edits=edits)
    assert refused.value.code == "invalid-argument"


async def test_headers_of_amqp(connection: Connection, server: Server) -> None:
    queue = name()
    parameters = pika.ConnectionParameters("127.0.0.1", amqp_port(server))
    with pika.BlockingConnection(parameters) as amqp, amqp.channel() as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{queue}.dead"})
        channel.queue_declare(f"{queue}.dead", durable=True)
        said = pika.BasicProperties(
            delivery_mode=2,
            content_type="text/plain",
            expiration="3600000",
            correlation_id="c1",
            headers={"a": 1, "b": "x", "list": [1, 2]},
        )
        channel.basic_publish("", queue, b"body", said)
        method = next(found[0] for found in iter(lambda: channel.basic_get(queue), None) if found[0] is not None)
        channel.basic_reject(method.delivery_tag, requeue=False)
        await holds(connection, f"{queue}.dead", messages=1)
        (dead,) = await look(connection, f"{queue}.dead")
        await connection.edit(dead["message_id"], properties={"a": 2, "JMSCorrelationID": "c2"}, without_properties=["b"])
        await holds(connection, queue, pending=1)
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        assert (body, properties.content_type, properties.correlation_id, properties.expiration) == (b"body", "text/plain", "c2", None)
        assert properties.headers == {"a": 2, "list": [1, 2]}


async def test_the_command_line(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    dead = f"DLQ.{queue}"
    numbers = await die(connection, queue)
    (tmp_path / "patch.json").write_text('[{"op": "replace", "path": "/total", "value": 6}]')
    (tmp_path / "merge.json").write_text('{"total": 7, "of": null}')
    shown = command("edit", str(numbers[0]), "--patch", tmp_path / "patch.json", "--set", "region=us", "--dry-run", url=server.url)
    assert [line.strip() for line in shown.stdout.splitlines() if line.strip()[:1] in ("-", "+")] == [
        *("-region: eu", "+region: us", '-  "total": 5,', '+  "total": 6,'),
    ]
    asked = command("edit", str(numbers[0]), "--patch", tmp_path / "patch.json", url=server.url)
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    assert command("edit", str(numbers[0]), url=server.url).returncode == 2
    assert command("edit", "--queue", dead, "--set", "a=b", "--yes", url=server.url).returncode == 2
    await holds(connection, dead, messages=COUNT)
    one = command.json("edit", str(numbers[0]), "--patch", tmp_path / "patch.json", "--yes", url=server.url)
    assert ([each["message_id"] for each in one["edited"]], one["refused"]) == ([numbers[0]], [])
    reported = command("history", str(one["edited"][0]["edited"]), url=server.url).stdout
    assert f"made of message {numbers[0]} by an edit" in reported
    assert f"edited: message {one['edited'][0]['edited']} went to {queue}" in command("history", str(numbers[0]), url=server.url).stdout
    some = ("edit", "--queue", dead, "--error-type", "ValueError", "--where", "n < 20", "--patch", tmp_path / "merge.json", "--yes")
    assert len(command.json(*some, url=server.url)["edited"]) == 19
    await holds(connection, dead, messages=COUNT - 20)
    bodies = [json.loads(each["body"]) for each in await look(connection, queue)]
    assert sorted((each["n"], each["total"], "of" in each) for each in bodies) == [(0, 6, True), *((n, 7, False) for n in range(1, 20))]
    # What does not fit stays as it was, also the first of the samples.
    (tmp_path / "fits.json").write_text('[{"op": "test", "path": "/n", "value": 21}, {"op": "replace", "path": "/total", "value": 8}]')
    fits = command("edit", "--queue", dead, "--where", "n < 22", "--patch", tmp_path / "fits.json", "--to", dead, "--yes", url=server.url)
    assert (fits.returncode, "1 message of" in fits.stdout) == (1, True)
    assert f"{numbers[20]}\n  (the patch does not fit this body" in fits.stdout
    assert f"{numbers[20]} is as it was" in fits.stderr
    # Those that stay in the same queue are not met again.
    here = command.json("edit", "--queue", dead, "--where", "n >= 20", "--set", "region=us", "--to", dead, "--yes", url=server.url)
    assert len(here["edited"]) == COUNT - 20
    assert {each["properties"]["region"] for each in await look(connection, dead)} == {"us"}
    balances(server, dead, COUNT - 20)


async def test_the_difference_is_of_what_was_and_what_will_be(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    bodies = [b'{"p":19.999999999999999999,"q":1e400,"a":1}', b'{"a":1,"a":2}', b'{"a":1,"n":NaN}', b'{"a": 2}', b"\xff\xff"]
    for body in bodies:
        await send(connection, queue, body)
    numbers = [each["message_id"] for each in await look(connection, queue)]
    (tmp_path / "patch.json").write_text('{"a": 2.00}')

    def differences(*wanted: Any) -> list[list[str]]:
        asked = ("edit", "--queue", queue, "--where", "TRUE", *wanted, "--samples", "9", "--dry-run")
        return [each["difference"] for each in command.json(*asked, url=server.url)]

    exact, twice, no_number, _, binary = differences("--patch", tmp_path / "patch.json")
    assert exact[1:] == [" {", '   "p": 19.999999999999999999,', '   "q": 1e400,', '-  "a": 1', '+  "a": 2.00', " }"]
    assert [each[0].split(": ", 1)[1] for each in (twice, no_number)] == [
        'an object has "a" twice; give a whole body, not a patch)',
        "NaN is no number of JSON; give a whole body, not a patch)",
    ]
    assert binary[0].endswith("; give a whole body, not a patch)")
    (tmp_path / "body.json").write_text('{"a":2}')
    exact, twice, no_number, written, binary = differences("--body", tmp_path / "body.json")
    assert twice[1:] == ['-{"a":1,"a":2}', "+{", '+  "a": 2', "+}"]
    assert no_number[1] == '-{"a":1,"n":NaN}'
    assert written == ["(the body differs in what is not shown: in how JSON is written, or in what is long or binary)"]
    (tmp_path / "body.json").write_bytes(b"\xff\xfe")
    assert differences("--body", tmp_path / "body.json")[4] == written
    await send(connection, f"{queue}.p", b"{}", properties={"n": 1})
    (typed,) = await look(connection, f"{queue}.p")
    asked = ("edit", str(typed["message_id"]), "--set", "n:=true", "--dry-run")
    assert command.json(*asked, url=server.url)[0]["difference"] == ["-n: 1", "+n: True"]
    done = command.json("edit", str(numbers[0]), "--patch", tmp_path / "patch.json", "--yes", url=server.url)["edited"]
    (copy,) = [each for each in await look(connection, queue) if each["message_id"] == done[0]["edited"]]
    assert copy["body"] == b'{"p":19.999999999999999999,"q":1e400,"a":2.00}'


async def test_what_no_message_could_take_is_a_wrong_command_line(connection: Connection, server: Server, tmp_path: Path) -> None:
    queue, command = name(), HomingCommand(tmp_path)
    await send(connection, queue, b'{"a":1}')
    (there,) = await look(connection, queue)
    for wrong, said in {
        '[{"op": "frob", "path": "/a"}]': "operation 1: Unknown operation 'frob'",
        '{"a": NaN}': "NaN is no number of JSON",
        '{"a": 1, "a": 2}': 'an object has "a" twice',
        "7": "neither a list nor a map",
    }.items():
        (tmp_path / "patch.json").write_text(wrong)
        refused = command("edit", str(there["message_id"]), "--patch", tmp_path / "patch.json", "--dry-run", url=server.url)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    for properties, said in {
        ("--set", "_HOMING_REASON=x"): "the property name '_HOMING_REASON' is the broker's own",
        ("--unset", "_AMQ_ORIG_QUEUE"): "the property name '_AMQ_ORIG_QUEUE' is the broker's own",
        ("--set", "n:=9223372036854775808"): "outside of 64 bits signed",
        ("--set", "x=1", "--unset", "x"): "x is both in --set and in --unset",
    }.items():
        for way in ("--dry-run", "--yes"):
            refused = command("edit", str(there["message_id"]), *properties, way, url=server.url)
            assert (refused.returncode, refused.stdout, said in refused.stderr) == (2, "", True), refused.stderr
    assert await look(connection, queue) == [there]


async def test_edits_survive_a_kill(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS, limits={"window-messages": 5}) as server:
        async with homing.connect(server.url) as connection:
            numbers = await die(connection, "q", 12)
            copies = [await connection.edit(number, properties={"region": "us"}) for number in numbers[:6]]
        server.kill()
        server.start()
        async with homing.connect(server.url) as connection:
            assert [each["message_id"] for each in await look(connection, "q")] == copies
            assert [each["message_id"] for each in await look(connection, "DLQ.q")] == numbers[6:]
            assert await outcomes(connection, numbers[0]) == ["dead-lettered", "edited"]
            assert (await history(connection, copies[0]))["edits"][0]["original"] == numbers[0]
        assert server.stop() == 0
        assert not check(server.data).problems
