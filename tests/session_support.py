"""What stands on both sides of a session without a socket and a server: what it writes is kept, and calls find nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from homing.broker.config.changes import Change
from homing.broker.errors import Refused
from homing.broker.protocols.native.codec import FrameDecoder
from homing.journal.contract import FaultDescription, FaultLife


class Transport:
    writable = True
    endpoint = "127.0.0.1:4000"
    ended = False

    def end(self) -> None:
        self.ended = True

    leave = end

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None:
        assert heartbeat_ms >= 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def late(self) -> bool:
        return False

    def wait_turn(self) -> None: ...


class FrameTransport(Transport):
    """Keeps frames; refuses what a client with this ``limit`` would refuse."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.decoder = FrameDecoder(limit)
        self.frames: list[list[Any]] = []

    def write(self, data: bytes) -> None:
        self.frames += self.decoder.feed(data)

    def of(self, op: int) -> list[list[Any]]:
        return [frame for frame in self.frames if frame[0] == op]


class NoProcess:
    def past(self) -> Any:
        return self

    def history(self, message_id: int) -> Any:
        return None

    def last_attempts(self, entries: list[tuple[int, int]]) -> Any:
        return [None for _ in entries]

    def events(self, *_: object) -> list[Any]:
        return []

    def fault_lives(self, now_ms: int, fault_ids: Collection[int]) -> dict[int, FaultLife]:
        return {}

    def failures(self, since_ms: int, most: int) -> Iterator[Any]:
        return iter(())

    def dead_since(self, queue_ids: list[int]) -> dict[int, tuple[int, int]]:
        return {}

    def count_chosen(self, queue_id: int, which: Any) -> dict[tuple[int, str | None], int]:
        return {}

    def first_and_last(self, queue_ids: list[int], now_ms: int) -> dict[int, tuple[int, int]]:
        return {}

    def counts(self, queue_id: int, since_ms: int, width_minutes: int) -> list[dict[str, int]]:
        return []

    def calendar(self, queue_ids: list[int], now_ms: int, parts: Sequence[tuple[int, int]]) -> dict[int, int]:
        return {}

    def fault_hours(self, fault_ids: list[int], now_ms: int) -> dict[int, list[int]]:
        return {each: [0] * 24 for each in fault_ids}

    def describe_fault(self, fault_ids: list[int], now_ms: int) -> FaultDescription:
        return FaultDescription("", "", [0] * 24)

    def committed(self, transaction_id: str) -> bool:
        return False

    def record_settings(self) -> None: ...

    def statistics(self) -> Any:
        return {}

    def sockets(self) -> dict[object, Any]:
        return {}

    def settings_in_force(self) -> Any:
        return {}

    async def reload(self) -> list[Change]:
        raise Refused("no-config-file", "there is none", "none is needed")

    @property
    def files(self) -> NoProcess:
        return self

    def start_export(self, with_tracebacks: bool) -> Any:
        return {}

    async def discard_export(self) -> Any:
        return {}

    def export(self) -> Any:
        return {}

    def export_part(self, name: str, offset: int, most: int) -> Any:
        raise Refused("no-such-export", "there is none", "none is needed")

    def reports(self) -> Any:
        return {}

    def report_part(self, name: str, offset: int, most: int) -> Any:
        raise Refused("no-such-report", "there is none", "none is needed")

    async def backup(self, name: str) -> Any:
        raise Refused("backup-name", "there is no journal", "none is needed")
