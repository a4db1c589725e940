"""The command ``homing``, and ``python -m homing``."""

import sys

#: As shells have it of a process that SIGINT has ended.
INTERRUPTED = 130


def main() -> None:
    """Ctrl-C while Python still imports what commands are made of ends them as it does later: without a traceback."""
    try:
        from .broker.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
