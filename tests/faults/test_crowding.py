"""One client sends to very many queues; the broker lives, and others' messages are confirmed. At length: scripts/check-neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.crowding.attacks import Amqp, Attack, Native
from tests.faults.crowding.campaign import crowd


@pytest.mark.timeout(120)
@pytest.mark.parametrize("attack", [Native(150, 200), Amqp(100, 150, 59, 2)], ids=["native", "amqp"])
def test_the_broker_and_its_other_clients_live_while_one_sends_to_many_queues(attack: Attack, tmp_path: Path) -> None:
    """With so few numbers reserved at a time that they run out again and again."""
    seen = crowd(attack, 60, tmp_path, {"journal": {"id-block": 1024}})
    assert seen.exit_code == 0
    assert seen.confirmed == attack.messages * attack.connections
    assert seen.confirms > 3
