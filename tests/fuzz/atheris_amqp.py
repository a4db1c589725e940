"""The same targets guided by coverage, where atheris is installed: ``python -m tests.fuzz.atheris_amqp codec CORPUS -max_total_time=600``.

CORPUS is a directory; inputs to begin with are written into it, and those that reach something new are kept there.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from pathlib import Path

SEEDS = 200


def main() -> None:
    atheris = import_module("atheris")
    with atheris.instrument_imports(
        include=["homing.broker.protocols.amqp091", "homing.broker.topology.amqp.exchanges", "homing.broker.topology.amqp.queues"]
    ):
        targets = import_module("tests.fuzz.amqp_targets")
    target, make = {
        "codec": (targets.read_frames, targets.frames_and_faults),
        "session": (targets.attack, targets.decisions),
    }[sys.argv.pop(1)]
    corpus = Path(sys.argv[1])
    for number in range(SEEDS):
        (corpus / str(number)).write_bytes(make(random.Random(number)))
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
