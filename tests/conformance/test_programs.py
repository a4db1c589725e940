"""Programs that ours and a real RabbitMQ play alike, but for the differences that docs/interoperability.md tells.

What RabbitMQ 3.10 says is kept in programs/rabbitmq_3_10.json. ``scripts/check-system rabbitmq`` has it play too, and checks the
recording; with ``HOMING_RECORD=1`` it writes it anew.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.amqp_support import AMQP, amqp_port
from tests.amqp_wire import Wire
from tests.conformance import rabbitmq
from tests.conformance.programs import PROGRAMS, Stage
from tests.conformance.programs.differences import DIFFERENCES
from tests.pauses import TRIES, tried_again
from tests.process import ROOT, Server

RECORDING = Path(__file__).parent / "programs" / "rabbitmq_3_10.json"
#: What every dead letter of ours says beyond RabbitMQ 3.10.
ADDED = ("_AMQ_", "x-last-death-")
Outcomes = dict[str, Any]

pytestmark = pytest.mark.timeout(150)


def play(port: int, name: str, suffix: str = "") -> Any:
    stage = Stage(port, name + suffix)
    try:
        return stage.without_prefix(PROGRAMS[name](stage))
    except Exception as error:
        return f"broke off: {error!r}"
    finally:
        stage.close()


def play_all(port: int) -> Outcomes:
    """Several at a time, because most wait most of the time."""
    with ThreadPoolExecutor(16) as pool:
        outcomes = dict(zip(PROGRAMS, pool.map(lambda name: play(port, name), PROGRAMS), strict=True))
    # What broke off may only have been disturbed; on its own it has to end.
    return {name: play(port, name) if str(outcome).startswith("broke off") else outcome for name, outcome in outcomes.items()}


_numbers = itertools.count(1)


class Ours(NamedTuple):
    port: int
    outcomes: Outcomes

    def alone(self, name: str) -> Any:
        """Played once more, by itself and with other names."""
        return play(self.port, name, f".alone{next(_numbers)}")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    server = Server(tmp_path_factory.mktemp("homing"), {**AMQP, "address-settings": {}})
    try:
        server.start()
        yield Ours(amqp_port(server), play_all(amqp_port(server)))
    finally:
        server.close()


@pytest.fixture(scope="module")
def recorded() -> Outcomes:
    found: Outcomes = json.loads(RECORDING.read_text())
    return found


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, recorded: Outcomes) -> Iterator[Outcomes]:
    """As recorded; where a real one is asked for and is a 3.10, of that."""
    if not rabbitmq.asked_for():
        yield recorded
        return
    server = rabbitmq.RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    try:
        server.start()
        wire = Wire(server.port)
        version = wire.start.server_properties["version"]
        wire.close()
        if not version.startswith("3.10."):
            yield recorded
            return
        outcomes = play_all(server.port)
        # What a pause of the machine changed is as recorded when it is played alone.
        for number in range(1, TRIES):
            changed = [name for name, said in outcomes.items() if recorded.get(name) != said]
            outcomes |= {name: play(server.port, name, f".alone{number}") for name in changed}
        if os.environ.get("HOMING_RECORD"):
            RECORDING.write_text(json.dumps(outcomes, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        yield outcomes
    finally:
        server.close()


def apart(ours: Any, theirs: Any, place: str = "") -> dict[str, Any]:
    """Where they differ -> what ours says there, None where it says nothing."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        # What ours adds is left out.
        names = [name for name in {**ours, **theirs} if not name.startswith(ADDED)]
        return {where: said for name in names for where, said in apart(ours.get(name), theirs.get(name), f"{place}[{name}]").items()}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return {where: said for number, pair in pairs for where, said in apart(*pair, f"{place}[{number}]").items()}
    return {} if ours == theirs else {place: ours}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ours_says_what_rabbitmq_says(name: str, ours: Ours, theirs: Outcomes) -> None:
    assert not str(theirs[name]).startswith("broke off"), theirs[name]
    expected = {place: said for place, said, _ in DIFFERENCES.get(name, [])}
    # Programs are about times to live, heartbeats and silence too, which a pause of the machine changes: then it has to be right alone.
    if apart(ours.outcomes[name], theirs[name]) != expected:

        @tried_again
        def alone() -> None:
            assert apart(ours.alone(name), theirs[name]) == expected

        alone()


def test_the_recording_is_what_rabbitmq_says(recorded: Outcomes, theirs: Outcomes) -> None:
    assert {name: said for name, said in recorded.items() if theirs.get(name) != said} == {}


def test_every_difference_is_told(recorded: Outcomes) -> None:
    reported = " ".join((ROOT / "docs" / "interoperability.md").read_text().split())
    for name, differences in DIFFERENCES.items():
        assert name in PROGRAMS
        for _, _, sentence in differences:
            assert sentence in reported, sentence
    assert set(recorded) == set(PROGRAMS), "the recording is of other programs"
