"""``python -m homing.analytics DUMP --out REPORT``."""

import sys


def run() -> int:
    """The command line; 1 also where a library is missing."""
    try:
        from .commands.analyze import main

        return main()
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        print(f"no-analytics: this needs {package}, which is not installed: pip install 'homing[analytics]'", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run())
