"""``python -m broker`` in a checkout is the command ``homing``, by its own name, so that no module is loaded twice."""

from homing.broker.cli.main import main

main()
