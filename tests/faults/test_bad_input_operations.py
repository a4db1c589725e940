"""Operations that are well-formed and wrong: refused with a code and what to do, the connection goes on, nobody else is disturbed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import homing
from homing.broker.protocols.native.codec import MAX_FRAME_BYTES, Op, encode
from tests.faults.bad_operations import BAD_MESSAGES, BAD_RANGES, CALLS, CREATE, KIB, SELECTORS, SLOW_SELECTORS
from tests.faults.hostile import Raw, ends_well, good_client
from tests.process import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = {
        "address-settings": {
            "#": {"redelivery-delay": 0},
            "closed.#": {"auto-create-queues": False, "auto-create-addresses": False},
        },
        "limits": {"max-transaction-operations": 50, "max-transaction-bytes": "1MiB"},
    }
    server = Server(tmp_path_factory.mktemp("operations") / "broker", config)
    yield server.start()
    ends_well(server)


async def test_every_verb_refuses_what_it_cannot_take(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 1, CREATE, {"queue": "here"})
            raw.until(Op.RESULT)
            for number, (verb, arguments, code) in enumerate(CALLS, 10):
                raw.send(Op.CALL, number, verb, arguments)
                assert raw.refusal(number, f"{verb} {str(arguments)[:200]}")[2] == code, (verb, str(arguments)[:200])
            raw.alive()

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_subscriptions_that_cannot_be(server: Server) -> None:
    wanted: list[tuple[str, dict[str, Any], str]] = [("sel", {"selector": selector}, "invalid-selector") for selector in SELECTORS]
    wanted += [(name, {}, "invalid-name") for name in ("", "a\nb", "x" * 513, "*", "a.#.b", "\u202e")]
    wanted += [
        ("closed.absent", {}, "no-such-queue"),
        ("sel", {"prefetch": -1}, "invalid-argument"),
        ("sel", {"prefetch": 100_001}, "invalid-argument"),
        ("sel", {"prefetch": 2**64 - 1}, "invalid-argument"),
        ("sel", {"prefetch": 1.0}, "invalid-argument"),
        ("sel", {"session": 2**40}, "invalid-argument"),
        ("sel", {"colour": 1}, "invalid-argument"),
        ("sel", {"transacted": 1}, "invalid-argument"),
        ("sel", {"redelivery_policy": {"x": 1}}, "invalid-redelivery-policy"),
        ("sel", {"redelivery_policy": {"redelivery_delay_ms": float("nan")}}, "invalid-redelivery-policy"),
        ("sel", {"redelivery_policy": {"back_off_multiplier": float("inf")}}, "invalid-redelivery-policy"),
        ("sel", {"redelivery_policy": {"maximum_redeliveries": 2**64 - 1}}, "invalid-redelivery-policy"),
        ("sel", {"redelivery_policy": {"use_exponential_back_off": "x" * 100_000}}, "invalid-redelivery-policy"),
    ]

    def attack() -> None:
        with Raw(server.url) as raw:
            for number, (queue, options, code) in enumerate(wanted, 1):
                raw.send(Op.SUBSCRIBE, number, number, queue, options)
                assert raw.refusal(number)[2] == code, (queue, str(options)[:200])
            raw.send(Op.SUBSCRIBE, 900, 900, "sel", {})
            raw.until(Op.RESULT)
            raw.send(Op.SUBSCRIBE, 901, 900, "sel", {})
            assert raw.refusal(901)[2] == "consumer-exists"
            raw.alive()

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_a_bad_message_is_refused_alone_and_what_came_before_is_kept(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            raw.producer("refused")
            sequence = 1
            for item, code in BAD_MESSAGES:
                raw.send(Op.SEND, 1, sequence, [[b"before"], item, [b"after"]] if len(item[0]) < KIB else [item])
                confirm = raw.until(Op.CONFIRM)
                if not code:
                    sequence += 3
                    continue
                number, got, message, fix = confirm[3]
                assert (got, number) == (code, confirm[2] + 1), str(item)[:100]
                assert 0 < len(message) <= 1000
                assert fix
                sequence = number
            raw.send(Op.SEND, 1, sequence, [[b"last"]])
            assert raw.until(Op.CONFIRM) == [Op.CONFIRM, 1, sequence]
            raw.send(Op.CALL, 5, "queues", {})
            counts = {queue["name"]: queue["messages"] for queue in raw.until(Op.RESULT)[2]}
            assert counts["refused"] == sequence

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_sending_where_nothing_may_be_made(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            for name in ("", "a\nb", "x" * 513, "*", "a::b"):
                raw.send(Op.PRODUCER, 3, 3, name)
                assert raw.refusal(3)[2] == "invalid-name"
            raw.producer("closed.absent")
            raw.send(Op.SEND, 1, 1, [[b"x"]])
            assert raw.until(Op.CONFIRM)[3][:2] == [1, "no-such-address"]
            raw.send(Op.PRODUCER, 4, 1, "again")
            assert raw.refusal(4)[2] == "producer-exists"

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_numbers_near_the_end_of_64_bits_do_not_reach_the_journal(server: Server) -> None:
    def attack() -> None:
        for first in (2**62 + 1, 2**63 - 2, 2**63, 2**64 - 1):
            with Raw(server.url) as raw:
                raw.producer("numbers")
                raw.send(Op.SEND, 1, first, [[b"a"], [b"b"], [b"c"]])
                assert raw.error()[1] == "malformed-frame"
        with Raw(server.url) as raw:
            raw.producer("numbers")
            raw.send(Op.SEND, 1, 2**62, [[b"a"], [b"b"], [b"c"]])
            assert raw.until(Op.CONFIRM)[2] == 2**62 + 2

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_credit_is_a_promise(server: Server) -> None:
    def attack() -> None:
        for messages in (10_000, 100_000):
            with Raw(server.url) as raw:
                raw.producer("credit")
                raw.send(Op.SEND, 1, 1, [[b""]] * messages)
                assert raw.error()[1] == "credit-exceeded"
        with Raw(server.url) as raw:
            raw.producer("credit")
            frame = encode([Op.SEND, 1, 1, [[b"x" * (4 << 20)]] * 3])
            raw.send(Op.SEND, 2, 1, [[b"no producer 2"]])
            raw.raw(frame)
            assert raw.error()[1] == "malformed-frame"

    async with good_client(server.url):
        await asyncio.to_thread(attack)


def holding(raw: Raw, queue: str, count: int) -> None:
    """Consumer 1 holds ``count`` messages, given."""
    raw.producer(queue)
    raw.send(Op.SEND, 1, 1, [[b"m"]] * count)
    raw.until(Op.CONFIRM)
    raw.send(Op.SUBSCRIBE, 2, 1, queue, {"prefetch": count})
    raw.until(Op.RESULT)
    got = 0
    while got < count:
        got += len(raw.until(Op.DELIVER)[3])
    raw.send(Op.GIVEN, 1, count)


async def test_tags_that_are_not_held_are_told_and_the_rest_is_settled(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            holding(raw, "tags", 10)
            raw.send(Op.GIVEN, 1, 2**63 - 1)
            raw.send(Op.GIVEN, 1, 2**64 - 1)
            raw.send(Op.GIVEN, 1, -5)
            raw.send(Op.GIVEN, 77, 5)
            raw.send(Op.ACK, 1, 4, [11, 11])
            assert raw.until(Op.NOT_HELD)[1:3] == [1, [11, 11]]
            raw.send(Op.ACK, 77, 4, [1, 5], None, 9)
            assert raw.until(Op.RESULT)[2] == {"not_held": [1, 5]}
            raw.send(Op.TOUCH, 77, [1, 5])
            assert raw.until(Op.NOT_HELD)[1:3] == [77, [1, 5]]
            raw.send(Op.ACK, 1, 0, [1, 2**62])
            raw.send(Op.ACK, 1, 2, [3, 2**62], None, 10)
            assert raw.until(Op.RESULT)[1:] == [10, {"not_held": [11, 2**62]}]
            raw.send(Op.ACK, 1, 3, [1, 2**62], {"reason": "giant"}, 11)
            assert raw.until(Op.RESULT)[1:] == [11, {"not_held": [3, 2**62]}]
            raw.send(Op.PULL, 77, 5)
            assert raw.until(Op.PULL_EMPTY)[1] == 77
            raw.alive()

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_ranges_and_types_of_acknowledgements_that_are_none(server: Server) -> None:
    def attack() -> None:
        for ranges, code in BAD_RANGES:
            for op in (Op.ACK, Op.TOUCH):
                with Raw(server.url) as raw:
                    raw.send(*((op, 1, 2, ranges) if op is Op.ACK else (op, 1, ranges)))
                    assert raw.error()[1] == code, str(ranges)[:100]
        for kind in (-1, 7, 2**64 - 1):
            with Raw(server.url) as raw:
                raw.send(Op.ACK, 1, kind, [1, 1])
                assert raw.error()[1] == "malformed-frame"
        for failure in ({"colour": 1}, {"delay_ms": -1}, {"until_ms": 2**63}, {"outcome": "eaten"}, {"count": 1}, {"reason": b"x"}, [1]):
            with Raw(server.url) as raw:
                raw.send(Op.ACK, 1, 3, [1, 1], failure)
                assert raw.error()[1] == "malformed-frame", failure

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_a_hundred_thousand_ranges_are_taken_in_their_stride(server: Server) -> None:
    ranges = [tag for n in range(1, 100_001) for tag in (2 * n, 2 * n)]

    def attack() -> None:
        with Raw(server.url) as raw:
            holding(raw, "stride", 1000)
            raw.send(Op.ACK, 1, 4, ranges, None, 5)
            not_held = raw.until(Op.RESULT)[2]["not_held"]
            assert not_held[:2] == [1002, 1002]
            raw.send(Op.CALL, 6, "queues", {})
            assert {queue["name"]: queue["messages"] for queue in raw.until(Op.RESULT)[2]}["stride"] == 500

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_one_report_for_many_messages_holds_nobody_up(server: Server) -> None:
    report = {"traceback": 'File "a.py", line 1, in run\n' * 40_000, "error_type": "E" * 10_000, "error_text": "x" * 100_000}

    def attack() -> None:
        with Raw(server.url) as raw:
            holding(raw, "reports", 4000)
            before = sum(path.stat().st_size for path in server.data.glob("homing.db*"))
            raw.send(Op.ACK, 1, 3, [1, 4000], report, 5)
            raw.until(Op.RESULT)
            grown = sum(path.stat().st_size for path in server.data.glob("homing.db*")) - before
            # Whole, each would be 24 KiB.
            assert grown < 16 << 20

    async with good_client(server.url):
        await asyncio.to_thread(attack)


@pytest.mark.parametrize("which", range(len(SLOW_SELECTORS)))
async def test_no_selector_is_slow_enough_to_be_felt_by_others(server: Server, which: int) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            queue = f"slow{which}"
            raw.producer(queue)
            for first in range(1, 61, 20):
                raw.send(Op.SEND, 1, first, [[b"", {"p": "b" + "a" * 60_000}]] * 20)
                raw.until(Op.CONFIRM)
            raw.send(Op.SUBSCRIBE, 2, 1, queue, {"selector": SLOW_SELECTORS[which]})
            raw.until(Op.RESULT)
            raw.send(Op.SUBSCRIBE, 3, 2, queue, {"selector": SLOW_SELECTORS[which] + " OR TRUE"})
            raw.until(Op.RESULT)
            raw.until(Op.DELIVER)

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_transactions_have_bounds(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            raw.producer("bounded")
            raw.send(Op.SEND, 1, 0, [[b"x"]] * 51, 7)
            raw.send(Op.COMMIT, 5, 7, "too many", 51)
            assert raw.refusal(5)[2] == "transaction-too-large"
            raw.send(Op.SEND, 1, 0, [[b"x" * (1 << 20)]], 7)
            raw.send(Op.COMMIT, 6, 7, "too large", 1)
            assert raw.refusal(6)[2] == "transaction-too-large"
            raw.send(Op.SEND, 1, 0, [[b"x"]], 7)
            raw.send(Op.COMMIT, 7, 7, "too few", 2)
            assert raw.refusal(7)[2] == "transaction-incomplete"
            raw.send(Op.SEND, 1, 0, [[b"", {"JMSX": 1}]], 7)
            raw.send(Op.COMMIT, 8, 7, "bad message", 1)
            assert raw.refusal(8)[2] == "invalid-property"
            raw.send(Op.COMMIT, 9, 7, "nothing", 0)
            raw.until(Op.RESULT)
            raw.send(Op.CALL, 5, "queues", {})
            assert "bounded" not in [queue["name"] for queue in raw.until(Op.RESULT)[2]]
            for session in range(1, 1002):
                raw.send(Op.SEND, 1, 0, [[b"x"]], session)
            assert raw.error()[1] == "too-many-transactions"
        for transaction_id in ("", "x" * 200, "a\nb"):
            with Raw(server.url) as raw:
                raw.send(Op.COMMIT, 5, 1, transaction_id, 0)
                assert raw.error()[1] == "malformed-frame"

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_what_follows_close_is_not_looked_at(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            raw.producer("closing")
            frames: list[list[Any]] = [
                [Op.SEND, 1, 1, [[b"a"], [b"b"]]],
                [Op.CLOSE, 5],
                [Op.SUBSCRIBE, 6, 1, "closing", {}],
                [Op.SEND, 1, 3, [[b"c"]]],
            ]
            raw.raw(b"".join(encode(frame) for frame in frames))
            assert raw.until(Op.CONFIRM)[2] == 2
            assert raw.next() == [Op.CLOSED, 5]
            raw.socket.shutdown(socket.SHUT_WR)
            assert raw.next() is None
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 5, "queues", {})
            found = next(queue for queue in raw.until(Op.RESULT)[2] if queue["name"] == "closing")
            assert (found["consumers"], found["delivering"], found["messages"]) == (0, 0, 2)

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_a_client_id_in_use_is_taken_over(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url, client_id="twice") as older:
            holding(older, "taken", 3)
            with Raw(server.url, client_id="twice") as newer:
                assert older.error()[1] == "taken-over"
                newer.send(Op.SUBSCRIBE, 2, 1, "taken", {"prefetch": 10})
                newer.until(Op.RESULT)
                assert {message[1] for message in newer.until(Op.DELIVER)[3]} == {2}

    async with good_client(server.url):
        await asyncio.to_thread(attack)


async def test_a_client_without_an_id_inherits_no_numbers(server: Server) -> None:
    """Its messages would be taken for repeats of another's, and be lost."""

    def send() -> None:
        for _ in range(2):
            with Raw(server.url) as raw:
                number = raw.welcome[2]["connection"]
                raw.producer("anonymous")
                raw.send(Op.SEND, 1, 1, [[b"a"], [b"b"]])
                assert raw.until(Op.CONFIRM)[2] == 2
            server.restart()
            with Raw(server.url, client_id=f"c{number}") as raw:
                raw.send(Op.PRODUCER, 1, 1, "anonymous")
                assert raw.until(Op.RESULT)[2] == {"mark": 0}
        with Raw(server.url) as raw:
            raw.send(Op.CALL, 5, "queues", {})
            assert {queue["name"]: queue["messages"] for queue in raw.until(Op.RESULT)[2]}["anonymous"] == 4

    await asyncio.to_thread(send)


