"""Deliveries as frames: what is said of each message, or, of messages that differ only in their bodies, once for all of them."""

from __future__ import annotations

from typing import Final

from ...core.message import MessageReference
from .codec import Op, encode, encode_bodies

#: Deliveries are cut into frames of about this size, if the client takes frames of it.
FRAME_BYTES: Final = 1024 * 1024
#: Fewer messages that differ only in their bodies do not get a frame of their own.
_WORTH_A_FRAME: Final = 4
#: What the numbers of a delivery may take; and the properties that tell where a dead letter came from, all hops excepted.
_NUMBERS_BYTES: Final = 64
_OVERLAY_BYTES: Final = 4096


def frames(consumer: int, references: list[MessageReference], joins_bodies: bool, most: int) -> list[bytes]:
    """The frames that hand these over, in order.

    ``joins_bodies``: the client understands DELIVER_BODIES. ``most``: bytes for several messages in a frame; one alone may take more.
    """
    if not joins_bodies:
        return _each(consumer, references, most)
    found: list[bytes] = []
    apart: list[MessageReference] = []
    at = 0
    while at < len(references):
        first = references[at]
        message = first.message
        if message.properties is not None:
            apart.append(first)
            at += 1
            continue
        bodies = _alike(references, at, most)
        if len(bodies) < _WORTH_A_FRAME:
            stop = at + max(1, len(bodies))
            apart += references[at:stop]
            at = stop
            continue
        if apart:
            found += _each(consumer, apart, most)
            apart = []
        said = (message.message_id, _count(first), message.address, first.priority, message.sent_at_ms, message.durable)
        found.append(encode_bodies((int(Op.DELIVER_BODIES), consumer, first.tag, *said), bodies))
        at += len(bodies)
    if apart:
        found += _each(consumer, apart, most)
    return found


def _alike(references: list[MessageReference], start: int, most: int) -> list[bytes]:
    """The bodies of the messages from ``start`` on of which nothing is to be said that is not said of the first: without properties,
    expiration or hops, delivered as often, numbered without a gap.
    """
    first = references[start]
    count, counted = first.delivery_count, first.counted
    address, priority, sent_at_ms, durable = first.message.address, first.priority, first.message.sent_at_ms, first.message.durable
    number, tag, size = first.message.message_id - start, first.tag - start, 4 * len(address) + _NUMBERS_BYTES
    bodies: list[bytes] = []
    for at in range(start, len(references)):
        reference = references[at]
        message = reference.message
        if (
            message.message_id - at != number
            or reference.tag - at != tag
            or message.properties is not None
            or reference.hops
            or reference.expires_at_ms is not None
            or reference.delivery_count != count
            or reference.counted is not counted
            or message.sent_at_ms != sent_at_ms
            or reference.priority != priority
            or message.address != address
            or message.durable is not durable
        ):
            break
        size += message.size + _NUMBERS_BYTES
        if size > most:
            break
        bodies.append(message.body)
    return bodies


def _count(reference: MessageReference) -> int:
    """Of deliveries, this one included."""
    return reference.delivery_count + (not reference.counted)


def _each(consumer: int, references: list[MessageReference], most: int) -> list[bytes]:
    first, size = references[0].tag, 0
    found: list[bytes] = []
    batch: list[list[object]] = []
    for reference in references:
        delivery, takes = _delivery(reference)
        # A large message goes alone: with small ones in front of it the frame might be above what the client takes.
        if batch and (size + takes > most or reference.tag != first + len(batch)):
            found.append(encode([int(Op.DELIVER), consumer, first, batch]))
            first, size, batch = reference.tag, 0, []
        batch.append(delivery)
        size += takes
    found.append(encode([int(Op.DELIVER), consumer, first, batch]))
    return found


def _delivery(reference: MessageReference) -> tuple[list[object], int]:
    """A message as DELIVER carries it, trailing defaults left out, and about how many bytes it takes in the frame."""
    message = reference.message
    address, properties, hops = message.address, message.properties, reference.hops
    takes = message.size + 4 * len(address) + _NUMBERS_BYTES
    if properties is not None or hops:
        properties = reference.visible_properties()
        if hops and properties is not None:
            takes += len(str(properties["_HOMING_HOPS"])) + _OVERLAY_BYTES
    delivery = [
        message.message_id,
        _count(reference),
        address,
        message.body,
        properties,
        reference.priority,
        message.sent_at_ms,
        reference.expires_at_ms or 0,
    ]
    if not message.durable:
        delivery.append(False)
    return delivery, takes
