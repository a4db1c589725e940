"""RabbitMQ with its data, port and node name apart from any packaged service, and with an epmd of its own; loopback only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import ClassVar, Final

from benchmarks.load import ROOT
from benchmarks.peers.peer import Peer, free_port, missing_programs

#: The script behind the packaged wrapper, which would insist on the service's own folders.
SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CLIENT: Final = ROOT / "benchmarks" / "build" / "rabbitmq_client"


def node_environment(directory: Path, name: str, port: int, epmd_port: int, dist_port: int) -> dict[str, str]:
    """What keeps a node to loopback and to this directory, with ``rabbitmq.conf`` and ``plugins`` in it."""
    return {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"{name}{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
    }


def epmd_command(port: int) -> list[str]:
    """The node's name server, in the foreground: it must outlive the node, which would start another one."""
    return ["epmd", "-port", str(port), "-address", "127.0.0.1"]


class _RabbitMQ(Peer):
    family = "rabbitmq"
    kind: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._epmd_port = free_port()
        self._dist_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        if not SERVER.exists():
            return "rabbitmq-server not installed; benchmarks/install_peers does that"
        if not CLIENT.exists():
            return "its client is not built; benchmarks/install_peers does that"
        return missing_programs(["epmd"])

    def command(self) -> list[str]:
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                epmd_command(self._epmd_port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
        # frame_max lets bodies of a megabyte travel in one frame; what a connection uses is agreed with its client.
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nframe_max = 4194304\nlog.file.level = warning\n"
            "vm_memory_high_watermark.relative = 0.6\ndisk_free_limit.absolute = 50MB\n"
        )
        (self.directory / "plugins").write_text("[].\n")
        return [str(SERVER)]

    def environment(self) -> dict[str, str]:
        return node_environment(self.directory, "bench", self.port, self._epmd_port, self._dist_port)

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def set_up(self, queue: str, **options: object) -> None:
        """After the start. A quorum queue counts redeliveries, so its limit is one below the number of deliveries."""
        words = {name.replace("_", "-"): value for name, value in options.items()}
        if "delivery_limit" in options:
            words["delivery-limit"] = int(str(options["delivery_limit"])) - 1
            words["dead-letter"] = f"DLQ.{queue}"
        self.ask("setup", queue=queue, kind=self.kind, **words)

    def close(self) -> None:
        super().close()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()


class RabbitMQQuorum(_RabbitMQ):
    name = "rabbitmq-quorum"
    kind = "quorum"
    scenarios = frozenset({"S1", "S3", "S4", "S5", "S6", "S8"})

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "linger": 1000} if role == "consume" else options


class RabbitMQQuorumSingle(RabbitMQQuorum):
    """With a client that writes each message and each acknowledgement by itself, as those do that programs use."""

    name = "rabbitmq-quorum-single"
    scenarios = frozenset({"S1"})

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**super().translate(role, options), "single": 1}


class RabbitMQClassic(_RabbitMQ):
    name = "rabbitmq-classic"
    kind = "classic"
    scenarios = frozenset({"S1", "S2", "S3", "S4", "S6", "S8", "S9", "S10", "S11"})
