"""docs/semantics.md, section 4: redelivery policies that consumers bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import homing
from homing.client import Connection, RedeliveryPolicy
from tests.acceptance.semantics_support import (
    consuming,
    cut,
    fail_quickly,
    history,
    holds,
    name,
    queue,
    receive,
    receive_all,
    recorded_delay,
    send,
    settled,
)
from tests.process import HomingCommand, Server

SETTINGS: dict[str, Any] = {
    "#": {"redelivery-delay": 77, "max-delivery-attempts": 4},
    "strict.#": {"allow-consumer-policy": False},
    "hasty.#": {"consumer-timeout": 300},
    "rules.#": {
        "redelivery-delay": 1,
        "max-delivery-attempts": 10,
        "rules": [
            {"error-type": "TimeoutError", "redelivery-back-off": "linear", "redelivery-delay": 10, "max-delivery-attempts": 5},
            {"error-type": "ValueError", "action": "dead-letter", "dead-letter-address": "bad.input"},
            {"name": "gone customers", "reason": "*no such customer*", "header": {"region": "eu"}, "action": "drop"},
            {"exit-status": 75, "max-delivery-attempts": 1},
        ],
    },
}
FOR_EVER = {"maximum_redeliveries": -1}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [1000, 1000, 1000]),
        ({"initial_redelivery_delay_ms": 50, "redelivery_delay_ms": 800}, [50, 800, 800]),
        ({"initial_redelivery_delay_ms": 300, "use_exponential_back_off": True, "back_off_multiplier": 3}, [300, 900, 2700, 8100]),
        ({"initial_redelivery_delay_ms": 0, "redelivery_delay_ms": 100, "use_exponential_back_off": True}, [0, 100, 500, 2500]),
        ({"use_exponential_back_off": True, "back_off_multiplier": 1}, [1000, 1000, 1000]),
        ({"use_exponential_back_off": True, "maximum_redelivery_delay_ms": 6000}, [1000, 5000, 6000, 6000]),
        # The cap never goes below redelivery_delay.
        ({"initial_redelivery_delay_ms": 10, "redelivery_delay_ms": 900, "maximum_redelivery_delay_ms": 500}, [10, 900, 900]),
    ],
)
async def test_the_delay_after_n_failures(connection: Connection, policy: dict[str, Any], expected: list[int]) -> None:
    brought = RedeliveryPolicy(**{**FOR_EVER, **policy})
    found = []
    for times in range(1, len(expected) + 1):
        found.append(await recorded_delay(connection, await fail_quickly(connection, name(), times, redelivery_policy=brought)))
    assert found == expected


async def test_jitter_is_drawn_once_not_for_the_first_delay_and_the_cap_holds(connection: Connection) -> None:
    brought = RedeliveryPolicy(
        use_collision_avoidance=True, collision_avoidance_factor=0.5, maximum_redelivery_delay_ms=1200, maximum_redeliveries=-1
    )
    for times in (1, 2):
        address = name()
        await send(connection, address, *range(40))
        async with consuming(connection, address, redelivery_policy=brought) as consumer:
            for _ in range(times - 1):
                for message in await receive_all(consumer, 40):
                    await message.nack(delay_ms=0)
            for message in await receive_all(consumer, 40):
                await message.nack()
        delays = [await recorded_delay(connection, each["message_id"]) for each in await settled(connection, address, 40)]
        if times == 1:
            assert set(delays) == {1000}
        else:
            assert all(500 <= each <= 1200 for each in delays)
            assert min(delays) < 1000 < max(delays)


@pytest.mark.parametrize("address", ["plain", "hasty"])
async def test_the_broker_applies_it_also_at_connection_loss_and_timeout(connection: Connection, server: Server, address: str) -> None:
    source = name(address)
    await send(connection, source, 1)
    brought = RedeliveryPolicy(initial_redelivery_delay_ms=123_000)
    async with homing.connect(server.url, reconnect=False, redelivery_policy=brought) as other:
        await receive(other.session(homing.AckMode.CLIENT).consumer(source))
        if address == "plain":
            cut(other)
        (waiting,) = await settled(connection, source)
    (attempt,) = (await history(connection, waiting["message_id"]))["attempts"]
    assert attempt["outcome"] == ("connection-lost" if address == "plain" else "timeout")
    assert attempt["delay_ms"] == 123_000


async def test_a_map_of_policies_by_destination(server: Server, connection: Connection) -> None:
    policies = {
        "orders.#": RedeliveryPolicy(initial_redelivery_delay_ms=11_000),
        "orders.*.eu": RedeliveryPolicy(initial_redelivery_delay_ms=22_000),
        "orders.new.eu": RedeliveryPolicy(initial_redelivery_delay_ms=33_000),
    }
    async with homing.connect(server.url, redelivery_policies=policies) as other:
        for address, expected in (("orders", 11_000), ("orders.old.eu", 22_000), ("orders.new.eu", 33_000), ("else", 77)):
            assert await recorded_delay(connection, await fail_quickly(other, address, 1)) == expected
        own = RedeliveryPolicy(initial_redelivery_delay_ms=44_000)
        assert await recorded_delay(connection, await fail_quickly(other, "orders.x", 1, redelivery_policy=own)) == 44_000


async def test_it_holds_for_the_message_not_for_the_unacknowledged_batch(connection: Connection) -> None:
    """Classic returns everything unacknowledged, in order, and blocks the rest; here only the one that failed waits."""
    address = name()
    await send(connection, address, *range(5))
    brought = RedeliveryPolicy(initial_redelivery_delay_ms=60_000)
    async with consuming(connection, address, redelivery_policy=brought) as consumer:
        messages = await receive_all(consumer, 3)
        await messages[0].nack()
        for message in [*messages[1:], *await receive_all(consumer, 2)]:
            await message.acknowledge(confirm=True)
    (waiting,) = await settled(connection, address)
    assert (waiting["body"], waiting["failed"]) == (b"0", 1)


async def test_who_decides_the_delay(connection: Connection) -> None:
    """The nack's own, then the consumer's policy, then the settings."""
    brought = RedeliveryPolicy(initial_redelivery_delay_ms=5000)
    assert await recorded_delay(connection, await fail_quickly(connection, name(), 1)) == 77
    assert await recorded_delay(connection, await fail_quickly(connection, name(), 1, redelivery_policy=brought)) == 5000
    address = name()
    await send(connection, address, 1)
    async with consuming(connection, address, redelivery_policy=brought) as consumer:
        message = await receive(consumer)
        await message.nack(delay_ms=9000)
    assert await recorded_delay(connection, message.message_id) == 9000


@pytest.mark.parametrize(
    ("address", "maximum_redeliveries", "deliveries"),
    [("plain", None, 4), ("plain", 1, 2), ("plain", 6, 7), ("strict", None, 4), ("strict", 1, 2), ("strict", 6, 4), ("strict", -1, 4)],
)
async def test_who_decides_the_limit(connection: Connection, address: str, maximum_redeliveries: int | None, deliveries: int) -> None:
    """The policy where there is one; with ``allow-consumer-policy: false`` the stricter of the two."""
    source = name(address)
    await send(connection, source, 1)
    brought = None if maximum_redeliveries is None else RedeliveryPolicy(maximum_redeliveries=maximum_redeliveries)
    async with consuming(connection, source, redelivery_policy=brought) as consumer:
        for attempt in range(1, deliveries + 1):
            message = await receive(consumer)
            assert message.delivery_count == attempt
            await message.nack(delay_ms=0)
        await holds(connection, f"DLQ.{source}", messages=1)
    assert (await queue(connection, source))["messages"] == 0


async def test_what_is_not_retryable_dies_under_an_endless_policy(connection: Connection) -> None:
    address = name()
    await send(connection, address, 1)
    async with consuming(connection, address, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=-1)) as consumer:
        await (await receive(consumer)).nack(retryable=False)
        await holds(connection, f"DLQ.{address}", messages=1)


async def test_a_policy_that_makes_no_sense_is_refused(connection: Connection) -> None:
    with pytest.raises(homing.UsageError) as refused:
        RedeliveryPolicy(maximum_redeliveries=-2)
    assert refused.value.code == "invalid-redelivery-policy"


# -- rules by error class ------------------------------------------------------------------------------------------------


async def failing(connection: Connection, address: str, *failures: BaseException | dict[str, Any], **sent: Any) -> int:
    """Sends one message and fails it so, one after the other. Its number."""
    await send(connection, address, b"x", **sent)
    async with consuming(connection, address) as consumer:
        for failure in failures:
            message = await receive(consumer)
            await message.nack(**(failure if isinstance(failure, dict) else {"error": failure}))
    return message.message_id


async def test_the_first_rule_that_fits_a_failure_has_a_say(connection: Connection) -> None:
    """The worked example: each delay is a closed form of the count, whatever it failed of before."""
    address = name("rules")
    late = await failing(connection, address, KeyError("k"), TimeoutError(), KeyError("k"), TimeoutError(), TimeoutError())
    reported = (await history(connection, late))["attempts"]
    assert [(each["delay_ms"], each["rule"]) for each in reported] == [(1, None), (20, "1"), (1, None), (40, "1"), (None, "1")]
    assert reported[1]["fault"]["bases"] == ["OSError", "Exception", "BaseException"]
    await holds(connection, f"DLQ.{address}", messages=1)
    own = await failing(connection, address, {"error": TimeoutError(), "delay_ms": 0}, {"error": TimeoutError()})
    assert [each["delay_ms"] for each in (await history(connection, own))["attempts"]] == [0, 20], "the nack's own goes before the rule's"


async def test_a_rule_dead_letters_at_once_elsewhere_or_drops_by_name(connection: Connection) -> None:
    address = name("rules")
    bad = await failing(connection, address, UnicodeDecodeError("utf-8", b"x", 0, 1, "no"))
    await holds(connection, "bad.input", messages=1)
    reported = await history(connection, bad)
    assert (reported["outcomes"][-1]["reason"], reported["outcomes"][-1]["target_queues"]) == ("not-retryable", ["bad.input"])
    no_customer = {"error": LookupError("there is no such customer: 7")}
    gone = await failing(connection, address, no_customer, properties={"region": "eu"})
    await holds(connection, address, messages=0)
    reported = await history(connection, gone)
    assert (reported["attempts"][-1]["decision"], reported["attempts"][-1]["rule"]) == ("drop", "gone customers")
    assert (reported["outcomes"][-1]["outcome"], reported["outcomes"][-1]["reason"]) == ("dropped", "gone customers")
    kept = await failing(connection, address, no_customer, properties={"region": "us"})
    assert (await history(connection, kept))["attempts"][-1]["decision"] == "redeliver"
    await failing(connection, name("rules"), {"reason": "queue full", "exit_status": 75})
    assert (await connection.call("redrive", queue="bad.input")) == {"messages": 1}
    await holds(connection, address, pending=2)


async def test_what_is_tried_out_tells_faults_that_ended_alike_apart(connection: Connection, server: Server, tmp_path: Path) -> None:
    address, command = name(), HomingCommand(tmp_path)
    await failing(connection, address, {"reason": "no stock of 7"}, {"reason": "no stock of 8"}, {"reason": f"too dear:\n{'x' * 300}"}, {})
    tried = command.json("settings", "set", address, "max-delivery-attempts=2", "--preview", url=server.url)
    rows = tried["preview"]["rows"]
    assert {each["error_class"] for each in rows} == {"nack"}
    assert sorted((each["text"], each["failures"]) for each in rows) == [
        ("", 1),
        ("no stock of 8", 2),
        (f"too dear:\n{'x' * 246}", 1),
    ], "the latest stands for those that look alike"
    known = {each["fault"] for each in (await connection.call("faults", queue=address))["items"]}
    assert {each["fault"] for each in rows} == known
    assert len(known) == 3
    shown = command("settings", "set", address, "max-delivery-attempts=2", "--preview", url=server.url).stdout
    for each in rows:
        assert each["fault"] in shown
    assert "nack: no stock of 8 " in shown
    assert "nack: too dear: xxx" in shown


async def test_rules_change_while_it_runs_and_are_tried_out_before(connection: Connection, server: Server, tmp_path: Path) -> None:
    address = name()
    await failing(connection, address, ConnectionResetError(), ConnectionResetError(), {"error": KeyError("x"), "retryable": False})
    file, command = tmp_path / "rules.yaml", HomingCommand(tmp_path)
    file.write_text("- {error-type: ConnectionError, redelivery-delay: 1h}\n- {name: gone, error-type: KeyError, action: drop}\n")
    tried = command.json("settings", "set", address, "--file", str(file), "--preview", url=server.url)
    assert tried["dry_run"]
    rows = {each["error_class"]: each for each in tried["preview"]["rows"]}
    reset, key = rows["ConnectionResetError"], rows["KeyError"]
    assert (reset["then"], reset["now"], reset["rule"]) == ({"redeliver": 2}, {"redeliver": 2}, "1")
    assert (reset["min_delay_ms"], reset["max_delay_ms"]) == (3_600_000, 3_600_000)
    assert (key["then"], key["now"], key["rule"]) == ({"dead-letter": 1}, {"drop": 1}, "gone")
    for verb in ("delete-queue", "create-queue"):
        await connection.call(verb, queue=address)
        again = command.json("settings", "set", address, "--file", str(file), "--preview", url=server.url)
        assert again["preview"]["rows"] == tried["preview"]["rows"], (
            "the queue is the same by its name, and its failures count when it is gone"
        )
    assert command.json("explain", address, "--error", "ConnectionResetError", url=server.url)["rule"] is None, "nothing was changed"
    command.json("settings", "set", address, "--file", str(file), url=server.url)
    explained = command.json("explain", address, "--error", "ConnectionResetError", url=server.url)
    assert (explained["rule"], explained["attempts"][1]["min_delay_ms"]) == ("1", 3_600_000)
    dropped = command.json("explain", address, "--error", "KeyError", url=server.url)
    assert (dropped["rule"], dropped["warning"]) == ("gone", None), "it ends at once because a rule says so"
    assert await recorded_delay(connection, await failing(connection, address, ConnectionResetError())) == 3_600_000
    shown = command("history", str(await failing(connection, address, ConnectionResetError())), url=server.url).stdout
    assert "by rule 1" in shown
    command.json("settings", "unset", address, "rules", url=server.url)
    assert await recorded_delay(connection, await failing(connection, address, ConnectionResetError())) == 77
