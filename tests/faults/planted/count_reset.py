"""A broker with a planted fault: a restart forgets delivery counts. ``python -m tests.faults.planted.count_reset serve …``"""

from __future__ import annotations

from unittest.mock import patch

from homing.broker.broker import Broker
from homing.broker.cli.main import main
from homing.broker.core.message import Message
from homing.broker.process import recovery
from homing.journal.contract import ReferenceRecord

_reference = recovery._reference


def _without_counts(broker: Broker, record: ReferenceRecord, messages: dict[int, Message]) -> None:
    _reference(broker, record._replace(delivery_count=0, failed=0), messages)


if __name__ == "__main__":
    with patch.object(recovery, "_reference", _without_counts):
        main()
