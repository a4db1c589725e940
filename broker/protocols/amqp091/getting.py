"""``basic.get``: one message for whoever asks, behind the consumers that wait, and no answer before what it tells of is so."""

from __future__ import annotations

import struct
from typing import Final

from ...core.amqp.declared import counts_deliveries
from ...core.message import MessageReference
from ...core.queue import Queue
from .channel import Channel
from .codec import content_frames, method_frame
from .codec_methods import NUMBER
from .message_mapping import wire_of

_GET_OK: Final = NUMBER["basic.get-ok"].to_bytes(4, "big")
_DELIVERY: Final = struct.Struct(">QB")


def get(channel: Channel, queue: Queue, no_ack: bool) -> None:
    """Answers with the next message, or that there is none. Raises Refused while memory is short."""
    session = channel.session
    session.broker.gets.check(session.connection, queue)
    _get(channel, queue, no_ack)


def _get(channel: Channel, queue: Queue, no_ack: bool) -> None:
    session, broker = channel.session, channel.session.broker
    broker.dispatcher.serve(queue)
    reference = broker.gets.get(session.connection, channel.holder_of_gets(queue), queue)
    if reference is not None:
        answer = _handed_out(channel, queue, reference, no_ack)
        _answer(channel, answer, at_once=broker.gets.may_answer(queue, reference))
    elif broker.gets.when_read(session.connection, queue, lambda: _get_again(channel, queue, no_ack)):
        session.defer()
    else:
        _answer(channel, method_frame(channel.number, "basic.get-empty", ""), at_once=broker.gets.may_answer(queue))


def _get_again(channel: Channel, queue: Queue, no_ack: bool) -> None:
    """A page of the queue has come from disk."""
    try:
        if not channel.closed:
            _get(channel, queue, no_ack)
        channel.session.go_on()
    except Exception as error:
        channel.session.broken(error)


def _handed_out(channel: Channel, queue: Queue, reference: MessageReference, no_ack: bool) -> bytes:
    """The answer with a message, whose delivery is recorded."""
    consumer, redelivered = reference.consumer, reference.delivery_count > reference.counted
    assert consumer is not None, "a message that was handed out has a consumer"
    tag = channel.deliver_one(consumer, reference, no_ack)
    target, properties = wire_of(reference, counts_deliveries(queue), channel.session.view)
    payload = b"".join((_GET_OK, _DELIVERY.pack(tag, redelivered), target, queue.ready.to_bytes(4, "big")))
    answer = b"".join(content_frames(channel.number, payload, properties, reference.message.body, channel.session.frame_max))
    if no_ack:
        channel.session.broker.settlement.acknowledge(consumer, [reference])
        channel.settled(consumer)
    return answer


def _answer(channel: Channel, answer: bytes, at_once: bool) -> None:
    """``at_once`` False: not before the message's number is reserved and its delivery's count is on disk, and what was found expired is
    where dead letters go."""
    session = channel.session
    if at_once:
        channel.answers.now(lambda: session.write(answer))
        return
    session.defer()
    channel.answers.when_safe(lambda: session.write(answer))
    channel.answers.now(session.go_on)
