"""AMQP 0-9-1 frames: bytes in, events out. No I/O, no knowledge of what the broker makes of them.

A frame is type, channel, size, payload and the octet 0xCE. Frames are parsed in place; a message is put together here from its method,
header and body frames and leaves as one event. What breaks the protocol becomes the last event, an ``AmqpError``: everything before it
still counts.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, final

from .codec_cache import SHARED
from .codec_methods import DIALECTS, METHODS, NUMBER, PROTOCOL_HEADER, Dialect, read_arguments, write_arguments
from .codec_tables import TableError

#: The largest frame before ``connection.tune`` has settled another; the specification's least.
MIN_FRAME_BYTES: Final = 4096
FRAME_OVERHEAD: Final = 8
#: So much longer than agreed a frame may be, as with RabbitMQ: many clients cut bodies at the size of a frame and forget its overhead.
_FORGOTTEN: Final = FRAME_OVERHEAD
FRAME_END: Final = 0xCE

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8

PUBLISH: Final = NUMBER["basic.publish"]
ACK: Final = NUMBER["basic.ack"]
_CHANNEL_OPEN: Final = NUMBER["channel.open"]

FRAME_ERROR: Final = 501
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506

#: What one connection may have half sent, in messages of the largest size.
_MOST_GATHERED: Final = 4
_FRAME: Final = struct.Struct(">BHI")
_ACK_FRAME: Final = struct.Struct(">QB")
#: All of it: head, method, tag, bits, end of frame.
_WHOLE_ACK_FRAME: Final = struct.Struct(">BHI4sQBB")
#: Of a delivery: its tag, and whether it is redelivered.
_DELIVERY_BYTES: Final = 9
#: The longest properties of a delivery whose shape is remembered.
SHORT: Final = 512
_HEADER: Final = struct.Struct(">HHQ")
#: With the head of its frame.
_HEADER_FRAME: Final = struct.Struct(">BHIHHQ")
#: Of a content header, before its properties.
HEADER_BYTES: Final = _HEADER.size
_PUBLISH_BYTES: Final = PUBLISH.to_bytes(4, "big")
_NACK, _REJECT = NUMBER["basic.nack"], NUMBER["basic.reject"]
_NACK_BYTES: Final = _NACK.to_bytes(4, "big")
_REJECT_BYTES: Final = _REJECT.to_bytes(4, "big")
_ACK_BYTES: Final = ACK.to_bytes(4, "big")
#: Methods of a tag and a bit.
_SETTLING: Final = (_ACK_BYTES, _REJECT_BYTES)
#: A whole frame with an acknowledgement, or a refusal; and some of them: head with method, tag, bits, end of frame.
_ACK_BYTES_IN_ALL: Final = 21
#: What is the same in each of them, whatever its channel and tag: where, and which byte.
_SAME_IN_ACKS: Final = ((0, FRAME_METHOD), *enumerate(b"\x00\x00\x00\x0d" + _ACK_BYTES, 3), (20, FRAME_END))
_SOME: Final = 16
_SOME_ACKS: Final = struct.Struct(">" + _SOME * "11sQBB")
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


class AmqpError(Exception):
    """A protocol's exception: ``code`` and text as RabbitMQ answers them. ``method`` is what caused it, 0 where none did.

    Codes from 501 on, 320, 402 and 530 end the connection, others the channel; ``hard`` says so.
    """

    def __init__(self, code: int, text: str, method: int = 0, *, hard: bool | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.method = method
        self.hard = code in (320, 402) or code >= 501 if hard is None else hard


class MethodEvent(NamedTuple):
    """Any method but publish and acknowledge."""

    channel: int
    number: int
    values: list[Any]


class AckEvent(NamedTuple):
    """Acknowledgements of one channel that came one after the other, each of a single delivery; or one with ``multiple``."""

    channel: int
    tags: list[int]
    multiple: bool


class NackEvent(NamedTuple):
    """Single deliveries of one channel that were refused one after the other, all to come back or all not; by which method."""

    channel: int
    tags: list[int]
    requeue: bool
    number: int = _NACK


@final
class PublishEvent(NamedTuple):
    """A whole message. ``properties``: flags and property list as they came; ``body`` None: larger than allowed, ``size`` bytes."""

    channel: int
    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    properties: bytes
    body: bytes | None
    size: int


class PublishRun(NamedTuple):
    """Messages that were published one after the other and differ in nothing but their bodies, which are of one size."""

    channel: int
    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    properties: bytes
    bodies: list[bytes]
    size: int

    def after(self, number: int) -> PublishRun:
        """All but the first so many."""
        return self._replace(bodies=self.bodies[number:])

    def first(self, number: int) -> PublishRun:
        return self._replace(bodies=self.bodies[:number])

    def each(self) -> list[PublishEvent]:
        """One event for each message of the run."""
        return [PublishEvent(*self[:6], body, self.size) for body in self.bodies]


class HeartbeatEvent(NamedTuple):
    channel: int = 0


class ErrorEvent(NamedTuple):
    channel: int
    error: AmqpError


Event = MethodEvent | AckEvent | NackEvent | PublishEvent | PublishRun | HeartbeatEvent | ErrorEvent
_NUMBERS: Final = {PublishEvent: PUBLISH, PublishRun: PUBLISH, AckEvent: ACK}
_Target = tuple[str, str, bool, bool]
#: A named tuple of all its values: its own way takes each by name.
_make: Final = tuple.__new__


class _Content:
    """A message whose frames have not all come yet."""

    __slots__ = ("chunks", "left", "properties", "size", "target")

    def __init__(self, target: _Target) -> None:
        self.target = target
        self.properties: bytes | None = None
        self.size = 0
        self.left = 0
        #: None: too large, the body is let go.
        self.chunks: list[bytes] | None = []


class FrameReader:
    """Cuts a byte stream into events.

    ``channels`` is the session's set of open channels, to which one is added as soon as its open is read: content is only gathered for
    those, so nothing is kept before the login or for a channel nobody opened. ``frame_max`` is raised after tuning.
    """

    __slots__ = (
        "_content",
        "_failed",
        "_gathered",
        "_most_gathered",
        "_rest",
        "buffered",
        "channels",
        "dialect",
        "frame_max",
        "max_message_bytes",
    )

    def __init__(self, channels: set[int], max_message_bytes: int, most_gathered: int = 64 << 20) -> None:
        self.channels = channels
        self.dialect = DIALECTS[PROTOCOL_HEADER]
        self.frame_max = MIN_FRAME_BYTES
        self.max_message_bytes = max_message_bytes
        #: What one connection may have half sent.
        self._most_gathered = min(most_gathered, _MOST_GATHERED * max_message_bytes)
        self._rest = b""
        self._content: dict[int, _Content] = {}
        #: Bytes of bodies that are not whole yet, all channels together.
        self._gathered = 0
        #: Bytes held of frames and messages that are not whole yet.
        self.buffered = 0
        self._failed = False

    @property
    def wanted(self) -> int:
        """Bytes that these will take, as far as they have said."""
        return sum([content.size for content in self._content.values() if content.chunks is not None]) + len(self._rest)

    def acknowledges_only(self, data: bytes) -> bool:
        """Whether what comes next is acknowledgements, all of them whole, and nothing else."""
        number, cut = divmod(len(data), _ACK_BYTES_IN_ALL)
        if cut or self.buffered:
            return False
        return all(data[at::_ACK_BYTES_IN_ALL] == number * bytes((byte,)) for at, byte in _SAME_IN_ACKS)

    def feed(self, data: bytes) -> list[Event]:
        """The events that are whole, oldest first. After an ErrorEvent nothing more is read."""
        events: list[Event] = []
        if self._failed:
            return events
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            while end - at >= 7:
                kind, channel, size = _FRAME.unpack_from(data, at)
                start = at + 7
                stop = start + size
                if size > self.frame_max - FRAME_OVERHEAD + _FORGOTTEN:
                    raise AmqpError(FRAME_ERROR, f"FRAME_ERROR - a frame of {size + FRAME_OVERHEAD} bytes, negotiated are {self.frame_max}")
                if stop >= end:
                    break
                if data[stop] != FRAME_END:
                    raise AmqpError(FRAME_ERROR, "FRAME_ERROR - a frame does not end with 0xCE")
                if kind == FRAME_METHOD and channel in self.channels and channel not in self._content:
                    number = data[start : start + 4]
                    if number == _PUBLISH_BYTES:
                        at = self._publish(channel, data, start, stop, end, events)
                        continue
                    if size == 13 and (number in _SETTLING or (number == _NACK_BYTES and not data[start + 12] & 1)):
                        at = self._settled(channel, data, start, end, events)
                        continue
                event = self._event(kind, channel, data, start, stop)
                if event is not None:
                    events.append(event)
                at = stop + 1
        except AmqpError as error:
            self._failed = True
            self._rest, self.buffered = b"", self._gathered
            # Without the frames of tracebacks: those hold this one, and with it all that came.
            error.__context__ = None
            events.append(ErrorEvent(0, error.with_traceback(None)))
            return events
        self._rest = data[at:] if at else data
        self.buffered = self._gathered + len(self._rest)
        return events

    def _publish(self, channel: int, data: bytes, start: int, stop: int, end: int, events: list[Event]) -> int:
        """A publish whose header and only body frame lie behind it is read as one, with those that follow and differ only in their bodies'
        bytes; any other a frame at a time. Returns where they end.
        """
        target = _target(data[start + 4 : stop])
        header = stop + 1
        if end - header >= 22:
            kind, number, size, class_number, _, body_size = _HEADER_FRAME.unpack_from(data, header)
            body: int = header + size + 8
            wanted: int = body + body_size + FRAME_OVERHEAD
            if (
                kind == FRAME_HEADER
                and number == channel
                and class_number == 60
                and 14 <= size <= 4096
                and 0 < body_size <= self.frame_max - FRAME_OVERHEAD + _FORGOTTEN
                and body_size <= self.max_message_bytes
                and wanted <= end
                and _FRAME.unpack_from(data, body) == (FRAME_BODY, channel, body_size)
                and data[body - 1] == data[wanted - 1] == FRAME_END
            ):
                at, step = start - 7, wanted - start + 7
                same = data[at : body + 7]
                before, properties = len(same), data[header + 19 : body - 1]
                bodies: list[bytes] = []
                while True:
                    bodies.append(data[at + before : at + step - 1])
                    at += step
                    if at + step > end or data[at + step - 1] != FRAME_END or not data.startswith(same, at):
                        break
                if len(bodies) == 1:
                    events.append(_make(PublishEvent, (channel, *target, properties, bodies[0], body_size)))
                else:
                    events.append(PublishRun(channel, *target, properties, bodies, body_size))
                return at
        self._content[channel] = _Content(target)
        return stop + 1

    @staticmethod
    def _settled(channel: int, data: bytes, start: int, end: int, events: list[Event]) -> int:
        """Acknowledgements, or refusals, that follow one another and say the same, as one event. Returns where they end."""
        head, bits = data[start - 7 : start + 4], data[start + 12]
        number = head[7:]
        multiple = number == _ACK_BYTES and bits & 1 == 1
        tags: list[int] = []
        at = start - 7
        # Many alike are the rule where they come fast, and then looked at some at a time.
        while not multiple and at + _SOME_ACKS.size <= end:
            some = _SOME_ACKS.unpack_from(data, at)
            if some[0::4].count(head) != _SOME or some[2::4].count(bits) != _SOME or some[3::4].count(FRAME_END) != _SOME:
                break
            tags += some[1::4]
            at += _SOME_ACKS.size
        while at + _ACK_BYTES_IN_ALL <= end and data.startswith(head, at):
            tag, same = _ACK_FRAME.unpack_from(data, at + 11)
            if same != bits or data[at + 20] != FRAME_END:
                break
            tags.append(tag)
            at += _ACK_BYTES_IN_ALL
            if multiple:
                break
        if number == _ACK_BYTES:
            events.append(AckEvent(channel, tags, multiple))
        elif number == _NACK_BYTES:
            events.append(NackEvent(channel, tags, bits & 2 == 2))
        else:
            events.append(NackEvent(channel, tags, bits & 1 == 1, _REJECT))
        return at

    def forget(self, channel: int) -> None:
        """The channel is closed: what was half there of a message is let go."""
        content = self._content.pop(channel, None)
        if content is not None and content.chunks:
            size = sum(map(len, content.chunks))
            self._gathered -= size
            self.buffered -= size

    def _event(self, kind: int, channel: int, data: bytes, start: int, stop: int) -> Event | None:
        if kind == FRAME_METHOD:
            if channel in self._content:
                raise AmqpError(UNEXPECTED_FRAME, f"UNEXPECTED_FRAME - a method frame within the content of channel {channel}", PUBLISH)
            return self._method(channel, data, start, stop)
        if kind == FRAME_HEADER:
            return self._header(channel, data, start, stop)
        if kind == FRAME_BODY:
            return self._body(channel, data, start, stop)
        if kind == FRAME_HEARTBEAT:
            if channel or start != stop:
                raise AmqpError(FRAME_ERROR, "FRAME_ERROR - a heartbeat is an empty frame on channel 0")
            return HeartbeatEvent()
        raise AmqpError(FRAME_ERROR, f"FRAME_ERROR - there is no frame type {kind}")

    def _method(self, channel: int, data: bytes, start: int, stop: int) -> Event | None:
        if stop - start < 4:
            raise AmqpError(FRAME_ERROR, "FRAME_ERROR - a method frame is cut off")
        number = int.from_bytes(data[start : start + 4], "big")
        if number == PUBLISH:
            if channel in self.channels:
                self._content[channel] = _Content(_target(data[start + 4 : stop]))
                return None
        elif number == ACK and stop - start == 13:
            tag, multiple = _ACK_FRAME.unpack_from(data, start + 4)
            return AckEvent(channel, [tag], multiple & 1 == 1)
        elif number == _CHANNEL_OPEN:
            # What follows may lie in the same bytes. The session ends a connection that may not open it.
            self.channels.add(channel)
        method = self.dialect.methods.get(number)
        if method is None:
            raise AmqpError(COMMAND_INVALID, f"COMMAND_INVALID - there is no method {number >> 16}.{number & 0xFFFF}", number)
        try:
            return MethodEvent(channel, NUMBER[method.name], read_arguments(method, data, start + 4, stop))
        except TableError as error:
            raise AmqpError(FRAME_ERROR, f"FRAME_ERROR - {error}", number) from None

    def _header(self, channel: int, data: bytes, start: int, stop: int) -> Event | None:
        content = self._content.get(channel)
        if content is None:
            self._stray(channel, "header")
            return None
        if content.properties is not None:
            raise AmqpError(UNEXPECTED_FRAME, "UNEXPECTED_FRAME - a second content header", PUBLISH)
        if stop - start < 14:
            raise AmqpError(FRAME_ERROR, "FRAME_ERROR - a content header is cut off")
        class_number, _, size = _HEADER.unpack_from(data, start)
        if class_number != PUBLISH >> 16:
            raise AmqpError(UNEXPECTED_FRAME, f"UNEXPECTED_FRAME - content of class {class_number} after basic.publish", PUBLISH)
        content.properties = data[start + 12 : stop]
        content.size = content.left = size
        if size > self.max_message_bytes:
            content.chunks = None
        return self._whole(channel, content, b"") if not size else None

    def _body(self, channel: int, data: bytes, start: int, stop: int) -> Event | None:
        content = self._content.get(channel)
        if content is None:
            self._stray(channel, "body")
            return None
        if content.properties is None or stop - start > content.left:
            raise AmqpError(UNEXPECTED_FRAME, "UNEXPECTED_FRAME - a body frame before the header, or beyond the size it named", PUBLISH)
        content.left -= stop - start
        if content.chunks is None:
            return self._whole(channel, content, None) if not content.left else None
        if not content.left and not content.chunks:
            return self._whole(channel, content, data[start:stop])
        content.chunks.append(data[start:stop])
        self._gathered += stop - start
        if self._gathered > self._most_gathered:
            raise AmqpError(RESOURCE_ERROR, "RESOURCE_ERROR - too many large messages at the same time on one connection", PUBLISH)
        if content.left:
            return None
        self._gathered -= content.size
        return self._whole(channel, content, b"".join(content.chunks))

    def _whole(self, channel: int, content: _Content, body: bytes | None) -> PublishEvent:
        del self._content[channel]
        return PublishEvent(channel, *content.target, content.properties or b"\x00\x00", body, content.size)

    def _stray(self, channel: int, what: str) -> None:
        """Content without a publish: let go on a channel that is closing or was never opened (the session answers its methods)."""
        if channel in self.channels:
            raise AmqpError(UNEXPECTED_FRAME, f"UNEXPECTED_FRAME - a {what} frame without basic.publish")
        if not channel:
            raise AmqpError(UNEXPECTED_FRAME, f"UNEXPECTED_FRAME - a {what} frame on channel 0")


@SHARED.remembers
def _target(arguments: bytes) -> _Target:
    """(exchange, routing key, mandatory, immediate) of a publish."""
    try:
        _, exchange, key, mandatory, immediate = read_arguments(METHODS[PUBLISH], arguments, 0, len(arguments))
    except TableError as error:
        raise AmqpError(FRAME_ERROR, f"FRAME_ERROR - {error}", PUBLISH) from None
    return exchange, key, mandatory, immediate


def method_of(event: Event) -> int:
    """What the client sent, as a close names it."""
    return event.number if isinstance(event, MethodEvent | NackEvent) else _NUMBERS.get(type(event), 0)


def method_frame(channel: int, name: str, *values: object, dialect: Dialect = DIALECTS[PROTOCOL_HEADER]) -> bytes:
    """One method frame, as bytes."""
    payload = write_arguments(dialect.by_name[name], values)
    return _FRAME.pack(FRAME_METHOD, channel, len(payload)) + payload + b"\xce"


def ack_frame(channel: int, tag: int, multiple: bool) -> bytes:
    """basic.ack, which answers every publish."""
    return _WHOLE_ACK_FRAME.pack(FRAME_METHOD, channel, 13, _ACK_BYTES, tag, multiple, FRAME_END)


def content_frames(channel: int, method_payload: bytes, properties: bytes, body: bytes, frame_max: int) -> list[bytes]:
    """Method, header and body frames of one message, as pieces to be joined. ``frame_max`` 0: no limit."""
    size = len(body)
    parts = [
        _FRAME.pack(FRAME_METHOD, channel, len(method_payload)),
        method_payload,
        b"\xce",
        _FRAME.pack(FRAME_HEADER, channel, 12 + len(properties)),
        _HEADER.pack(60, 0, size),
        properties,
        b"\xce",
    ]
    room = frame_max - FRAME_OVERHEAD if frame_max else size
    if 0 < size <= room:
        parts += (_FRAME.pack(FRAME_BODY, channel, size), body, b"\xce")
    else:
        for start in range(0, size, room or 1):
            piece = body[start : start + room]
            parts += (_FRAME.pack(FRAME_BODY, channel, len(piece)), piece, b"\xce")
    return parts


def new_shape(channel: int, prefix: bytes, target: bytes, properties: bytes) -> tuple[bytes, bytes, bytes]:
    """What deliveries with these have in common: before the tag, between tag and size, after the size."""
    return (
        _FRAME.pack(FRAME_METHOD, channel, len(prefix) + _DELIVERY_BYTES + len(target)) + prefix,
        target + b"\xce" + _FRAME.pack(FRAME_HEADER, channel, 12 + len(properties)) + b"\x00\x3c\x00\x00",
        properties + b"\xce",
    )


known_shape = SHARED.remembers(new_shape)
