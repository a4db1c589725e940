"""A broker whose messages all leave their rows behind for a while, as only those that leave scattered do (journal/gone.py).
``python -m tests.faults.leaves_rows serve …``
"""

from __future__ import annotations

from unittest.mock import patch

from broker.cli import main
from journal import gone

if __name__ == "__main__":
    with patch.object(gone, "scattered", lambda ordered, gap=1: bool(ordered)):
        main()
