"""Frames of the native protocol: bytes in, lists of frames out. No I/O, no knowledge of who is speaking.

Both sides use this file; it imports nothing of the broker. A frame is a 4-byte big-endian length and one msgpack array
``[op, field, …]``. ``docs/protocol.md`` says what the fields are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgpack

PROTOCOL_VERSION: Final = 1
MAGIC: Final = "homing"
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_FRAME_BYTES_BEFORE_LOGIN: Final = 8 * 1024
#: Arrays, maps, texts, numbers … in one frame, all levels together. An empty array is one byte on the wire and 64 in memory.
MAX_VALUES: Final = 500_000
#: Pairs in one acknowledgement; above what the widest window can hold.
MAX_RANGES: Final = 100_000
#: Frames up to this size cannot hold enough values to do harm, so their values are not counted.
_UNCOUNTED_BYTES: Final = 1024 * 1024
#: Pieces of a frame smaller than this are gathered in one buffer.
_SMALL_PIECE_BYTES: Final = 4096
#: What a message costs a producer's byte credit beyond its body; also what a reference is reckoned at in memory.
MESSAGE_OVERHEAD_BYTES: Final = 400
#: What each property costs it beyond its name and value.
PROPERTY_OVERHEAD_BYTES: Final = 120

Frame = list[Any]


class Op(IntEnum):
    """Operation numbers; the table in docs/protocol.md section 2."""

    HELLO = 1
    WELCOME = 2
    HEARTBEAT = 3
    CLOSE = 4
    CLOSED = 5
    ERROR = 6
    REFUSED = 7
    CALL = 8
    RESULT = 9
    PRODUCER = 10
    CREDIT = 11
    SEND = 12
    CONFIRM = 13
    END_PRODUCER = 14
    SUBSCRIBE = 20
    DELIVER = 21
    GIVEN = 22
    ACK = 23
    NOT_HELD = 24
    PULL = 25
    PULL_EMPTY = 26
    TOUCH = 27
    UNSUBSCRIBE = 28
    CANCELLED = 29
    COMMIT = 30
    ROLLBACK = 31
    SESSION_ENDED = 32
    DELIVER_BODIES = 33
    SEND_BODIES = 34


class AckType(IntEnum):
    """ActiveMQ Classic's seven acknowledgement types."""

    DELIVERED = 0
    POISON = 1
    STANDARD = 2
    REDELIVERED = 3
    INDIVIDUAL = 4
    UNMATCHED = 5
    EXPIRED = 6


class ProtocolError(Exception):
    """The peer sent bytes that are not a frame of this protocol; the connection must end.

    ``code`` is stable, ``fix`` says what to do.
    """

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix


def properties_cost(properties: dict[str, object]) -> int:
    """What properties cost a producer's byte credit: names and values, 9 for other values, and 120 for each."""
    cost = PROPERTY_OVERHEAD_BYTES * len(properties)
    for name, value in properties.items():
        cost += len(name.encode()) + (len(value.encode()) if type(value) is str else len(value) if type(value) is bytes else 9)
    return cost


class FrameDecoder:
    """Cuts a byte stream into frames.

    ``feed(data)`` returns the frames that are whole, oldest first; raises ProtocolError for what cannot be one. Lengths are
    checked before anything is kept, so a hostile length costs no memory. ``limit`` may be raised after login.
    """

    __slots__ = ("_buffered", "_chunks", "_wanted", "limit")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._chunks: list[bytes | bytearray] = []
        self._buffered = 0
        self._wanted = 4
        self.limit = limit

    @property
    def buffered(self) -> int:
        """Bytes here of a frame that is not whole yet."""
        return self._buffered

    @property
    def wanted(self) -> int:
        """Bytes that it will take."""
        return self._wanted

    def feed(self, data: bytes) -> list[Frame]:
        if self._chunks:
            self._keep(data)
            self._buffered += len(data)
            if self._buffered < self._wanted:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        frames, at = self._cut(data)
        rest = data[at:] if at else data
        self._buffered = len(rest)
        if rest:
            self._chunks.append(rest)
        return frames

    def _keep(self, data: bytes) -> None:
        """One more piece of a frame. Small ones share a buffer: an object each would cost many times their size."""
        if len(data) >= _SMALL_PIECE_BYTES:
            self._chunks.append(data)
            return
        last = self._chunks[-1]
        if type(last) is not bytearray:
            last = bytearray()
            self._chunks.append(last)
        last += data

    def _cut(self, data: bytes) -> tuple[list[Frame], int]:
        frames: list[Frame] = []
        at, end, view = 0, len(data), memoryview(data)
        self._wanted = 4
        while end - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big")
            if length > self.limit:
                raise ProtocolError(
                    "frame-too-large",
                    f"a frame of {length} bytes is over the limit of {self.limit}",
                    "send smaller batches, or raise limits.max-frame-bytes in broker.yaml",
                )
            stop = at + 4 + length
            if stop > end:
                self._wanted = 4 + length
                break
            frames.append(_unpack(view[at + 4 : stop]))
            at = stop
        return frames, at


