"""Native connections, and addresses that very many queues are bound to."""

from __future__ import annotations

from typing import Any

from homing.broker.auth.access import BROKER
from homing.broker.protocols.native.codec import FrameDecoder, Op, encode
from homing.broker.protocols.native.session import NativeOptions, NativeSession
from tests import inside
from tests.model.world import World

QUEUES = 30


class Client:
    """A native connection, and what it was told."""

    def __init__(self, world: World, client_id: str) -> None:
        self.decoder = FrameDecoder(1 << 30)
        self.frames: list[list[Any]] = []
        self.writable = True
        self.endpoint = ""
        self.session = NativeSession(world.broker, self, NativeOptions("id", "test"), lambda user, password, done: done(""), _no_calls)
        self.say([Op.HELLO, "homing", 1, {"client_id": client_id}])

    def say(self, *frames: list[Any]) -> None:
        self.session.receive([each for frame in frames for each in FrameDecoder().feed(encode(frame))])

    def of(self, op: Op) -> list[list[Any]]:
        return [frame for frame in self.frames if frame[0] == op]

    def write(self, data: bytes) -> None:
        self.frames += self.decoder.feed(data)

    def end(self) -> None: ...

    def leave(self) -> None: ...

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def _no_calls(*args: Any) -> bool:
    raise AssertionError("nobody calls here")


def crowd(world: World, queues: int = QUEUES, address: str = "crowd") -> list[str]:
    names = [f"{address}.{number}" for number in range(queues)]
    for name in names:
        inside.resources(world.broker).declare(BROKER, {"queue": name, "address": address, "routing_type": "multicast"})
    return names


def sender(world: World, client_id: str, address: str = "crowd") -> Client:
    client = Client(world, client_id)
    client.say([Op.PRODUCER, 1, 1, address])
    world.commit()
    return client
