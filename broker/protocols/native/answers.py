"""What the native protocol answers, as frames that people and a frame's limit can take."""

from __future__ import annotations

from typing import Final

from ...errors import Refused
from .codec import Op, encode
from .fields import shown

#: Of the length before a frame, which does not count.
_LENGTH_BYTES: Final = 4


def refusal_frame(request: int, refusal: Refused) -> bytes:
    return encode([int(Op.REFUSED), request, refusal.code, shown(refusal.message), shown(refusal.fix)])


def result_frame(request: int, verb: str, value: object, max_frame_bytes: int) -> bytes:
    """The answer to a call; a refusal where that would be more than a frame holds."""
    frame = encode([int(Op.RESULT), request, value])
    if len(frame) - _LENGTH_BYTES <= max_frame_bytes:
        return frame
    said = f"the answer to {verb[:64]} takes {len(frame)} bytes, and a frame holds {max_frame_bytes}"
    fix = "ask for pages or for less, where the verb can; else raise limits.max-frame-bytes"
    return refusal_frame(request, Refused("answer-too-large", said, fix))
