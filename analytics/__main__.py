"""``python -m analytics DUMP --out REPORT``."""

import sys

from analytics.job import main

if __name__ == "__main__":
    sys.exit(main())
