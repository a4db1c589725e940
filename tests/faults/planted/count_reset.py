"""A broker with a planted fault: a restart forgets delivery counts. ``python -m tests.faults.planted.count_reset serve …``"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.read.recovery import recover


def _without_counts(*arguments: Any) -> Any:
    recovered, *more = recover(*arguments)
    return recovered._replace(references=[each._replace(delivery_count=0, failed=0) for each in recovered.references]), *more


if __name__ == "__main__":
    with patch("homing.journal.journal.recover", _without_counts):
        main()
