"""A node whose log is trimmed as soon as it has little more than nothing. ``python -m tests.faults.kill_loop.small_log serve …``"""

from __future__ import annotations

from unittest.mock import patch

from homing.broker.cli.main import main
from homing.journal.replication import postgresql

TABLE_BYTES = 64 << 10

if __name__ == "__main__":
    with patch.object(postgresql, "_TABLE_BYTES", TABLE_BYTES):
        main()
