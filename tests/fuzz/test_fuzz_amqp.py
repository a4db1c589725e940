"""Random frames into the AMQP codec, and of AMQP and STOMP into whole brokers, each from a seed.

``scripts/fuzz SECONDS`` runs it for as long as it is told.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.fuzz import stomp_targets
from tests.fuzz.amqp_targets import attack, decisions, frames_and_faults, read_frames

SECONDS = float(os.environ.get("HOMING_FUZZ_SECONDS", "6")) / 3
SEED = int(os.environ.get("HOMING_SEED", "20261121"))


@pytest.mark.parametrize(
    ("target", "make"),
    [(read_frames, frames_and_faults), (attack, decisions), (stomp_targets.attack, stomp_targets.decisions)],
    ids=["codec", "session", "stomp"],
)
def test_nothing_a_client_sends_breaks_it(target: Callable[[bytes], None], make: Callable[[random.Random], bytes]) -> None:
    print(f"seed {SEED}, {SECONDS:g} s; HOMING_SEED={SEED} repeats it")
    end = time.monotonic() + SECONDS
    rounds = 0
    while not rounds or time.monotonic() < end:
        data = make(random.Random(SEED + rounds))
        try:
            target(data)
        except Exception as error:
            error.add_note(f"round {rounds}: {target.__name__}(bytes.fromhex('{data.hex()}'))")
            raise
        rounds += 1
    print(f"{rounds} rounds")