async def test_large_properties_travel_in_frames_of_the_size_that_was_agreed(server: Server) -> None:
    async with homing.connect(server.url) as connection, connection.session(homing.AckMode.INDIVIDUAL) as session:
        producer = session.producer("wide")
        for number in range(320):
            producer.send_nowait(b"", properties={"n": number, "p": "x" * 60_000})
            await producer.drain()
        await producer.flush()
        consumer = session.consumer("wide", prefetch=1000)
        for number in range(320):
            message = await consumer.receive(timeout_ms=10_000)
            assert message is not None
            assert (message.properties["n"], message.delivery_count) == (number, 1)
            await message.acknowledge()


async def test_the_largest_message_can_still_be_delivered_when_it_is_dead(server: Server) -> None:
    body = b"x" * (MAX_FRAME_BYTES - 64 * KIB)
    async with homing.connect(server.url) as connection, connection.session(homing.AckMode.INDIVIDUAL) as session:
        await session.producer("largest").send(body)
        message = await session.consumer("largest").receive(timeout_ms=20_000)
        assert message is not None
        await message.nack(reason="too big for me", retryable=False)
        dead = await session.consumer("DLA").receive(timeout_ms=10_000) or await session.consumer("DLQ.largest").receive(timeout_ms=10_000)
        assert dead is not None
        assert dead.body == body
        await dead.acknowledge()


