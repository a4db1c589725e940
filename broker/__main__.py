"""``python -m broker`` is the command ``homing``."""

from broker.cli import main

main()
