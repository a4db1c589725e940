"""Homing as programs written for RabbitMQ see it: over AMQP 0-9-1, with the client that RabbitMQ is measured with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.homing import Homing, HomingCompiled
from benchmarks.peers.peer import Peer, free_port
from benchmarks.peers.rabbitmq import CLIENT


class HomingAmqp(Peer):
    family = "homing"
    name = "homing-amqp"
    scenarios = frozenset({"S1", "S2", "S3", "S4", "S5", "S6", "S8", "S9", "S10", "S11"})
    native: ClassVar[type[Homing]] = Homing

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._native_port = free_port()

    @classmethod
    def missing(cls) -> str | None:
        return cls.native.missing() if CLIENT.exists() else "RabbitMQ's client is not built; benchmarks/install_peers does that"

    def command(self) -> list[str]:
        config = self.directory / "broker.yaml"
        config.write_text(json.dumps({"native": {"port": self._native_port}, "amqp": {"port": self.port}}))  # JSON is YAML
        return [sys.executable, "-m", "homing", "serve", "--config", str(config), "--data", str(self.data), "--json"]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.native.root)}

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def set_up(self, queue: str, **options: object) -> None:
        """After the start, as with RabbitMQ."""
        words = {name.replace("_", "-"): value for name, value in options.items()}
        if "delivery_limit" in options:
            words["delivery-limit"] = int(str(options["delivery_limit"])) - 1
            words["dead-letter"] = f"DLQ.{queue}"
        self.ask("setup", queue=queue, kind="classic", **words)


class HomingCompiledAmqp(HomingAmqp):
    name = "homing-compiled-amqp"
    scenarios = frozenset({"S1", "S2", "S3", "S5", "S6", "S8"})
    native = HomingCompiled


class HomingAmqpSingle(HomingAmqp):
    """With a client that writes each message and each acknowledgement by itself, as those do that programs use."""

    name = "homing-amqp-single"
    scenarios = frozenset({"S1"})

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "single": 1}


class HomingCompiledAmqpSingle(HomingAmqpSingle):
    name = "homing-compiled-amqp-single"
    native = HomingCompiled
