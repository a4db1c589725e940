"""What comes back takes its place before anything overtakes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pika.spec import Basic, Channel, Confirm, Connection, Tx

from tests.amqp_wire import Ch, Gone, reported
from tests.conformance.programs.guarantees import settled
from tests.conformance.programs.stage import Stage, program

SINGLE = {"x-single-active-consumer": True}


def filled(s: Stage, name: str, bodies: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
    """A durable queue that holds these letters, on disk."""
    queue, ch = s.queue(name, arguments, durable=True), s.channel()
    ch.ask(Confirm.Select())
    for body in bodies:
        ch.publish("", queue, body, delivery_mode=2, **more)
    assert settled(ch, len(bodies)) == [["Basic.Ack"] * len(bodies), []]
    return queue


def consuming(ch: Ch, queue: str, prefetch: int, tag: str = "c", for_channel: bool = False) -> Ch:
    ch.ask(Basic.Qos(0, prefetch, for_channel))
    ch.send(Basic.Consume(queue=queue, consumer_tag=tag))
    assert ch.answer() == f"Basic.ConsumeOk consumer_tag={tag}"
    return ch


def letter(message: Any) -> str:
    """With a dash where it came before."""
    return str(message[2].decode()) + ("'" if message[0].redelivered else "")


def letters(ch: Ch, wanted: int) -> str:
    return " ".join(map(letter, ch.take(wanted)))


def one_by_one(ch: Ch, wanted: int, refuse: Callable[[int], Any]) -> str:
    """What comes when each is refused as soon as it is here."""
    seen: list[str] = []
    for _ in range(wanted):
        (message,) = ch.take(1) or [None]
        if message is None:
            break
        seen.append(letter(message))
        ch.send(refuse(message[0].delivery_tag))
        if isinstance(refuse(0), Basic.Recover):
            assert ch.answer() == "Basic.RecoverOk"
    return " ".join(seen)


WAYS: dict[str, Callable[[int], Any]] = {
    "nack": lambda tag: Basic.Nack(tag, requeue=True),
    "nack, multiple": lambda tag: Basic.Nack(tag, multiple=True, requeue=True),
    "reject": lambda tag: Basic.Reject(tag, requeue=True),
    "recover": lambda tag: Basic.Recover(requeue=True),
}


@program
def one_at_a_time_comes_back_before_the_next(s: Stage) -> Any:
    return {way: one_by_one(consuming(s.channel(), filled(s, way, "ABC"), 1), 4, refuse) for way, refuse in WAYS.items()}


@program
def two_at_a_time_come_back_before_the_next(s: Stage) -> Any:
    return one_by_one(consuming(s.channel(), filled(s, "q", "ABCDE"), 2), 6, WAYS["nack"])


@program
def several_come_back_before_the_next(s: Stage) -> Any:
    outcomes = {}
    for way in ("nack, multiple", "recover"):
        ch = consuming(s.channel(), filled(s, way, "ABCDEFGH"), 3)
        first = letters(ch, 3)
        ch.send(WAYS[way](3))
        if way == "recover":
            assert ch.answer() == "Basic.RecoverOk"
        outcomes[way] = [first, letters(ch, 3), ch.more()]
    return outcomes


@program
def what_is_sent_behind_a_return_comes_behind_it(s: Stage) -> Any:
    queue = filled(s, "q", "A")
    ch = consuming(s.channel(), queue, 10)
    first = letters(ch, 1)
    ch.send(Basic.Nack(1, requeue=True))
    ch.publish("", queue, "B", delivery_mode=2)
    return [first, letters(ch, 2)]


@program
def a_committed_return_comes_before_the_next(s: Stage) -> Any:
    ch = s.channel()
    assert ch.ask(Tx.Select()) == "Tx.SelectOk"
    consuming(ch, filled(s, "q", "ABCDE"), 2)
    first = letters(ch, 2)
    ch.send(Basic.Nack(1, requeue=True))
    ch.send(Tx.Commit())
    items = [ch.item(), ch.item()]
    assert [reported(item) for item in items if not isinstance(item, tuple)] == ["Tx.CommitOk"]
    return [first, [letter(item) for item in items if isinstance(item, tuple)], ch.more()]


@program
def a_return_with_priorities(s: Stage) -> Any:
    queue = filled(s, "q", "ABCD", {"x-max-priority": 5}, priority=3)
    return one_by_one(consuming(s.channel(), queue, 1), 4, WAYS["nack"])


@program
def a_return_within_a_channels_window(s: Stage) -> Any:
    ch = s.channel()
    consuming(ch, filled(s, "q", "ABC"), 1, for_channel=True)
    return one_by_one(ch, 4, WAYS["nack"])


def _goes(s: Stage, how: str) -> Any:
    queue = filled(s, how, "ABCDEF", SINGLE)
    wire = s.wire()
    holder = consuming(wire.channel(), queue, 3)
    first = letters(holder, 3)
    following = consuming(s.channel(), queue, 10, "next")
    quiet = following.more(0.1)
    if how == "cut":
        wire.cut()
    elif how == "connection.close":
        wire.close()
    elif how == "channel.close":
        assert holder.ask(Channel.Close(200, "", 0, 0)) == "Channel.CloseOk"
    elif how == "an error of the channel":
        holder.send(Basic.Ack(99))
        assert holder.answer().startswith("Channel.Close 406")
    elif how == "an error of the connection":
        wire.send(9, Basic.Ack(1))
        try:
            assert isinstance(wire.next(0), Connection.Close)
        except Gone:
            raise AssertionError("hung up without a word") from None
    return [first, quiet, letters(following, 6)]


@program
def the_next_single_active_consumer_gets_what_the_last_one_held_first(s: Stage) -> Any:
    ways = ("cut", "connection.close", "channel.close", "an error of the channel", "an error of the connection")
    return {how: _goes(s, how) for how in ways}
