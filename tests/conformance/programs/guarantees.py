"""Confirms and transactions."""

from __future__ import annotations

from typing import Any

from pika.spec import Basic, Confirm, Queue, Tx

from tests.amqp_wire import Ch, reported
from tests.conformance.programs.stage import Stage, program


def settled(ch: Ch, wanted: int) -> list[Any]:
    """What the broker said of publishes 1 to ``wanted``: for each its number, or what it was told besides, in the order that counts."""
    said: list[Any] = []
    fates: dict[int, str] = {}
    while len(fates) < wanted:
        item = ch.item()
        if isinstance(item, Basic.Ack | Basic.Nack):
            first = min(set(range(1, item.delivery_tag + 1)) - set(fates)) if item.multiple else item.delivery_tag
            for number in range(first, item.delivery_tag + 1):
                fates.setdefault(number, item.NAME)
        else:
            said.append([reported(item), len(fates)])
            if item is None or ch.closed:
                break
    return [[fates[number] for number in sorted(fates)], said]


@program
def confirms(s: Stage) -> Any:
    queue, ch = s.queue("q", durable=True), s.channel()
    selected = [ch.ask(Confirm.Select()), ch.ask(Confirm.Select())]
    for number in range(20):
        ch.publish("", queue, str(number), delivery_mode=1 + number % 2)
    fates = settled(ch, 20)
    return [selected, fates, ch.more(), len(ch.bodies(queue))]


@program
def confirms_without_waiting_for_the_answer(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.publish("", queue, "not counted")
    ch.send(Confirm.Select(nowait=True))
    ch.publish("", queue, "counted")
    return [settled(ch, 1), ch.more(), ch.bodies(queue)]


@program
def confirms_of_what_goes_nowhere(s: Stage) -> Any:
    ch = s.channel()
    ch.ask(Confirm.Select())
    ch.publish("", s("nobody"), "dropped")
    first = settled(ch, 1)
    ch.publish("", s("nobody"), "returned", mandatory=True)
    returned = ch.answer()
    return [first, returned, reported(ch.item()), ch.more()]


@program
def confirms_of_what_is_refused(s: Stage) -> Any:
    queue, ch = s.queue("q", {"x-max-length": 2, "x-overflow": "reject-publish"}), s.channel()
    ch.ask(Confirm.Select())
    fates = []
    for number in range(4):
        ch.publish("", queue, str(number))
        item = ch.item()
        fates.append([item.NAME, item.delivery_tag])
    return [fates, ch.bodies(queue)]


@program
def confirms_end_with_an_error(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    ch.ask(Confirm.Select())
    ch.publish("", queue, "in")
    first = settled(ch, 1)
    ch.publish(s("missing"), "", "wrong")
    return [first, ch.answer(), ch.more()]


@program
def confirms_and_transactions_do_not_mix(s: Stage) -> Any:
    first, second = s.channel(), s.channel()
    return [
        [first.ask(Confirm.Select()), first.ask(Tx.Select())],
        [second.ask(Tx.Select()), second.ask(Tx.Select()), second.ask(Confirm.Select())],
        s.each(Tx.Commit(), Tx.Rollback()),
    ]


@program
def transactions_publish_at_commit(s: Stage) -> Any:
    queue, ch, other = s.queue("q"), s.channel(), s.channel()
    steps: list[Any] = [ch.ask(Tx.Select())]
    ch.publish("", queue, "one")
    ch.publish("", queue, "two")
    steps += [ch.more(), other.count(queue), ch.ask(Tx.Commit()), other.count(queue)]
    ch.publish("", queue, "three")
    steps += [ch.ask(Tx.Rollback()), ch.ask(Tx.Commit()), other.bodies(queue)]
    return steps


@program
def transactions_acknowledge_at_commit(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.channel()
    for number in range(4):
        ch.publish("", queue, str(number))
    ch.wait_count(queue, 4)
    ch.ask(Tx.Select())
    for _ in range(4):
        ch.get(queue, no_ack=False)
    ch.send(Basic.Ack(1))
    ch.send(Basic.Nack(2, requeue=True))
    steps: list[Any] = [s.channel().count(queue), ch.ask(Tx.Commit())]
    s.channel().wait_count(queue, 1)
    ch.send(Basic.Ack(3))
    steps.append(ch.ask(Tx.Rollback()))
    steps.append(ch.more())
    ch.send(Basic.Ack(3))
    ch.send(Basic.Reject(4, requeue=True))
    steps.append(ch.ask(Tx.Commit()))
    s.channel().wait_count(queue, 2)
    return [*steps, sorted(s.channel().bodies(queue))]


@program
def transactions_return_at_commit(s: Stage) -> Any:
    ch = s.channel()
    ch.ask(Tx.Select())
    ch.publish("", s("nobody"), "x", mandatory=True)
    before = ch.more()
    return [before, ch.ask(Tx.Commit()), ch.more()]


@program
def errors_in_a_transaction(s: Stage) -> Any:
    queue = s.queue("q")

    def wrong(*steps: Any) -> list[Any]:
        ch = s.channel()
        ch.ask(Tx.Select())
        ch.publish("", queue, "lost with the channel")
        for step in steps:
            step(ch)
        return [ch.answer(), s.channel().count(queue)]

    return [
        wrong(lambda ch: ch.publish(s("missing"), "", "x"), lambda ch: ch.send(Tx.Commit())),
        wrong(lambda ch: ch.send(Basic.Ack(7)), lambda ch: ch.send(Tx.Commit())),
    ]


@program
def a_transaction_that_is_never_committed(s: Stage) -> Any:
    queue, ch = s.queue("q"), s.wire().channel()
    ch.publish("", queue, "kept")
    ch.wait_count(queue, 1)
    ch.ask(Tx.Select())
    ch.get(queue, no_ack=False)
    ch.send(Basic.Ack(1))
    ch.publish("", queue, "lost")
    ch.ask(Queue.Declare(queue=queue, passive=True))
    ch.wire.close()
    other = s.channel()
    other.wait_count(queue, 1)
    return other.bodies(queue)
