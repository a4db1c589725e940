"""STOMP 1.0, 1.1 and 1.2 on the wire: bytes to frames and back. Sans-IO.

A frame is cut without a look at its headers but for ``content-length``: how they are escaped depends on the version, which is known only
once the frame before was acted on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

#: The latest first.
VERSIONS: Final = ("1.2", "1.1", "1.0")
#: For frames that open a connection, in which nothing is escaped.
UNKNOWN: Final = ""
HEARTBEAT: Final = b"\n"
MAX_HEADERS: Final = 1000
_ENDS: Final = re.compile(rb"[\r\n]*")
_BLANK: Final = re.compile(rb"\n\r?\n")
_LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?(?:\n|$)")
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)
_COMMON: Final = {"\\": "\\", "n": "\n", "c": ":"}
#: What is another in each of many frames, as far as nothing of it is escaped in any version.
_PLAIN: Final = re.compile(rb"[!-9;-\[\]-~]{1,1024}")
SEND, ACK = b"SEND", b"ACK"
_VARYING: Final = {
    SEND: re.compile(rb"\nreceipt:([!-9;-\[\]-~]{1,1024})(?=\n|$)"),
    ACK: re.compile(rb"\n(?:message-)?id:([!-9;-\[\]-~]{1,1024})(?=\n|$)"),
}
#: A header whose name may turn out to be that of the receipt.
_ASKS: Final = re.compile(rb"\n[^:\n]*receipt")
#: So many are acted on together.
_MOST_ALIKE: Final = 500
#: By version: what stands behind a backslash, and what that means.
_MEANINGS: Final = {"1.1": _COMMON, "1.2": {**_COMMON, "r": "\r"}}
#: Behind the body. PHP's client takes no MESSAGE without the line's end, which ActiveMQ sends.
END: Final = b"\0\n"
#: What no header may have, in any version: it would end the frame.
_UNSAYABLE: Final = {"\0": "\N{REPLACEMENT CHARACTER}"}
_ESCAPES: Final = {
    version: str.maketrans({means: f"\\{letter}" for letter, means in meanings.items()} | _UNSAYABLE)
    for version, meanings in _MEANINGS.items()
}
#: 1.0 knows no escape; a line end in a value would be another header.
_ESCAPES_1_0: Final = str.maketrans({"\n": "\\n", "\r": "\\r"} | _UNSAYABLE)

Headers = dict[str, str]


class StompError(Exception):
    """Bytes that are no frame, or one that breaks the protocol: the connection ends. A sentence, and what to do."""

    def __init__(self, message: str, fix: str = "see https://stomp.github.io") -> None:
        super().__init__(message)
        self.code, self.message, self.fix = "malformed-frame", message, fix


class Frame(NamedTuple):
    """``head``: the command and the headers, as they came."""

    head: bytes
    body: bytes


class Run(NamedTuple):
    """SENDs, or ACKs, that came one after the other, with the same head but for one value in it, and bodies whose length is told alike.

    ``values``: the receipts of SENDs, empty where they want none; what ACKs name. ``before`` and ``after``: the head around it.
    """

    command: bytes
    before: bytes
    values: list[bytes]
    after: bytes
    bodies: list[bytes]

    @property
    def same(self) -> bytes:
        """What the heads have in common."""
        return self.before + self.after

    @property
    def head(self) -> bytes:
        """Of the first."""
        return self.before + b"".join(self.values[:1]) + self.after

    @property
    def receipt(self) -> bytes:
        """Of the first, as it is written; empty: it wants none."""
        return b"".join(self.values[:1]) if self.command == SEND else b""

    def each(self) -> list[Frame]:
        """One frame for each."""
        before, after = self.before, self.after
        values = self.values or [b""] * len(self.bodies)
        return [Frame(before + value + after, body) for value, body in zip(values, self.bodies, strict=True)]


Came = Frame | Run | StompError


class FrameReader:
    """Cuts frames of up to ``max_head`` bytes of headers and ``max_body`` of body. What is too large is refused before it is here."""

    def __init__(self, max_head: int, max_body: int) -> None:
        self.max_head, self.max_body = max_head, max_body
        self._parts: list[bytes] = []
        #: Bytes of a frame that is not whole; and how many it will have, as far as that is known (0: it is not).
        self.buffered = self._whole = 0
        #: Only a NUL is missing.
        self._seeks_end = False
        self._broken = False

    @property
    def wanted(self) -> int:
        """What those will come to, at least."""
        return self._whole or 2 * self.buffered

    def feed(self, data: bytes) -> list[Came]:
        """The frames that are whole now. An error is the last that comes."""
        if self._broken:
            return []
        if self._parts:
            if self.buffered + len(data) < self._whole or (self._seeks_end and b"\0" not in data):
                self._keep(data)
                return self._checked([])
            data = b"".join((*self._parts, data))
            self._parts, self.buffered, self._whole, self._seeks_end = [], 0, 0, False
        frames: list[Came] = []
        at = 0
        try:
            while (at := _skip(data, at)) < len(data):
                stop = self._cut(data, at, frames)
                if not stop:
                    self._keep(data[at:])
                    break
                at = stop
        except StompError as error:
            return self._failed(frames, error)
        return self._checked(frames)

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self.buffered += len(data)

    def _checked(self, frames: list[Came]) -> list[Came]:
        """A body whose length nobody has told grows no further than one may."""
        if self._seeks_end and self.buffered > self.max_head + self.max_body:
            return self._failed(frames, self._too_large())
        return frames

    def _failed(self, frames: list[Came], error: StompError) -> list[Came]:
        self._broken, self._parts, self.buffered = True, [], 0
        return [*frames, error]

    def _cut(self, data: bytes, at: int, frames: list[Came]) -> int:
        """Where the frame that begins there ends; 0 while it is not whole. Raises StompError."""
        blank = _BLANK.search(data, at, at + self.max_head + 3)
        if blank is None:
            self._check_head(data[at : at + self.max_head + 3])
            return 0
        head = data[at : blank.start()]
        self._check_head(head)
        body = blank.end()
        length = self._length(head)
        if length is None:
            stop = data.find(b"\0", body)
            self._seeks_end = stop < 0
            if stop < 0:
                return 0
            if stop - body > self.max_body:
                raise self._too_large()
        else:
            stop = body + length
            if stop >= len(data):
                self._whole = stop + 1 - at
                return 0
            if data[stop]:
                raise StompError("the body is longer than its content-length", "count the bytes of the body, not its characters")
        run = _run(head, data[body:stop])
        if run is None:
            frames.append(Frame(head, data[body:stop]))
            return stop + 1
        frames.append(run)
        return self._gather(data, stop + 1, run, data[blank.start() : body], length)

    def _gather(self, data: bytes, end: int, run: Run, blank: bytes, length: int | None) -> int:
        """Adds to the run what follows and is like it. Returns where that ends."""
        _, before, values, after, bodies = run
        after += blank
        while len(bodies) < _MOST_ALIKE:
            at = end + data.startswith(b"\n", end)
            if not data.startswith(before, at):
                break
            at += len(before)
            if values:
                value = _PLAIN.match(data, at)
                if value is None:
                    break
                values.append(value[0])
                at = value.end()
            stop = -1
            if data.startswith(after, at):
                at += len(after)
                stop = data.find(b"\0", at) if length is None else at + length
            if not 0 <= stop - at <= self.max_body or stop >= len(data) or data[stop]:
                del values[len(bodies) :]
                break
            bodies.append(data[at:stop])
            end = stop + 1
        return end

    def _check_head(self, head: bytes) -> None:
        if b"\0" in head:
            raise StompError("a frame ends before the blank line behind its headers", "send a blank line, the body, then the NUL")
        if len(head) > self.max_head:
            raise StompError(f"the headers of a frame are more than {self.max_head} bytes", "put large data into the body")

    def _length(self, head: bytes) -> int | None:
        if b"\ncontent-length:" not in head:
            return None
        found = _LENGTH.search(head)
        if found is None:
            raise StompError("content-length is no whole number of bytes")
        if (length := int(found[1])) > self.max_body:
            raise self._too_large()
        return length

    def _too_large(self) -> StompError:
        return StompError(f"a body is more than {self.max_body} bytes", "send less, or raise limits.max-message-bytes")


def _run(head: bytes, body: bytes) -> Run | None:
    """With which a run may begin; None: this is no such frame."""
    command = head.partition(b"\n")[0]
    varying = _VARYING.get(command)
    if varying is None:
        return None
    found = varying.search(head)
    if found is not None:
        return Run(command, head[: found.start(1)], [found[1]], head[found.end(1) :], [body])
    return None if command == ACK or _ASKS.search(head) is not None else Run(command, head, [], b"", [body])


def _skip(data: bytes, at: int) -> int:
    """Line ends between frames are heart-beats, and ends that people like to see."""
    found = _ENDS.match(data, at)
    return found.end() if found is not None else at


def read_head(head: bytes, version: str) -> tuple[str, Headers]:
    """The command and the headers: of those with one name the first. Raises StompError."""
    try:
        text = head.decode()
    except UnicodeDecodeError:
        raise StompError("the headers are not UTF-8") from None
    command, *lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
    if len(lines) > MAX_HEADERS:
        raise StompError(f"a frame has more than {MAX_HEADERS} headers", "put large data into the body")
    headers: Headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise StompError(f"a header line has no name and colon: {line[:80]!r}")
        if version == "1.0":
            name, value = name.strip(), value.strip()
        elif "\\" in line and version != UNKNOWN:
            name, value = _unescaped(name, version), _unescaped(value, version)
        headers.setdefault(name, value)
    return command, headers


def _unescaped(text: str, version: str) -> str:
    meanings = _MEANINGS[version]

    def meaning(found: re.Match[str]) -> str:
        if found[1] not in meanings:
            raise StompError(f"the escape {found[0]!r} of a header means nothing in STOMP {version}", r"write \\ for a backslash")
        return meanings[found[1]]

    return _ESCAPED.sub(meaning, text)


def header_line(name: str, value: str | bytes, version: str) -> bytes:
    """With its line end; ``value``: as text, or as it is written. Nothing, where STOMP 1.0 has no way to write that name."""
    if version == "1.0" and ":" in name:
        return b""
    return b"%s:%s\n" % (escaped(name, version), value if isinstance(value, bytes) else escaped(value, version))


def receipt_frames(receipts: list[bytes]) -> bytes:
    """``receipts``: as they are written."""
    return b"".join([b"RECEIPT\nreceipt-id:%s\n\n%s" % (receipt, END) for receipt in receipts])


def escaped(value: str, version: str) -> bytes:
    """As it is written in a header."""
    return value.translate(_ESCAPES_1_0 if version == "1.0" else _ESCAPES[version]).encode("utf-8", "replace")


def frame(command: str, headers: Iterable[tuple[str, str | bytes]], body: bytes = b"", version: str = "1.0") -> bytes:
    """As bytes; with its length, where it has a body."""
    lines = b"".join([header_line(name, value, version) for name, value in headers])
    length = b"content-length:%d\n" % len(body) if body else b""
    return b"%s\n%s%s\n%s%s" % (command.encode(), lines, length, body, END)
