"""``python -m homing`` is the command ``homing``."""

from .broker.cli.main import main

main()