def _unpack(payload: bytes | memoryview) -> Frame:
    if len(payload) > _UNCOUNTED_BYTES and holds_more_values(payload, MAX_VALUES):
        raise ProtocolError("too-many-values", f"the frame holds more than {MAX_VALUES} values", "send smaller batches")
    try:
        frame = msgpack.unpackb(payload, ext_hook=_refuse_extension)
    except Exception as error:  # msgpack raises ValueError, TypeError, UnicodeDecodeError and its own kinds
        raise ProtocolError(
            "malformed-frame", f"the frame is not valid msgpack ({type(error).__name__}: {error})", "see docs/protocol.md"
        ) from error
    if type(frame) is not list or not frame or type(frame[0]) is not int:
        raise ProtocolError("malformed-frame", "a frame must be an array that begins with its op number", "see docs/protocol.md")
    return frame


_NUMBER_BYTES: Final = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def _fixed(first: int) -> tuple[int, int] | None:
    if first < 0x80 or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return 0, 0
    if first < 0xA0:
        return 0, (first & 15) * (2 if first < 0x90 else 1)
    if first < 0xC0:
        return first & 31, 0
    return (_NUMBER_BYTES[first], 0) if first in _NUMBER_BYTES else None


#: First byte of a msgpack value -> (bytes that follow it and are no values, values that follow); None where a length follows.
_FIXED: Final = tuple(_fixed(first) for first in range(256))
#: First byte -> (width of the length, factor for bytes, factor for values): binary, text, array, map.
_SIZED: Final[dict[int, tuple[int, int, int]]] = {
    0xC4: (1, 1, 0),
    0xC5: (2, 1, 0),
    0xC6: (4, 1, 0),
    0xD9: (1, 1, 0),
    0xDA: (2, 1, 0),
    0xDB: (4, 1, 0),
    0xDC: (2, 0, 1),
    0xDD: (4, 0, 1),
    0xDE: (2, 0, 2),
    0xDF: (4, 0, 2),
}


def holds_more_values(payload: bytes | memoryview, limit: int) -> bool:
    """Whether the first msgpack value in ``payload`` is made of more than ``limit``. Bodies are jumped over, nothing is built.

    What is no valid msgpack may give either answer; unpacking tells.
    """
    at, end, wanted, seen = 0, len(payload), 1, 0
    while wanted > 0 and at < end:
        first = payload[at]
        at += 1
        wanted -= 1
        seen += 1
        fixed = _FIXED[first]
        if fixed is not None:
            at += fixed[0]
            wanted += fixed[1]
        elif first in _SIZED:
            width, size, values = _SIZED[first]
            count = int.from_bytes(payload[at : at + width], "big")
            at += width + count * size
            wanted += count * values
        else:
            return False
        if seen + wanted > limit:
            return True
    return False


def _refuse_extension(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code} is not part of the protocol")


def encode(frame: Frame | tuple[object, ...]) -> bytes:
    """One frame as bytes, length first. Raises ValueError, TypeError or OverflowError for what msgpack cannot carry."""
    payload: bytes = msgpack.packb(frame)
    return len(payload).to_bytes(4, "big") + payload


def encode_bodies(head: tuple[object, ...], bodies: list[bytes]) -> bytes:
    """The frame ``(*head, bodies)``, of at most 15 fields: each body is copied once, instead of three times."""
    fields: bytes = msgpack.packb(head)
    size, prefix, total = -1, b"", len(fields) + 5
    pieces = [b"", bytes((fields[0] + 1,)), fields[1:], b"\xdd" + len(bodies).to_bytes(4, "big")]
    for body in bodies:
        if len(body) != size:
            size = len(body)
            prefix = b"\xc6" + size.to_bytes(4, "big")
        pieces.append(prefix)
        pieces.append(body)
        total += 5 + size
    pieces[0] = total.to_bytes(4, "big")
    return b"".join(pieces)


def check_ranges(ranges: object) -> list[int]:
    """A flat list of tags ``[first, last, …]``, > 0, ascending and apart; raises ProtocolError otherwise."""
    if type(ranges) is not list or len(ranges) % 2:
        raise ProtocolError("malformed-frame", "ranges must be a flat array of first, last pairs", "see docs/protocol.md, 2.4")
    if len(ranges) > 2 * MAX_RANGES:
        raise ProtocolError("too-many-ranges", f"{len(ranges) // 2} ranges came in one frame, the limit is {MAX_RANGES}", "send several")
    previous = 0
    for at in range(0, len(ranges), 2):
        first, last = ranges[at], ranges[at + 1]
        if type(first) is not int or type(last) is not int or not previous < first <= last < 1 << 63:
            raise ProtocolError("malformed-frame", "ranges must be pairs of tags, ascending and apart", "see docs/protocol.md, 2.4")
        previous = last
    return ranges


def ranges_of(tags: list[int]) -> list[int]:
    """Ascending tags as a flat list of ranges: ``[1, 2, 3, 7]`` becomes ``[1, 3, 7, 7]``."""
    ranges: list[int] = []
    for tag in tags:
        if ranges and ranges[-1] == tag - 1:
            ranges[-1] = tag
        else:
            ranges += (tag, tag)
    return ranges
