"""ActiveMQ Classic with KahaDB, as packaged by Debian, over STOMP; its configuration, data and port apart from any service."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.peers.peer import Peer, missing_programs
from benchmarks.peers.text import CLIENT

HOME: Final = Path("/usr/share/activemq")
#: Asynchronous dispatch, no JMX, flow control as shipped; sync of the journal always, which is its default.
CONFIG: Final = """<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="bench" useJmx="false" dataDirectory="{data}">
    <persistenceAdapter><kahaDB directory="{data}/kahadb" journalDiskSyncStrategy="always"/></persistenceAdapter>
    <systemUsage><systemUsage><memoryUsage><memoryUsage limit="512 mb"/></memoryUsage></systemUsage></systemUsage>
    <transportConnectors><transportConnector name="stomp" uri="stomp+nio://127.0.0.1:{port}"/></transportConnectors>
  </broker>
</beans>
"""


class ActiveMQ(Peer):
    family = "activemq"
    name = "activemq"
    scenarios = frozenset({"S1", "S2", "S3", "S6"})

    @classmethod
    def missing(cls) -> str | None:
        if not (HOME / "bin" / "activemq.jar").exists():
            return "activemq not installed; benchmarks/install_peers does that"
        return missing_programs(["java"]) or (None if CLIENT.exists() else "its client is not built; benchmarks/install_peers does that")

    def command(self) -> list[str]:
        config = self.directory / "activemq.xml"
        config.write_text(CONFIG.format(data=self.data, port=self.port))
        properties = {"home": HOME, "base": self.directory, "conf": self.directory, "data": self.data}
        return [
            "java",
            "-Xms1g",
            "-Xmx2g",
            f"-Djava.io.tmpdir={self.directory}",
            *(f"-Dactivemq.{name}={value}" for name, value in properties.items()),
            "-jar",
            str(HOME / "bin" / "activemq.jar"),
            "start",
            f"xbean:file:{config}",
        ]

    def client(self) -> list[str]:
        return [str(CLIENT)]

    def translate(self, role: str, options: dict[str, object]) -> dict[str, object]:
        return {**options, "proto": "stomp"}

    def set_up(self, queue: str, **options: object) -> None:
        """Queues make themselves."""
