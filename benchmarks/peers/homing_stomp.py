"""Homing as programs written for ActiveMQ see it: over STOMP, with the client that ActiveMQ is measured with."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.homing import Homing
from benchmarks.peers.peer import free_port
from benchmarks.peers.text import CLIENT


class HomingStomp(Homing):
    name = "homing-stomp"
    scenarios = frozenset({"S1"})

    @classmethod
    def missing(cls) -> str | None:
        return None if CLIENT.exists() else "its client is not built; benchmarks/install_peers does that"

    def listeners(self) -> dict[str, Any]:
        return {"native": {"port": free_port()}, "stomp": {"port": self.port}}

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "proto": "stomp"}

    def rows_written(self) -> int | None:
        """Its client does not ask for that."""
        return None
