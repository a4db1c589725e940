"""asyncio.Protocol <-> a codec and its session: buffering, limits before login, heartbeats, and what a fault costs.

Everything written in one turn of the broker, or of the loop, leaves in one write (output.py). Whatever goes wrong in here ends this
connection and no other.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, cast

from ..errors import Refused
from ..shares import Share
from .codec_foreign import answer, describe
from .codec_proxy import Peer
from .codec_spoken import spoken
from .codec_tls import why
from .gathering import Gathering
from .handshakes import Admission
from .output import Outgoing
from .turns import Turns

log = logging.getLogger("homing")

#: Gathered output above this leaves at once, so that the socket's own flow control can speak up within a turn.
_FLUSH_ABOVE: Final = 256 * 1024
#: Connections with a heartbeat below this look after it themselves.
_SELDOM_S: Final = 2.5
#: A read of no more bytes than this is acted on at once.
_LITTLE: Final = 4096
#: So long a peer has to hang up after a goodbye, as with RabbitMQ.
_TO_HANG_UP_S: Final = 30.0
#: What a connection takes by itself, about.
CONNECTION_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class TransportLimits:
    max_frame_bytes: int = 16 * 1024 * 1024
    max_bytes_before_login: int = 8 * 1024
    login_timeout_ms: int = 10_000
    heartbeat_tolerance: float = 2.5
    #: A peer that takes nothing of what waits for it is given up after this long, heartbeats or not, as with RabbitMQ.
    write_timeout_ms: int = 30_000
    #: When so much waits for a peer to read it, it is handed and answered nothing more; when this much does, it is cut off.
    max_unread_bytes: int = 1024 * 1024
    max_unsent_bytes: int = 64 * 1024 * 1024


class Session(Protocol):
    """Any protocol's session, as far as every transport talks to it."""

    def lost(self) -> None: ...

    def broken(self, error: Exception) -> None:
        """What the peer sent cannot be acted on."""

    def heartbeat(self) -> None: ...

    def resumed(self) -> None:
        """The peer reads again."""

    def end(self, code: str, message: str, fix: str) -> None: ...

    def limit_to(self, shares: Sequence[Share]) -> None:
        """Whoever has logged in may have no more than these leave."""


@dataclass(frozen=True, slots=True)
class TransportContext:
    """What sockets share. ``connections`` holds every open transport; ``admission`` says which may stay."""

    limits: TransportLimits
    connections: set[SocketTransport]
    admission: Admission
    gathering: Gathering
    turns: Turns
    outgoing: Outgoing


