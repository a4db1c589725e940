"""TLS between a socket and what is spoken on it: a protocol to the socket, a transport to the protocol above. For both sides.

Not asyncio's own: that reads on when reading is paused, cannot close one way only, and does not tell what the kernel has taken
(docs/decisions/0021-tls-below-the-transports.md). What is encrypted and how is OpenSSL's matter alone.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final, cast

#: The most that one record carries.
_RECORD: Final = 16 * 1024
#: So much is decrypted at a time: OpenSSL's buffers never shrink.
_STEP: Final = 64 * 1024
#: What a record adds to what it carries, in any version and cipher of today.
_RECORD_OVERHEAD: Final = 69
#: Bytes that may come without carrying anything: a handshake, or new keys again and again, each of which costs more than a message.
_MOST_VOID: Final = 64 * 1024


def why(error: ssl.SSLError) -> str:
    """In words. What Python raises by itself has no ``reason``."""
    return str(getattr(error, "reason", None) or error.args[-1]).replace("_", " ").lower()


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """``above`` is connected when the socket is, and may write at once: that leaves when the handshake is done, or is dropped.

    With ``server_hostname`` it is the client's side, and the certificate must be that name's.
    """

    def __init__(self, above: asyncio.Protocol, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        super().__init__()
        self._above = above
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._is_client = server_hostname is not None
        self._tls = context.wrap_bio(self._in, self._out, server_side=not self._is_client, server_hostname=server_hostname)
        self._socket: asyncio.Transport
        #: What was written before the handshake was done; None from then on.
        self._early: list[bytes] | None = []
        self._void = 0
        #: The peer says that nothing follows, and above nobody knows yet.
        self._ended = False
        #: The end is said: whatever comes is thrown away.
        self._over = False
        self._error: Exception | None = None

    # -- the socket speaks -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._above.connection_made(self)
        if self._is_client:
            self._shake_hands()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if self._early is not None and (answer := self.answer_in_the_clear(data)) is not None:
            self._over = True
            self._socket.write(answer)
            self._socket.close()
            return
        try:
            plain = self._decrypt(data)
        except ssl.SSLError as error:
            self._fail(error)
            return
        if plain:
            self._above.data_received(plain)
        self._tell_the_end()

    def _tell_the_end(self) -> None:
        """Where reading is paused it is read later, as a socket's is: whoever paused it is not done with what came before."""
        if self._ended and not self._over and self._socket.is_reading():
            self._ended = False
            if not self._above.eof_received():
                self.close()

    def _decrypt(self, data: bytes) -> bytes:
        """What it carries; notes where the peer says that nothing follows. Raises ssl.SSLError."""
        view, chunks = memoryview(data), []
        for start in range(0, len(data), _STEP):
            self._in.write(view[start : start + _STEP])
            if self._early is not None and not self._shake_hands():
                continue
            while not self._ended and (self._in.pending or self._tls.pending()):
                try:
                    chunk = self._tls.read(_RECORD)
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLZeroReturnError:
                    chunk = b""
                self._ended = not chunk
                chunks.append(chunk)
        if self._out.pending:
            self._socket.write(self._out.read())
        plain = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._void = max(0, self._void + len(data) - len(plain) - _RECORD_OVERHEAD * len(chunks))
        if self._void > _MOST_VOID:
            raise ssl.SSLError(f"more than {_MOST_VOID} bytes of TLS carried nothing")
        return plain

    def _shake_hands(self) -> bool:
        """As far as it goes with what has come; whether that was all of it. Raises ssl.SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            if self._out.pending:
                self._socket.write(self._out.read())
        early, self._early, self._void = self._early or [], None, 0
        if early:
            self.write(b"".join(early))
        return True

    def answer_in_the_clear(self, data: bytes) -> bytes | None:
        """What is said to a peer that began with something else than TLS; None where OpenSSL is to decide that."""

    def _fail(self, error: Exception) -> None:
        """OpenSSL has said why to the peer, as far as TLS has words for it."""
        self._over, self._error = True, error
        if self._out.pending:
            self._socket.write(self._out.read())
        self._socket.close()

    def eof_received(self) -> bool | None:
        return None if self._over else self._above.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._early is not None and not self._over:
            exc = ConnectionResetError("the connection was closed during the TLS handshake")
        self._over = True
        self._above.connection_lost(self._error or exc)

    def pause_writing(self) -> None:
        self._above.pause_writing()

    def resume_writing(self) -> None:
        self._above.resume_writing()

    # -- the protocol above speaks -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._early is not None:
            self._early.append(bytes(data))
            return
        if self._over:
            return
        view, records = memoryview(data), []
        for start in range(0, len(data), _RECORD):
            self._tls.write(view[start : start + _RECORD])
            records.append(self._out.read())
        self._socket.write(records[0] if len(records) == 1 else b"".join(records))

    def _say_the_end(self) -> None:
        """close_notify: whoever reads knows that nothing was cut off."""
        if not self._over:
            self._over = True
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._socket.write(self._out.read())

    def write_eof(self) -> None:
        if self._early is not None:
            self._socket.abort()
        else:
            self._say_the_end()
            self._socket.write_eof()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self._early is not None:
            self._socket.abort()
        else:
            self._say_the_end()
            self._socket.close()

    def abort(self) -> None:
        self._over = True
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size() + sum(map(len, self._early or ()))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._socket.get_write_buffer_limits()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()
        if self._ended:
            asyncio.get_running_loop().call_soon(self._tell_the_end)

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._above = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        own = {"ssl_object": self._tls, "sslcontext": self._tls.context}
        return own.get(name) or self._socket.get_extra_info(name, default)
