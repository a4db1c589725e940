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
#: What a message costs a producer's byte credit beyond its body; also what a reference is reckoned at in memory.
MESSAGE_OVERHEAD_BYTES: Final = 400

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


class FrameDecoder:
    """Cuts a byte stream into frames.

    ``feed(data)`` returns the frames that are whole, oldest first; raises ProtocolError for what cannot be one. Lengths are
    checked before anything is kept, so a hostile length costs no memory. ``limit`` may be raised after login.
    """

    __slots__ = ("_chunks", "_held", "_wanted", "limit")

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._chunks: list[bytes] = []
        self._held = 0
        self._wanted = 4
        self.limit = limit

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not whole yet."""
        return self._held

    def feed(self, data: bytes) -> list[Frame]:
        if self._chunks:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        frames, at = self._cut(data)
        rest = data[at:] if at else data
        self._held = len(rest)
        if rest:
            self._chunks.append(rest)
        return frames

    def _cut(self, data: bytes) -> tuple[list[Frame], int]:
        frames: list[Frame] = []
        at, end = 0, len(data)
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
            frames.append(_unpack(data[at + 4 : stop]))
            at = stop
        return frames, at


def _unpack(payload: bytes) -> Frame:
    try:
        frame = msgpack.unpackb(payload, ext_hook=_refuse_extension)
    except Exception as error:  # msgpack raises ValueError, TypeError, UnicodeDecodeError and its own kinds
        raise ProtocolError(
            "malformed-frame", f"the frame is not valid msgpack ({type(error).__name__}: {error})", "see docs/protocol.md"
        ) from error
    if type(frame) is not list or not frame or type(frame[0]) is not int:
        raise ProtocolError("malformed-frame", "a frame must be an array that begins with its op number", "see docs/protocol.md")
    return frame


def _refuse_extension(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code} is not part of the protocol")


def encode(frame: Frame | tuple[Any, ...]) -> bytes:
    """One frame as bytes, length first. Raises ValueError or TypeError for what msgpack cannot carry."""
    payload: bytes = msgpack.packb(frame)
    return len(payload).to_bytes(4, "big") + payload


def check_ranges(ranges: Any) -> list[int]:
    """A flat list of tags ``[first, last, …]``, > 0, ascending and apart; raises ProtocolError otherwise."""
    if type(ranges) is not list or len(ranges) % 2:
        raise ProtocolError("malformed-frame", "ranges must be a flat array of first, last pairs", "see docs/protocol.md, 2.4")
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