class SocketTransport(asyncio.Protocol):
    """One socket, whatever is spoken on it."""

    #: The protocol can say that there are too many connections before the peer has said anything.
    refuses_at_once: ClassVar[bool] = False
    protocol: ClassVar[str]

    def __init__(self, session: Session, context: TransportContext) -> None:
        self._limits = context.limits
        self._connections = context.connections
        self._admission = context.admission
        self._gathering = context.gathering
        self._turns = context.turns
        self._outgoing = context.outgoing
        #: What it makes us hold beside what the broker knows of: frames that are not whole, and what the peer has not read.
        self.memory = context.gathering.owner()
        self._partial = self._unsent = 0
        #: There is no room for anything but messages, and something waits for it to read it.
        self._stinted = False
        #: There is no room for its frame now.
        self._waits_for_room = False
        #: It waits for its turn, with what came and is not looked at yet.
        self._in_line = False
        self._unread = b""
        #: The address it comes from, and the same with the port, for people.
        self.peer = self.endpoint = ""
        #: Its password is being checked.
        self.checking = False
        self._loop = asyncio.get_running_loop()
        self._any_session = session
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._paused = False
        self._not_reading = False
        #: The session has asked for that.
        self._paused_by_session = False
        self._received_before_login = 0
        self._logged_in = False
        self._deadline: asyncio.TimerHandle | None = None
        #: How often something is to leave, and to come; 0: no matter.
        self._heartbeat_s = self._of_peer_s = 0.0
        #: The goodbye is said, and the peer is to hang up; we have.
        self._leaving = self._ending = False
        #: What was said last is all that is said: the socket is closed behind it.
        self._hurried = False
        self._last_in = self._last_out = self._taken_at = self._loop.time()
        #: Bytes handed to the socket; how many of them it had taken when that was looked at last.
        self._written = self._taken = 0

    # -- the socket speaks -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=self._limits.max_unread_bytes)
        self._connections.add(self)
        self.memory.hold(CONNECTION_BYTES)
        self._deadline = self._loop.call_later(self._limits.login_timeout_ms / 1000, self._too_slow)
        name = transport.get_extra_info("peername")
        self._arrive(*(name or ("", ""))[:2])

    def came_from(self, peer: Peer) -> None:
        """Another node passes it on for that one, as whose it counts from here on."""
        self._admission.leave(self)
        self._arrive(*peer)

    def _arrive(self, host: str, port: object) -> None:
        self.peer, self.endpoint = host, f"{host}:{port}" if host else ""
        self._admission.arrive(self)
        # With TLS that waits for the login: nothing can be said before the handshake.
        refusal = self._admission.refusal(self.peer) if self.refuses_at_once and self.tls is None else None
        if refusal is not None:
            log.warning("connection-refused: %s was refused: %s", self.endpoint, refusal)
            self._hurried = True
            self._any_session.end(refusal.code, refusal.message, refusal.fix)

    def _refused_before_login(self, data: bytes) -> bool:
        """Whether what came before the login is of another protocol, or too much: its session has ended then."""
        if not self._received_before_login and self._is_foreign(data):
            return True
        self._received_before_login += len(data)
        if self._received_before_login <= self._limits.max_bytes_before_login:
            return False
        said = "too much was sent before the login was done"
        self._any_session.end("login-expected", said, "wait for the answer to the login before sending more")
        return True

    def _is_foreign(self, data: bytes) -> bool:
        """The first that came on this socket is of another protocol: the log says so, and the peer is notified."""
        theirs = spoken(data)
        if theirs is None or theirs == self.protocol:
            return False
        log.warning("wrong-protocol: %s", describe(self.endpoint, theirs, self.protocol))
        self.write(answer(theirs, self.protocol))
        self._any_session.lost()
        self.end()
        return True

    def data_received(self, data: bytes) -> None:
        self._last_in = self._loop.time()
        much = len(data) > _LITTLE
        if self._unread or (much and self._turns.full() and not self._gathering.short and not self._settles_only(data)):
            self._unread += data
            self._charge()
            self.wait_turn()
            return
        try:
            self._take_in(data)
        except Exception as error:
            self._any_session.broken(error)
        if much:
            self._turns.late()

    def _take_in(self, data: bytes) -> None:
        """Acts on what came."""
        raise NotImplementedError

    def _settles_only(self, data: bytes) -> bool:
        """Whether it is acknowledgements and nothing else: these wait for no turn, as what is acknowledged sooner need not be written."""
        return False

    def _go_on(self) -> None:
        """With what came before and had to wait."""

    def late(self) -> bool:
        """This turn of the loop has been long enough."""
        return self._turns.late()

    def wait_turn(self) -> None:
        """What is left waits for another turn, and nothing is read meanwhile."""
        if not self._in_line:
            self._in_line = True
            self._stop_reading()
            self._turns.wait(self._have_turn)

    def _have_turn(self) -> None:
        self._in_line = False
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._go_on()
            if self._unread and not self._in_line:
                data, self._unread = self._unread, b""
                self._charge()
                self._take_in(data)
        except Exception as error:
            self._any_session.broken(error)
        self._read_on()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._stinted and self._transport is not None:
            self._stinted = False
            self._transport.set_write_buffer_limits(high=self._limits.max_unread_bytes)
        self._any_session.resumed()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._admission.leave(self)
        self._gathering.forget(self)
        # It does not wait for the collector.
        self._drop_input()
        self._unread = b""
        self.memory.close()
        if isinstance(error, ssl.SSLError):
            log.warning("tls-failed: %s: %s", self.endpoint, why(error))
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None
        self._out.clear()
        self._any_session.lost()

    def _too_slow(self) -> None:
        if self._logged_in:
            return
        said = "the login was not checked within the time allowed" if self.checking else "no login within the time allowed"
        self._any_session.end("login-timeout", f"{said} (limits.login-timeout)", "log in at once; try again")

    @property
    def session(self) -> Session:
        """What is spoken on it."""
        return self._any_session

    def abort(self) -> None:
        """Hangs up, and says nothing more."""
        if self._transport is not None:
            self._transport.abort()

    def limit_to(self, shares: Sequence[Share]) -> None:
        self._any_session.limit_to(shares)

    @property
    def tls(self) -> ssl.SSLObject | None:
        """None where bytes cross the network as they are."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    @property
    def unsent_bytes(self) -> int:
        """What waits for the peer to read it."""
        return self._out_bytes + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    @property
    def memory_bytes(self) -> int:
        """What is charged to it: itself, frames that are not whole, and what waits for the peer to read it."""
        return self.memory.bytes

    @property
    def patience(self) -> int:
        """See admission.Guest."""
        if self._leaving or self._ending:
            return 0
        return 2 if self.checking else 1

    def give_way(self, refusal: Refused) -> None:
        log.warning("connection-refused: %s gave way to another: %s", self.endpoint, refusal)
        self._hurried = True
        self._drop_input()
        self._partial, self._waits_for_room, self._unread = 0, False, b""
        self._charge()
        self._any_session.end(refusal.code, refusal.message, refusal.fix)
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def _drop_input(self) -> None:
        """What was half sent is let go."""
        raise NotImplementedError

    def _charge(self) -> None:
        self.memory.hold(CONNECTION_BYTES + self._partial + self._unsent + len(self._unread))

    def _note_partial(self, partial: int, wanted: int, whole: bool) -> None:
        """Of frames that are not whole ``partial`` bytes are here, of ``wanted``. ``whole``: what came before them is."""
        self._partial = partial
        self._charge()
        self._gathering.note(self, partial, wanted, whole)

    def _note_unsent(self, unsent: int) -> None:
        self._unsent = unsent
        self._charge()
        if unsent and not self._stinted and self._transport is not None and self._gathering.short:
            # It is handed nothing more until it has read all of it.
            self._stinted = True
            self._transport.set_write_buffer_limits(high=0)

    def wait_for_room(self) -> None:
        self._waits_for_room = True
        self._stop_reading()

    def go_on(self) -> None:
        self._waits_for_room = False
        self._read_on()

    # -- Output: the session speaks ----------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return not self._paused and self._transport is not None

    def write(self, data: bytes) -> None:
        if not self._out:
            self._outgoing.add(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > _FLUSH_ABOVE:
            self.flush()

    def flush(self) -> None:
        if not self._out:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._written += self._out_bytes
        self._out_bytes = 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        self._last_out = self._loop.time()
        unsent = transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._note_unsent(unsent)
        if unsent > self._limits.max_unsent_bytes:
            log.warning(
                "connection-given-up: %s does not read what it is sent: more than %d bytes wait for it, and it is given up",
                self.endpoint,
                self._limits.max_unsent_bytes,
            )
            transport.abort()

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None:
        self._logged_in = True
        self._heartbeat_s = heartbeat_ms / 1000
        self._of_peer_s = self._heartbeat_s if of_peer_ms is None else of_peer_ms / 1000
        self._beat_later()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def end(self) -> None:
        """Hangs up once what was written has left; a peer that does not read it is given the login time to do so.

        What the peer is still sending is read and thrown away until it hangs up too: closing with something unread would reset the
        connection, and the peer might never see why.
        """
        self.flush()
        transport = self._transport
        if transport is None or transport.is_closing() or self._ending:
            return
        self._ending = True
        self.resume_reading()
        if self._hurried:
            transport.close()
        else:
            # Whose peer has hung up meanwhile.
            with suppress(OSError):
                transport.write_eof()
        self._cut_in(self._limits.login_timeout_ms / 1000)

    def leave(self) -> None:
        """What was written last is the goodbye, and the peer hangs up when it has read it.

        Were the socket closed together with the goodbye, a client whose reader sees the end before the rest of it has understood the
        goodbye would take it for a loss: some report an error then, some reconnect, some wait for ever.
        """
        self.flush()
        transport = self._transport
        if transport is None or transport.is_closing() or self._ending or self._leaving:
            return
        self._leaving = True
        if self._hurried:
            transport.close()
        self.resume_reading()
        self._cut_in(_TO_HANG_UP_S if self._logged_in else self._limits.login_timeout_ms / 1000)

    def _cut_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            self._deadline = self._loop.call_later(seconds, self._transport.abort)

    def pause_reading(self) -> None:
        """What the peer sends waits in the socket from here on."""
        self._paused_by_session = True
        self._stop_reading()

    def resume_reading(self) -> None:
        self._paused_by_session = False
        self._read_on()

    def _stop_reading(self) -> None:
        if not self._not_reading and self._transport is not None:
            self._not_reading = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Unless something speaks against it; what comes after a goodbye is read in any case, and thrown away."""
        if (self._waits or self._paused_by_session) and not (self._leaving or self._ending):
            return
        if self._not_reading and self._transport is not None and not self._transport.is_closing():
            self._not_reading = False
            self._last_in = self._loop.time()
            self._transport.resume_reading()

    @property
    def _waits(self) -> bool:
        """For its turn, or for room."""
        return self._in_line or self._waits_for_room

    # -- once a heartbeat's time -------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Sends a heartbeat when nothing else was sent; gives up a peer that has been silent for too long, or takes nothing."""
        transport = self._transport
        if transport is None or self._leaving or self._ending:
            return
        now = self._loop.time()
        unsent = transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._note_unsent(unsent)
        # With TLS what waits is somewhat longer than what was written.
        taken_before, self._taken = self._taken, self._written - unsent
        if not unsent or self._taken > taken_before:
            self._taken_at = now
        elif now - self._taken_at >= self._limits.write_timeout_ms / 1000:
            log.warning(
                "connection-given-up: %s has taken nothing for %.1f s of the %d bytes that wait for it (limits.write-timeout)",
                self.endpoint,
                now - self._taken_at,
                unsent,
            )
            transport.abort()
            return
        patience_s = self._of_peer_s * self._limits.heartbeat_tolerance
        if patience_s and not self._not_reading and now - self._last_in > patience_s:
            log.warning("connection-given-up: %s was silent for %.1f s and is given up", self.endpoint, now - self._last_in)
            transport.abort()
        elif self._heartbeat_s and now - self._last_out >= self._heartbeat_s * 0.5:
            self._any_session.heartbeat()

    def _beat_later(self) -> None:
        """For heartbeats that the server's own look, once a second when nothing else happens, is too seldom for."""
        often_s = min([each for each in (self._heartbeat_s, self._of_peer_s) if each], default=_SELDOM_S)
        if often_s < _SELDOM_S:
            self._loop.call_later(often_s / 4, self._beat_often)

    def _beat_often(self) -> None:
        if self._transport is not None and not self._leaving and not self._ending:
            self.beat()
            self._beat_later()

    def goodbye(self, code: str, message: str, fix: str) -> None:
        self._any_session.end(code, message, fix)
