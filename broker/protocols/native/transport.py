"""asyncio.Protocol <-> a native session: bytes to frames, a turn's worth at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ..transport import SocketTransport, TransportContext
from .codec import Frame, FrameDecoder, Op
from .session import NativeSession


class NativeTransport(SocketTransport):
    """A socket on which the native protocol is spoken."""

    refuses_at_once: ClassVar[bool] = True
    protocol: ClassVar[str] = "native"

    def __init__(self, make_session: Callable[[SocketTransport], NativeSession], context: TransportContext) -> None:
        self._session = make_session(self)
        super().__init__(self._session, context)
        self._decoder = FrameDecoder(context.limits.max_bytes_before_login)
        #: Frames whose turn has not come yet; the socket is not read meanwhile.
        self._postponed: list[Frame] = []

    def resume_reading(self) -> None:
        if self._leaving or self._ending or not self._session.full:
            super().resume_reading()

    @property
    def _waits(self) -> bool:
        return bool(self._postponed) or super()._waits

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._postponed:
            self.wait_turn()

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None:
        super().opened(heartbeat_ms, of_peer_ms)
        self._decoder.limit = self._limits.max_frame_bytes

    def _take_in(self, data: bytes) -> None:
        if self._leaving or self._ending:
            return
        if not self._logged_in and self._refused_before_login(data):
            return
        decoder = self._decoder
        frames = decoder.feed(data)
        if decoder.buffered or self._partial:
            self._note_partial(decoder.buffered, decoder.wanted, whole=bool(frames))
        self._act_on(frames)

    def _drop_input(self) -> None:
        self._decoder, self._postponed = FrameDecoder(0), []

    def _act_on(self, frames: list[Frame]) -> None:
        if self._postponed:
            self._postponed += frames
            return
        if len(frames) < 2 and not self._paused:
            self._session.receive(frames)
            return
        for number, frame in enumerate(frames):
            if self._paused and frame[0] == Op.CALL:
                # Who asks faster than it reads the answers is asked no more of us: it is heard again when it has read.
                self._postponed = frames[number:]
                self._stop_reading()
                return
            self._session.receive([frame])
            if number + 1 < len(frames) and self._turns.late():
                self._postponed = frames[number + 1 :]
                self.wait_turn()
                return

    def _go_on(self) -> None:
        frames, self._postponed = self._postponed, []
        if not self._leaving and not self._ending:
            self._act_on(frames)
