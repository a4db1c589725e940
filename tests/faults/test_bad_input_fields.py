"""Every field of every operation, made from the table of operations, with every value that does not belong there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from homing.broker.protocols.native.codec import Op
from tests.faults.hostile import Raw, check_words, ends_well, good_client
from tests.process import Server

#: docs/protocol.md, section 2: what a client may send, each field with its type and a value that is right.
OPERATIONS: Final[dict[Op, list[tuple[type, Any]]]] = {
    Op.CLOSE: [(int, 1)],
    Op.CALL: [(int, 1), (str, "queues"), (dict, {})],
    Op.PRODUCER: [(int, 1), (int, 9), (str, "fields.address")],
    Op.SEND: [(int, 1), (int, 1), (list, [[b"body"]]), (int, 0)],
    Op.END_PRODUCER: [(int, 1)],
    Op.SUBSCRIBE: [(int, 1), (int, 9), (str, "fields.address"), (dict, {})],
    Op.GIVEN: [(int, 1), (int, 1)],
    Op.ACK: [(int, 1), (int, 2), (list, [1, 1]), (dict, {}), (int, 1), (int, 0)],
    Op.PULL: [(int, 1), (int, 100)],
    Op.TOUCH: [(int, 1), (list, [1, 1])],
    Op.UNSUBSCRIBE: [(int, 1), (int, 1)],
    Op.COMMIT: [(int, 1), (int, 1), (str, "a-transaction"), (int, 0)],
    Op.ROLLBACK: [(int, 1), (int, 1)],
    Op.SESSION_ENDED: [(int, 1), (int, 1)],
}
#: Every call that takes a number, with arguments that are right.
CALLS: Final[dict[str, dict[str, Any]]] = {
    "peek": {"queue": "calls", "limit": 5, "after": [-4, 1]},
    "redrive": {"queue": "calls", "message_ids": [1]},
    "history": {"message_id": 1},
    "set-policy": {"name": "calls", "pattern": "^calls$", "definition": {"message-ttl": 60_000}, "priority": 1},
    "create-queue": {"queue": "calls.more", "max_length": 9, "message_ttl_ms": 60_000, "expires_ms": 60_000, "redelivery_delay_ms": 5},
}
WRONG: Final[list[Any]] = [None, True, 0.5, float("nan"), float("inf"), -float("inf"), "text", "", b"bytes", [], [[]], {}, {"a": 1}]
NUMBERS: Final[list[Any]] = [-1, -(2**31), -(2**63), 2**31 + 1, 2**53, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS: Final[list[Any]] = ["", "x" * 513, "a\nb", "a\x00b", "\u202e", "a::b::c", "::", "*", "a.#", "\ud7ff", "x" * 70_000, "'", "é" * 512]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("fields") / "broker", {"limits": {"window-messages": 4}})
    yield server.start()
    ends_well(server)


def variants(op: Op) -> Iterator[tuple[list[Any], bool]]:
    """Frames with one field wrong, and whether its type alone must end the connection."""
    fields = OPERATIONS[op]
    right = [value for _, value in fields]
    for place, (kind, _) in enumerate(fields):
        for value in WRONG:
            optional = kind is dict and value is None
            yield [*right[:place], value, *right[place + 1 :]], type(value) is not kind and not optional
        for value in {int: NUMBERS, str: TEXTS}.get(kind, []):
            yield [*right[:place], value, *right[place + 1 :]], False
    for count in range(len(fields)):
        yield right[:count], False
    yield [*right, 1], True


def ready(url: str) -> Raw:
    """A connection with producer 1 and consumer 1, which holds a message."""
    raw = Raw(url)
    raw.producer("fields.queue")
    raw.send(Op.SEND, 1, 1, [[b"held"]])
    raw.until(Op.CONFIRM)
    raw.send(Op.SUBSCRIBE, 5, 1, "fields.queue", {"prefetch": 1})
    raw.until(Op.RESULT)
    return raw


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.name)
async def test_wrong_fields_end_the_connection_or_refuse_the_operation(server: Server, op: Op) -> None:
    def attack() -> int:
        ended = 0
        raw = ready(server.url)
        for fields, must_end in variants(op):
            raw.send(op, *fields)
            # A connection that is still there answers this, unless it was asked to close.
            raw.send(Op.CALL, 77, "queues", {})
            code = outcome(raw)
            if must_end:
                assert code not in (None, "closed"), (op, fields)
            assert code != "internal-error", (op, fields)
            if code is not None:
                ended += 1
                raw.close()
                raw = ready(server.url)
        raw.close()
        return ended

    async with good_client(server.url, every_s=0.005):
        assert await asyncio.to_thread(attack) > 0


def with_each_number(value: Any) -> Iterator[Any]:
    """The value with each number in it, in turn, replaced by each that does not belong there."""
    if type(value) is int:
        yield from NUMBERS
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from ({**value, name: other} for other in with_each_number(each))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in with_each_number(each))


async def test_no_number_in_a_call_reaches_the_journal_unchecked(server: Server) -> None:
    """On a queue of which most is on disk, so that a look at it is a look at the journal."""

    def attack() -> None:
        with Raw(server.url) as raw:
            raw.producer("calls")
            raw.send(Op.SEND, 1, 1, [[b"message"]] * 50)
            raw.until(Op.CONFIRM)
            for verb, right in CALLS.items():
                for arguments in with_each_number(right):
                    raw.send(Op.CALL, 5, verb, arguments)
                    while (answer := raw.next()) is not None and answer[0] not in (Op.RESULT, Op.REFUSED):
                        assert answer[0] != Op.ERROR, answer
                    assert answer is not None, (verb, arguments)
                    if answer[0] == Op.REFUSED:
                        check_words(answer[2:])
                        assert answer[2] not in ("internal-error", "journal-unreadable"), (verb, arguments)

    async with good_client(server.url):
        await asyncio.to_thread(attack)


def outcome(raw: Raw) -> str | None:
    """None when the connection goes on, else why it ended."""
    while True:
        frame = raw.next()
        if frame is None or frame[0] == Op.CLOSED:  # after which the socket is ours to close
            return "closed"
        if frame[0] == Op.ERROR:
            check_words(frame[1:])
            return str(frame[1])
        if frame[0] == Op.REFUSED:
            check_words(frame[2:])
        if frame[0] == Op.RESULT and frame[1] == 77:
            return None


async def test_nothing_of_it_outlives_a_restart_wrongly(server: Server) -> None:
    """What the attacks left in the journal is read by the next start without a word."""
    before = server.log_path.stat().st_size
    server.stop()
    server.start()
    assert "Traceback" not in server.log_path.read_text()[before:]
    async with good_client(server.url) as account:
        pass
    assert account.sent > 0
