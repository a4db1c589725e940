"""Whole hostile sessions beside clients that keep account, on brokers that are killed: nothing of theirs is lost, doubled or torn, and no
broker ends by itself, logs an error or does not start again. ``scripts/fuzz --sessions`` does the same for as long as it is told.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from homing.broker.protocols.native.codec import FrameDecoder, Op, encode
from tests.fuzz.sessions.campaign import run_once
from tests.fuzz.sessions.oddities import EXTREMES, bend

SEED = 20261122


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_hostile_sessions_end_and_mislead_no_broker(tmp_path: Path) -> None:
    outcome = run_once(tmp_path / "run", SEED, rounds=2, clients=5, most_ms=2000)
    print(outcome.figures, outcome.guests.acts)
    assert not outcome.violations, "\n".join(map(str, outcome.violations[:20]))
    # Whether it did anything at all; how much is the machine's.
    assert outcome.guests.sent > 100
    assert outcome.guests.sessions["native"] > 3
    assert outcome.guests.sessions["AMQP"] > 3
    assert len(outcome.guests.acts) > 10
    assert outcome.figures["sends confirmed"] > 20


def test_every_oddity_gets_onto_the_wire() -> None:
    chance = random.Random(SEED)
    for value in EXTREMES:
        assert encode([int(Op.CALL), 1, "peek", {"after": value}])
    fields = [int(Op.CALL), 1, "peek", {"queue": "a", "after": [-4, 5]}]
    bent = [bend(chance, fields) for _ in range(300)]
    assert sum(each != fields for each in bent) > 250
    assert fields == FrameDecoder().feed(encode(fields))[0]  # what is bent is a copy
