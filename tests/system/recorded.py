"""A port before another one that keeps, frame by frame, what clients send."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from typing import Final, Self

_HEADER, _OVERHEAD, _HEARTBEAT = 8, 8, 8
#: What differs from one run of a program to the next: ids, times, numbers of processes. Frames keep their length.
_CHANCE: Final = re.compile(rb"[0-9a-f]{6,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{3,}")


class Recorder:
    """``frames``: of each connection, as they were opened, what it sent."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._sent: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self._changed = time.monotonic()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def quiet_for(self, seconds: float) -> bool:
        return time.monotonic() - self._changed > seconds

    def frames(self) -> list[list[bytes]]:
        return [_frames(bytes(each)) for each in self._sent]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._sockets += [client, server]
                self._sent.append(bytearray())
                threading.Thread(target=self._pass_on, args=(client, server, self._sent[-1]), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client, None), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if kept is not None:
                    kept += data
                    self._changed = time.monotonic()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _frames(sent: bytes) -> list[bytes]:
    """The protocol header and the frames behind it but for heartbeats, with what is chance left out."""
    found, at = [sent[:_HEADER]], _HEADER
    while at < len(sent):
        end = at + _OVERHEAD + int.from_bytes(sent[at + 3 : at + 7], "big")
        if sent[at] != _HEARTBEAT:
            found.append(sent[at:end])
        at = end
    return [_CHANCE.sub(lambda chance: b"*" * len(chance[0]), each) for each in found]
