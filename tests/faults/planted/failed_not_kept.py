"""A broker with a planted fault: what fails stays in memory. ``python -m tests.faults.planted.failed_not_kept serve …``"""

from __future__ import annotations

from unittest.mock import patch

from homing.broker.cli.main import main
from homing.broker.entries.references import References

if __name__ == "__main__":
    with patch.object(References, "keep_failed", lambda references, failed: None):
        main()
