"""A broker whose messages all leave their rows behind for a while, as only those that leave far apart do (journal/upkeep/tombstones.py).
``python -m tests.faults.leaves_rows serve …``
"""

from __future__ import annotations

from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.upkeep import tombstones

if __name__ == "__main__":
    with patch.object(tombstones, "far_apart", lambda ordered, gap=1: bool(ordered)):
        main()
