"""AMQP 0-9-1 by hand: one frame at a time over a plain socket, and what comes back put into words that two brokers can be compared by.

pika's frame codec does the coding, so that nothing of ours stands on both sides.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from pika import frame, spec

HEADER: Final = b"AMQP\x00\x00\x09\x01"
#: What a broker has to say comes well within this; "nothing" costs it once.
ANSWER_S: Final = 8.0
#: How long nothing must come for "nothing more came".
QUIET_S: Final = 0.15
#: What pika announces.
CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
_GENERATED: Final = re.compile(r"amq\.(gen|ctag)-[\w-]+|(amq\.rabbitmq\.reply-to)\.[^ ',]+")
#: Fields that say nothing.
_SILENT: Final = {"ticket", "known_hosts", "locale", "out_of_band", "capabilities", "insist", "channel_id", "cluster_id"}


class Gone(Exception):
    """The peer closed the socket."""


class Wire:
    """One connection. ``login=False`` stops after the socket is there; then everything is up to the caller."""

    def __init__(self, port: int, *, login: bool = True, capabilities: dict[str, bool] | None = None, **tune: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.open = True
        self._data = b""
        self._waiting: list[Any] = []
        self._channels = 0
        #: What the broker said of itself.
        self.start: Any = None
        self.tune: Any = None
        if login:
            self.log_in(capabilities, **tune)

    def log_in(self, capabilities: dict[str, bool] | None = None, **tune: int) -> None:
        self.to_tune(capabilities)
        limits = {"channel_max": self.tune.channel_max, "frame_max": self.tune.frame_max, "heartbeat": 0, **tune}
        self.send(0, spec.Connection.TuneOk(**limits))
        self.send(0, spec.Connection.Open("/"))
        assert isinstance(self.next(0), spec.Connection.OpenOk)

    def to_tune(self, capabilities: dict[str, bool] | None = None, response: str = "\0guest\0guest") -> None:
        """As far as connection.tune."""
        self.write(HEADER)
        self.start = self.next(0)
        properties = {"product": "wire", "capabilities": CAPABILITIES if capabilities is None else capabilities}
        self.send(0, spec.Connection.StartOk(properties, "PLAIN", response, "en_US"))
        self.tune = self.next(0)

    # -- out

    def write(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            # What the broker had to say before it went is still to be read.
            self.open = False

    def send(self, channel: int, method: Any) -> None:
        self.write(frame.Method(channel, method).marshal())

    def content(self, channel: int, body: bytes, properties: Any, size: int | None = None) -> None:
        room = (self.tune.frame_max if self.tune is not None else 131_072) - 8
        parts = [frame.Header(channel, len(body) if size is None else size, properties).marshal()]
        parts += [frame.Body(channel, body[at : at + room]).marshal() for at in range(0, len(body), room)]
        self.write(b"".join(parts))

    # -- in

    def frame(self, timeout_s: float = ANSWER_S) -> Any:
        """The next frame of any channel, None when nothing came. Raises Gone."""
        end = time.monotonic() + timeout_s
        while True:
            used, decoded = frame.decode_frame(self._data)
            if decoded is not None:
                self._data = self._data[used:]
                return decoded
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 20)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                self.open = False
                raise Gone
            self._data += data

    def next(self, channel: int, timeout_s: float = ANSWER_S) -> Any:
        """The next method, or whole message ``(method, properties, body)``, on ``channel`` or of the connection; None: nothing came."""
        for at, (number, item) in enumerate(self._waiting):
            if number in (channel, 0):
                del self._waiting[at]
                return item
        end = time.monotonic() + timeout_s
        while (left := end - time.monotonic()) > 0:
            found = self.frame(left)
            if found is None:
                return None
            if isinstance(found, frame.Heartbeat):
                continue
            item = self._with_content(found)
            if isinstance(found, frame.ProtocolHeader) or found.channel_number in (channel, 0):
                return item
            self._waiting.append((found.channel_number, item))
        return None

    def _with_content(self, found: Any) -> Any:
        """A method alone, or with the content that follows it (brokers send a message's frames one after the other)."""
        if isinstance(found, frame.ProtocolHeader):
            return found
        assert isinstance(found, frame.Method), f"a stray {found!r}"
        method = found.method
        if not isinstance(method, spec.Basic.Deliver | spec.Basic.GetOk | spec.Basic.Return):
            return method
        header = self.frame()
        assert isinstance(header, frame.Header)
        body = b""
        while len(body) < header.body_size:
            part = self.frame()
            assert isinstance(part, frame.Body)
            body += part.fragment
        return method, header.properties, body

    def raw_until(self, ending: bytes) -> bytes:
        """The bytes that come, up to ``ending``."""
        self.socket.settimeout(ANSWER_S)
        while not self._data.endswith(ending):
            self._data += self.socket.recv(1 << 20)
        data, self._data = self._data, b""
        return data

    def raw_so_far(self) -> bytes:
        """What has come and was not read."""
        data, self._data = self._data, b""
        return data

    # -- channels

    def channel(self) -> Ch:
        self._channels += 1
        opened = Ch(self, self._channels)
        assert opened.ask(spec.Channel.Open()) == "Channel.OpenOk"
        return opened

    def close(self) -> None:
        """Says goodbye, where there is still somebody, and lets go."""
        if self.open:
            self.send(0, spec.Connection.Close(200, "bye", 0, 0))
            end = time.monotonic() + ANSWER_S
            try:
                while time.monotonic() < end and not _is(self.frame(), spec.Connection.CloseOk):
                    pass
            except Gone:
                pass
        self.cut()

    def cut(self) -> None:
        self.open = False
        self.socket.close()


def _is(found: Any, kind: type[Any]) -> bool:
    return isinstance(found, frame.Method) and isinstance(found.method, kind)


class Ch:
    """One channel. Answers are texts (``words``) and messages (``message_words``); an exception's close is answered by itself."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.wire = wire
        self.number = number
        #: Why it ended; "" while it is open.
        self.closed = ""

    def ask(self, method: Any) -> Any:
        """Sends, and says what came next on the channel."""
        if self.closed:
            return f"closed before by {self.closed}"
        self.wire.send(self.number, method)
        return self.answer()

    def send(self, method: Any) -> None:
        self.wire.send(self.number, method)

    def publish(
        self, exchange: str, key: str, body: str | bytes = "", *, mandatory: bool = False, immediate: bool = False, **p: Any
    ) -> None:
        self.wire.send(self.number, spec.Basic.Publish(0, exchange, key, mandatory, immediate))
        self.wire.content(self.number, body.encode() if isinstance(body, str) else body, spec.BasicProperties(**p))

    def item(self, timeout_s: float = ANSWER_S) -> Any:
        """The next method or message, None: nothing came, "gone": the socket is closed."""
        try:
            item = self.wire.next(self.number, timeout_s)
        except Gone:
            self.closed = "gone"
            return "gone"
        if isinstance(item, spec.Channel.Close):
            self.closed = words(item)
            self.wire.send(self.number, spec.Channel.CloseOk())
        elif isinstance(item, spec.Connection.Close):
            self.closed = words(item)
            self.wire.send(0, spec.Connection.CloseOk())
            self.wire.open = False
        return item

    def answer(self, timeout_s: float = ANSWER_S) -> Any:
        return reported(self.item(timeout_s))

    def more(self, quiet_s: float = QUIET_S) -> list[Any]:
        """Everything that still comes, until nothing has come for a while."""
        came: list[Any] = []
        while (item := self.item(quiet_s)) is not None:
            came.append(reported(item))
            if self.closed:
                break
        return came

    def take(self, wanted: int) -> list[Any]:
        """``wanted`` deliveries as they came, or fewer when they did not."""
        taken: list[Any] = []
        while len(taken) < wanted and isinstance(item := self.item(), tuple):
            taken.append(item)
        return taken

    def get(self, queue: str, no_ack: bool = True) -> Any:
        """A message ``(method, properties, body)``, None where there is none."""
        self.send(spec.Basic.Get(0, queue, no_ack))
        item = self.item()
        return item if isinstance(item, tuple) else None

    def wait(self, queue: str, no_ack: bool = True) -> Any:
        """The next message, waited for."""
        return self.until(lambda: self.get(queue, no_ack))

    def count(self, queue: str) -> int:
        self.send(spec.Queue.Declare(0, queue, passive=True))
        return int(self.item().message_count)

    def wait_count(self, queue: str, wanted: int) -> None:
        assert self.until(lambda: self.count(queue) == wanted), f"{queue} holds {self.count(queue)}, not {wanted}"

    def bodies(self, queue: str) -> list[str]:
        """Takes all there is."""
        found: list[str] = []
        while (message := self.get(queue)) is not None:
            found.append(message[2].decode())
        return found

    @staticmethod
    def until(attempt: Callable[[], Any], within_s: float = ANSWER_S) -> Any:
        """What ``attempt`` gives as soon as that is something; else what it gave last."""
        end = time.monotonic() + within_s
        while True:
            found = attempt()
            if found or time.monotonic() > end:
                return found
            time.sleep(0.02)


# -- words -------------------------------------------------------------------------------------------------------------


def reported(item: Any) -> Any:
    if item is None:
        return "nothing"
    if isinstance(item, str):
        return item
    return message_words(item) if isinstance(item, tuple) else words(item)


def words(method: Any) -> str:
    """A method as a text: its name and what its fields say, in order."""
    if isinstance(method, frame.ProtocolHeader):
        return f"AMQP {method.major}.{method.minor}.{method.revision}"
    fields = method.__dict__
    if "class_id" in fields:
        name = fields["reply_text"].partition(" - ")[0]
        return f"{method.NAME} {fields['reply_code']} {name} {fields['class_id']}.{fields['method_id']}"
    said = [f"{name}={plain(value)}" for name, value in fields.items() if name not in _SILENT]
    return " ".join([method.NAME, *said])


def message_words(message: tuple[Any, Any, bytes]) -> dict[str, Any]:
    method, properties, body = message
    shown = {name: plain(value) for name, value in sorted(properties.__dict__.items()) if value is not None}
    return {"how": words(method), "properties": shown, "body": body.decode("utf-8", "replace") if len(body) < 100 else len(body)}


def plain(value: Any) -> Any:
    """A field's value as JSON has it; times and generated names, which differ, by a word."""
    if isinstance(value, str):
        return _GENERATED.sub(lambda found: f"amq.{found[1]}-*" if found[1] else f"{found[2]}.*", value)
    if isinstance(value, bytes):
        return "bytes " + value.hex()
    if isinstance(value, datetime):
        return "a time"
    if isinstance(value, Decimal):
        return f"decimal {value}"
    if isinstance(value, dict):
        return {name: plain(each) for name, each in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
