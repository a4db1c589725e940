"""STOMP by hand: one frame at a time over a plain socket."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

from homing.broker.protocols.stomp.codec import Frame, FrameReader, frame, read_head
from tests.process import Server

#: Laid over a test server's configuration.
STOMP: dict[str, Any] = {"stomp": {"port": 0}}


class StompRefused(Exception):
    """An ERROR came: its message and body."""


class Told(NamedTuple):
    command: str
    headers: dict[str, str]
    body: bytes


def stomp_place(server: Server) -> tuple[str, int]:
    host, _, port = server.ready["stomp"].rpartition(":")
    return host, int(port)


class Link:
    """An open connection. Headers are named with ``_`` for ``-``."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.socket = socket.create_connection(stomp_place(server), 30)
        self._reader, self._frames, self._receipts = FrameReader(1 << 20, 1 << 24), list[Frame](), 0
        self.send("CONNECT", **{"accept_version": "1.2", **headers})
        self.connected = self.next("CONNECTED")

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        self.socket.sendall(frame(command, [(name.replace("_", "-"), value) for name, value in headers.items()], body, "1.2"))

    def sure(self, command: str, body: bytes = b"", /, **headers: str) -> list[Told]:
        """Waits for the receipt; what came before it."""
        self._receipts += 1
        self.send(command, body, receipt=str(self._receipts), **headers)
        before = []
        while (told := self.next()).command != "RECEIPT" or told.headers["receipt-id"] != str(self._receipts):
            before.append(told)
        return before

    def next(self, command: str = "") -> Told:
        """Raises StompRefused."""
        while not self._frames:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError("the broker has hung up")
            self._frames += [each for each in self._reader.feed(data) if isinstance(each, Frame)]
        each = self._frames.pop(0)
        told = Told(*read_head(each.head, "1.2"), each.body)
        if told.command == "ERROR":
            raise StompRefused(f"{told.headers['message']}: {told.body.decode()}")
        assert command in ("", told.command), told
        return told

    def close(self) -> None:
        self.socket.close()
