"""Whatever clients do, the broker keeps to ``memory-limit``. At other limits, and with what others notice: scripts/check-memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.faults.hostile import Raw
from tests.faults.memory.attacks import ATTACKS, pump, unacked_gets
from tests.faults.memory.campaign import MIB, purge, resident, statistics
from tests.process import Server

#: Those that need no more than a few seconds, one after the other on one broker.
SHORT = {
    name: ATTACKS[name].clients for name in ("half-messages", "amqp-transactions", "stomp-transactions", "native-frames", "properties")
}
SHORT |= {"unacked-gets": partial(unacked_gets, size=16_000)}
LIMIT = 64 * MIB


@pytest.mark.timeout(180)
def test_no_client_leads_past_the_memory_limit(tmp_path: Path) -> None:
    server = Server(tmp_path, {"amqp": {"port": 0}, "stomp": {"port": 0}, "broker": {"memory-limit": "64MiB"}}).start()
    try:
        with Raw(server.url) as watcher:
            for name, attack in SHORT.items():
                purge(watcher)
                clients = attack(server, LIMIT)
                sent = pump(clients, 20.0, 3 * LIMIT, lambda: True)
                said = statistics(watcher)
                assert sent or name.startswith(("half", "unacked")), name
                assert said["memory_bytes"] == sum(said["memory"].values())
                assert said["memory_bytes"] <= 1.25 * LIMIT, name
                assert resident(server, "VmHWM") <= 1.25 * LIMIT + 100 * MIB, name
                for client in clients:
                    client.socket.close()  # in the middle of a frame nobody says goodbye
        assert server.stop() == 0
    finally:
        server.close()
