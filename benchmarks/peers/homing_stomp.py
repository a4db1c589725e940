"""Homing as programs written for ActiveMQ see it: over STOMP, with the client that ActiveMQ is measured with."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.homing import Homing
from benchmarks.peers.peer import free_port
from benchmarks.peers.text import CLIENT
from homing.client import blocking


class HomingStomp(Homing):
    name = "homing-stomp"
    scenarios = frozenset({"S1"})

    @classmethod
    def missing(cls) -> str | None:
        return None if CLIENT.exists() else "its client is not built; benchmarks/install_peers does that"

    def listeners(self) -> dict[str, Any]:
        self._native_port = free_port()
        return {"native": {"port": self._native_port}, "stomp": {"port": self.port}}

    def depth(self, queue: str) -> int:
        """There is no browser over STOMP."""
        with blocking.connect(f"homing://127.0.0.1:{self._native_port}") as connection:
            return sum(each["messages"] for each in connection.listing("queues") if each["name"] == queue)

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "proto": "stomp"}

    def rows_written(self) -> int | None:
        """Its client does not ask for that."""
        return None