async def test_a_dead_letter_queue_whose_name_would_be_too_long_has_a_shorter_one(server: Server) -> None:
    name = "q" * 512

    def die() -> None:
        with Raw(server.url) as raw:
            holding(raw, name, 1)
            raw.send(Op.ACK, 1, 1, [1, 1], {"reason": "poison"}, 5)
            raw.until(Op.RESULT)
            raw.send(Op.CALL, 6, "queues", {})
            found = [queue for queue in raw.until(Op.RESULT)[2] if queue["name"].startswith("DLQ.q")]
            assert [(queue["messages"], len(queue["name"]) <= 255) for queue in found] == [(1, True)]

    async with good_client(server.url):
        await asyncio.to_thread(die)


async def test_a_flood_of_requests_is_answered_in_turns(server: Server) -> None:
    def attack() -> None:
        with Raw(server.url) as raw:
            for number in range(100):
                raw.send(Op.CALL, number + 1, CREATE, {"queue": f"flood{number}"})
            raw.raw(encode([Op.CALL, 7, "history", {"message_id": 1}]) * 100 + encode([Op.CALL, 8, "queues", {}]) * 200)
            answered = 0
            # More than may wait for a peer that reads nothing: what it asks for waits until it has read.
            while answered < 200:
                answered += raw.until(Op.RESULT)[1] == 8

    async with good_client(server.url):
        await asyncio.to_thread(attack)
