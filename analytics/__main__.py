"""``python -m homing.analytics DUMP --out REPORT``."""

import sys

from .commands.analyze import main

if __name__ == "__main__":
    sys.exit(main())
