"""What spark-submit is given, since it runs a file by its path: ``spark-submit analytics/job.py EXPORT --out REPORT``."""

import sys
from pathlib import Path

if __package__ in (None, ""):  # in a checkout; elsewhere the package is installed, or comes with --py-files
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from homing.analytics.__main__ import run

if __name__ == "__main__":
    sys.exit(run())
