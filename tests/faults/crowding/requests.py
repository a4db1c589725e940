"""One request that concerns very much: hundreds of thousands of deliveries, or every queue there is."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from pika import frame, spec
from ruamel.yaml import YAML

from homing.broker.protocols.native.codec import Op
from tests.amqp_wire import Wire
from tests.faults.crowding.anything import Anything
from tests.faults.crowding.attacks import ADDRESS, Amqp, Attack, Going, amqp_port
from tests.faults.hostile import Raw
from tests.process import Server

_WAIT_S: Final = 120.0
_QUEUE: Final = f"{ADDRESS}.0"
_COUNT: Final = spec.Queue.Declare(queue=_QUEUE, passive=True)
_SETTLING: Final[dict[str, list[Any]]] = {
    "nack": [spec.Basic.Nack(0, True, False), _COUNT],
    "requeue": [spec.Basic.Nack(0, True, True), _COUNT],
    "ack": [spec.Basic.Ack(0, True), _COUNT],
    "close": [spec.Channel.Close(200, "bye", 0, 0)],
    "delete": [spec.Queue.Delete(queue=_QUEUE)],
    "lost": [],
}


@dataclass(frozen=True)
class Settle(Attack):
    """A consumer without a prefetch holds all messages of a queue; then ``how`` becomes of them, at once."""

    how: str = ""
    held: list[Wire] = field(default_factory=list)

    def prepare(self, server: Server) -> None:
        _fill(server, self.messages)
        wire = Wire(amqp_port(server))
        wire.channel().ask(spec.Basic.Consume(queue=_QUEUE, consumer_tag="all"))
        _read_bodies(wire, self.messages - 1)
        if self.how not in ("close", "lost"):
            # What is given back shall not come again.
            wire.send(1, spec.Basic.Cancel("all"))
            wire.raw_until(b"\x03all\xce")
        self.held.append(wire)

    def begin(self, server: Server) -> Going:
        wire, going, seen = self.held.pop(), Going(), [0]
        wire.socket.settimeout(_WAIT_S)
        going.add(wire.socket, lambda: self._settle(wire, seen), lambda: seen[0])
        return going

    def _settle(self, wire: Wire, seen: list[int]) -> None:
        if self.how == "lost":
            wire.cut()
            return
        wire.write(b"".join([frame.Method(1, each).marshal() for each in _SETTLING[self.how]]))
        if wire.socket.recv(1 << 16):
            seen[0] = self.messages


def _fill(server: Server, messages: int) -> None:
    publisher = Amqp(1, messages, 10)
    publisher.prepare(server)
    wire = Wire(amqp_port(server))
    channel = wire.channel()
    channel.ask(spec.Confirm.Select())
    seen = [0]
    publisher.send(wire, publisher.publishes(channel.number), seen)
    assert seen[0] == messages, f"{seen[0]} of {messages} messages were confirmed"
    wire.socket.close()


def _read_bodies(wire: Wire, wanted: int) -> None:
    """Deliveries, of which the first has been read. Frames by hand: pika's codec takes a minute for so many."""
    data, seen = bytearray(), 0
    wire.socket.settimeout(_WAIT_S)
    data += wire.raw_so_far()
    while seen < wanted:
        data += wire.socket.recv(1 << 20)
        at = 0
        while at + 7 <= len(data) and (end := at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")) <= len(data):
            seen += data[at] == 3
            at = end
        del data[:at]


@dataclass(frozen=True)
class Call(Attack):
    """A call of the management while there are so many queues, or with so many messages in one."""

    verb: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)

    def prepare(self, server: Server) -> None:
        with Raw(server.url) as raw:
            for start in range(0, self.queues, 200):
                part = range(start, min(self.queues, start + 200))
                for number in part:
                    raw.send(Op.CALL, number + 1, "create-queue", {"queue": f"many.{number}"})
                for _ in part:
                    raw.until(Op.RESULT)
        if self.messages:
            _fill(server, self.messages)
        if self.verb == "reload":
            with server.config_path.open("w") as out:
                YAML(typ="safe").dump({**server.config, "address-settings": {"#": {"max-delivery-attempts": 3}}}, out)

    def begin(self, server: Server) -> Going:
        going, seen, raw = Going(), [0], Raw(server.url)
        going.add(raw.socket, lambda: self._ask(server, raw, seen), lambda: seen[0])
        return going

    def _ask(self, server: Server, raw: Raw, seen: list[int]) -> None:
        if self.verb == "scrape":
            for seen[0] in range(1, 6):
                with urllib.request.urlopen(f"http://{server.ready['http']}/metrics", timeout=_WAIT_S) as answer:
                    assert b"homing_queue_messages" in answer.read()
            return
        raw.send(Op.CALL, 1, self.verb, self.arguments)
        answer = raw.next(_WAIT_S)
        assert answer is not None
        assert answer[0] == Op.RESULT, answer
        seen[0] = 1
        while self.messages:
            raw.send(Op.CALL, 2, "queue", {"queue": _QUEUE})
            if raw.until(Op.RESULT)[2]["messages"] < 10:
                return


_MANY: Final = 19_900
_SETTING: Final = {"layers": {"#": {"max-delivery-attempts": 7}}}
_POLICY: Final = {"name": "all", "pattern": "^many", "definition": {"delivery-limit": 7}}
_SHORT: Final = {"layers": {_QUEUE: {"max-length": 5, "overflow": "drop-head"}}}
REQUESTS: Final[dict[str, Attack]] = {
    **{f"{how}-300000": Settle(1, 300_000, how=how) for how in _SETTLING},
    "settings-set": Call(_MANY, 0, verb="set-settings", arguments=_SETTING),
    "settings-dry-run": Call(_MANY, 0, verb="set-settings", arguments={**_SETTING, "dry_run": True}),
    "settings-preview": Call(_MANY, 0, verb="preview-settings", arguments=_SETTING),
    "policy-set": Call(_MANY, 0, verb="set-policy", arguments=_POLICY),
    "reload": Call(_MANY, 0, verb="reload"),
    "scrape": Call(_MANY, 0, verb="scrape"),
    "anything-of-20": Anything(300, 1 << 30, connections=20),
    "max-length-set": Call(0, 100_000, verb="set-settings", arguments=_SHORT),
}
