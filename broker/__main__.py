"""``python -m homing`` is the command ``homing``."""

from .cli.main import main

main()
