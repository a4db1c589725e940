"""One TCP connection: bytes in, frames out; frames in, one write a loop turn; heartbeats both ways.

Knows nothing of what frames mean. Works on asyncio's own loop and on uvloop and imports neither's internals.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from homing.broker.protocols.codec_spoken import NAMES, spoken
from homing.broker.protocols.codec_tls import why
from homing.broker.protocols.native.codec import FrameDecoder, Op, ProtocolError, encode

from .errors import SEE_PROTOCOL, ConnectionLost, HomingError

#: A connection is dead after this many heartbeat intervals without a byte (docs/protocol.md 2.1).
DEAD_AFTER_INTERVALS: Final = 2.5

NATIVE_PORT: Final = "name the port of native: in the broker's broker.yaml, 7171 as shipped"

Frame = list[Any]


def tls_failed(error: ssl.SSLError) -> ConnectionLost:
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "name the certificate of who issued the broker's with cafile; it must be valid now, and for the host's name in the URL"
        return ConnectionLost("certificate-refused", f"the broker's certificate does not hold: {error.verify_message.rstrip('.')}", fix)
    if why(error) == "wrong version number":  # OpenSSL's word for bytes that are no TLS
        fix = "name the port of native.tls-port, or connect without TLS: homing://"
        return ConnectionLost("wrong-protocol", "what answers there does not speak TLS", fix)
    fix = "see the broker's log; a broker with client-ca may want a certfile"
    return ConnectionLost("tls-failed", f"TLS failed: {why(error)}", fix)


class Pending(Protocol):
    """Something that gathers work during a loop turn and writes it as few frames as it can."""

    def write_pending(self, wire: Wire) -> None: ...


class Wire(asyncio.Protocol):
    """``on_frame`` gets every frame, ``on_lost`` exactly once the reason the connection ended."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_frame: Callable[[Frame], None], on_lost: Callable[[Wire, HomingError], None]
    ) -> None:
        self._loop = loop
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._dirty: dict[Pending, None] = {}
        self._scheduled = False
        self.paused = False  # some of what was written is not with the kernel yet
        self._resumed: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = loop.create_future()
        self._beat_timer: asyncio.TimerHandle | None = None
        self._beat_s = 0.0
        self._beat_due = 0.0
        self._heard_at = self._wrote_at = loop.time()
        self.written = 0  # bytes given to the transport so far
        self.lost: HomingError | None = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=0)  # so that resume_writing means: all of it is with the kernel

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            for frame in self._decoder.feed(data):
                if self.lost is not None:
                    return
                self._on_frame(frame)
        except ProtocolError as invalid:
            theirs = spoken(data)
            if theirs is None:
                self.abort(ConnectionLost(invalid.code, f"the broker sent no valid frame: {invalid.message}", SEE_PROTOCOL))
            else:
                self.abort(
                    ConnectionLost("wrong-protocol", f"what answers there speaks {NAMES[theirs]}, not {NAMES['native']}", NATIVE_PORT)
                )
        except (ValueError, TypeError, IndexError, KeyError) as error:
            self.abort(ConnectionLost("malformed-frame", f"the broker sent a frame of the wrong shape ({error!r})", SEE_PROTOCOL))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            self._end(tls_failed(exc))
        said = f"the connection broke ({exc})" if exc else "the broker closed the connection"
        self._end(ConnectionLost("connection-lost", said, "wait for the reconnect, or connect again"))
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)

    # -- writing

    def write(self, *frame: Any) -> None:
        """Queue one frame behind everything gathered so far; it leaves at the end of the loop turn or with ``flush``."""
        if self._dirty:
            self._gather()
        self.append(frame)

    def append(self, frame: tuple[Any, ...]) -> None:
        """For write_pending: queue a frame without gathering first."""
        self.append_encoded(encode(frame))

    def append_encoded(self, data: bytes) -> None:
        """For write_pending: queue a frame that is bytes already."""
        self._out.append(data)
        if not self._scheduled:
            self._schedule()

    def mark(self, pending: Pending) -> None:
        """``pending.write_pending`` is called before the next write, once, in the order of the first mark."""
        self._dirty[pending] = None
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self.flush()

    def _gather(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for pending in dirty:
            pending.write_pending(self)

    def flush(self) -> None:
        """Give everything gathered to the transport now, as one write."""
        if self._dirty:
            self._gather()
        if not self._out or self.lost is not None or self._transport is None:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self.written += len(data)
        self._wrote_at = self._loop.time()
        self._transport.write(data)

    def unflushed(self, target: int) -> bool:
        """Whether some of the first ``target`` bytes have not reached the kernel."""
        if self.lost is not None:
            return True
        return self._transport is None or self.written - self._transport.get_write_buffer_size() < target

    async def flushed(self, target: int) -> bool:
        """Wait until the first ``target`` bytes are with the kernel. False: the connection was lost before they were."""
        while self.unflushed(target):
            if self.lost is not None:
                return False
            if self.paused:
                if self._resumed is None or self._resumed.done():
                    self._resumed = self._loop.create_future()
                await asyncio.shield(self._resumed)
            else:
                await asyncio.sleep(0)
        return True

    # -- heartbeats

    def start_heartbeat(self, heartbeat_ms: int) -> None:
        """Agree on an interval; 0 means none."""
        self._beat_s = heartbeat_ms / 1000
        if heartbeat_ms:
            self._bound_unanswered(int(DEAD_AFTER_INTERVALS * heartbeat_ms))
            self._arm()

    def _bound_unanswered(self, time_ms: int) -> None:
        """So long the system waits for the other machine to confirm what was written: by itself it waits for a quarter of an hour."""
        if self._transport is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, time_ms)

    def _arm(self) -> None:
        dead_at = self._heard_at + DEAD_AFTER_INTERVALS * self._beat_s
        now = self._loop.time()
        self._beat_due = min(now + self._beat_s / 2, dead_at) if dead_at > now else now + self._beat_s / 2
        self._beat_timer = self._loop.call_at(self._beat_due, self._beat)

    def _beat(self) -> None:
        now = self._loop.time()
        late = now - self._beat_due > self._beat_s / 2
        if now - self._heard_at >= DEAD_AFTER_INTERVALS * self._beat_s and not late:
            # When this timer itself is late the program held up its loop: bytes may lie unread, so look again next time.
            silence = f"nothing was heard from the broker for {now - self._heard_at:.1f} s"
            self.abort(ConnectionLost("heartbeat-missed", silence, "check the network and the broker's load"))
            return
        if now - self._wrote_at >= self._beat_s / 2 * 0.9:
            self.write(Op.HEARTBEAT)
            self.flush()
        self._arm()

    # -- the end

    def allow_frames_of(self, size_bytes: int) -> None:
        self._decoder.limit = size_bytes

    def abort(self, error: HomingError) -> None:
        """End the connection at once for ``error``; what is not yet with the kernel is dropped."""
        transport = self._transport
        self._end(error)
        if transport is not None:
            transport.abort()

    async def close(self) -> None:
        """Close after what was written; returns when the socket is gone."""
        if self._transport is not None and self.lost is None:
            self.flush()
            self._transport.close()
        if self._transport is not None:
            await asyncio.shield(self._closed)
            await asyncio.sleep(0)  # uvloop lets go of the socket in the turn after connection_lost

    def _end(self, error: HomingError) -> None:
        if self.lost is not None:
            return
        self.lost = error
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._out.clear()
        self._dirty.clear()
        self.resume_writing()
        self._on_lost(self, error)
