"""Homing itself, as its users run it; with every row written, so that elision hides nothing; and both compiled, broker and client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmarks.load import ROOT
from benchmarks.peers.peer import Peer
from homing.broker.tls.self_signed import make

#: What scripts/compile makes.
COMPILED: Final = ROOT / "build" / "compiled"
ALL: Final = frozenset({"S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10"})


class Homing(Peer):
    family = "homing"
    name = "homing"
    scenarios = ALL
    set_up_before_start = True
    journal: ClassVar[dict[str, Any]] = {}
    #: Where the broker's sources are.
    root: ClassVar[Path] = ROOT

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._has_statistics = True
        self._queues: dict[str, Any] = {}
        self._addresses: dict[str, Any] = {}
        self._settings: dict[str, Any] = {"#": {"redelivery-delay": 0}}

    @classmethod
    def missing(cls) -> str | None:
        return None

    def set_up(self, queue: str, **options: object) -> None:
        """Before the start: queues make themselves, all else stands in broker.yaml."""
        self._settings[queue] = {"max-delivery-attempts": options.get("delivery_limit", -1)}
        if "exchange" in options:
            address = str(options["exchange"])
            self._addresses[address] = {"routing-types": ["multicast"]}
            for number in range(int(str(options["queues"]))):
                self._queues[f"{queue}.{number}"] = {"address": address, "routing-type": "multicast"}

    def command(self) -> list[str]:
        config = self.directory / "broker.yaml"
        sections = {
            **self.listeners(),
            "journal": self.journal,
            "address-settings": self._settings,
            "addresses": self._addresses,
            "queues": self._queues,
        }
        config.write_text(json.dumps(sections))  # JSON is YAML
        return [sys.executable, "-m", "homing", "serve", "--config", str(config), "--data", str(self.data), "--json"]

    def listeners(self) -> dict[str, Any]:
        """The sections of broker.yaml that say where it listens."""
        return {"native": {"port": self.port}}

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root)}

    def client(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.homing_client"]

    def rows_written(self) -> int | None:
        """None from a broker that does not know the verb ``statistics``; it is asked only once then."""
        journal = self.ask("statistics").get("journal") if self._has_statistics else None
        if journal is None:
            self._has_statistics = False
            return None
        return sum(int(journal[name]) for name in ("references_added", "references_changed", "references_deleted"))


class HomingTls(Homing):
    """Over TLS 1.3, with a certificate of a P-256 key."""

    name = "homing-tls"
    scenarios = frozenset({"S1", "S3"})

    def listeners(self) -> dict[str, Any]:
        self._made = make(self.directory / "tls", ["127.0.0.1"])
        tls = {"certificate": str(self._made.certificate), "key": str(self._made.key)}
        return {"native": {"port": None, "tls-port": self.port}, "tls": tls}

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "cafile": str(self._made.authority)}


class HomingAllRows(Homing):
    name = "homing-all-rows"
    scenarios = frozenset({"S1", "S8"})
    journal: ClassVar[dict[str, Any]] = {"elide": False}


class HomingCompiled(Homing):
    name = "homing-compiled"
    root = COMPILED

    @classmethod
    def missing(cls) -> str | None:
        return None if (COMPILED / "homing-compiled.stamp").exists() else "it is not compiled; scripts/compile does that"

    def client(self) -> list[str]:
        return ["env", f"--chdir={COMPILED}", *super().client()]


class HomingCompiledAllRows(HomingCompiled):
    name = "homing-compiled-all-rows"
    scenarios = frozenset({"S1", "S8"})
    journal: ClassVar[dict[str, Any]] = {"elide": False}
