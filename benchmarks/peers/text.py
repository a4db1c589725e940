"""Brokers with text protocols, which share one load client: NATS core and JetStream, Redis Streams, beanstalkd. Loopback only."""

from __future__ import annotations

from typing import ClassVar, Final

from benchmarks.load import ROOT
from benchmarks.peers.peer import Peer, missing_programs

CLIENT: Final = ROOT / "benchmarks" / "build" / "text_client"


class _TextPeer(Peer):
    program: ClassVar[str]
    proto: ClassVar[str]

    @classmethod
    def missing(cls) -> str | None:
        if not CLIENT.exists():
            return "its client is not built; benchmarks/install_peers does that"
        return missing_programs([cls.program])

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "proto": self.proto}

    def set_up(self, queue: str, **options: object) -> None:
        """Streams and their consumer groups; the others need nothing."""


class NatsCore(_TextPeer):
    """No storage, no acknowledgement, no confirm: the ceiling of what can be passed through a broker."""

    family = "nats"
    name = "nats-core"
    program = "nats-server"
    proto = "nats"
    scenarios = frozenset({"S2"})
    jetstream: ClassVar[bool] = False

    def command(self) -> list[str]:
        # A slow consumer is waited for, not cut off.
        lines = ["max_pending: 2GB", 'write_deadline: "60s"']
        if self.jetstream:
            lines.append(f'jetstream {{ store_dir: "{self.data}", max_file_store: 100GB }}')
        config = self.directory / "nats.conf"
        config.write_text("\n".join(lines) + "\n")
        return [self.program, "--addr", "127.0.0.1", "--port", str(self.port), "--config", str(config)]


class NatsJetStream(NatsCore):
    """Stored in files, but written without fsync (its sync interval is two minutes): its confirms promise less than ours."""

    name = "nats-jetstream"
    proto = "jetstream"
    scenarios = frozenset({"S1"})
    jetstream = True

    def set_up(self, queue: str, **options: object) -> None:
        self.ask("setup", queue=queue)


class RedisStreams(_TextPeer):
    """Append-only file, fsync always. Acknowledged entries stay in the stream and in memory: deleting them would cost it more."""

    family = "redis"
    name = "redis-streams"
    program = "redis-server"
    proto = "redis"
    scenarios = frozenset({"S1", "S3", "S6"})

    def command(self) -> list[str]:
        words = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.data,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "daemonize": "no",
            "auto-aof-rewrite-percentage": 0,
        }
        return [self.program, *(word for name, value in words.items() for word in (f"--{name}", str(value)))]

    def set_up(self, queue: str, **options: object) -> None:
        self.ask("setup", queue=queue)


class Beanstalkd(_TextPeer):
    """Write-ahead log, fsync after every write."""

    family = "beanstalkd"
    name = "beanstalkd"
    program = "beanstalkd"
    proto = "beanstalkd"
    scenarios = frozenset({"S6"})

    def command(self) -> list[str]:
        return [self.program, "-l", "127.0.0.1", "-p", str(self.port), "-b", str(self.data), "-f", "0", "-z", str(1 << 22)]
