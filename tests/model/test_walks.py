"""The walks of docs/architecture.md are those that messages make: each function named there is called, in that order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from homing.broker.protocols.native.codec import MAGIC, PROTOCOL_VERSION, AckType, Op
from homing.broker.protocols.native.session import NativeOptions, NativeSession
from tests.model.world import World

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text().partition("## Four walks")[2].partition("\n## ")[0]


class Silent:
    """Output that nobody reads."""

    writable = True
    place = ""

    def write(self, data: bytes) -> None: ...

    def end(self) -> None: ...

    def leave(self) -> None: ...

    def opened(self, heartbeat_ms: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def walk_of(title: str) -> list[str]:
    """The first name of each line of code in the walk's list."""
    steps = PAGE.partition(f"**{title}**")[2].partition("\n**")[0]
    return [name for line in re.findall(r"^\d+\. (.*)$", steps, re.MULTILINE) for name in re.findall(r"`([\w.]+)`", line.partition(":")[0])]


def called(*steps: Callable[[], object]) -> Iterator[str]:
    names: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        for step in steps:
            step()
    finally:
        sys.setprofile(None)
    return iter(names)


@pytest.mark.plain
def test_messages_walk_as_the_page_says() -> None:
    world = World({"#": {"redelivery-delay": "1s"}})
    session = NativeSession(
        world.broker, Silent(), NativeOptions("b", "test"), lambda user, password, done: done("user"), lambda *call: False
    )

    def say(*frame: Any) -> None:
        session.receive([[int(frame[0]), *frame[1:]]])

    def turn() -> None:
        world.broker.drain()

    say(Op.HELLO, MAGIC, PROTOCOL_VERSION, {"client_id": "c" * 32})
    say(Op.PRODUCER, 1, 1, "orders")
    say(Op.SUBSCRIBE, 2, 1, "orders", {"prefetch": 9})
    world.commit()
    walks = {
        "Send": called(lambda: say(Op.SEND_BODIES, 1, 1, [], [b"one", b"two"]), world.journal.commit),
        "Receive": called(turn),
        "Acknowledge": called(lambda: say(Op.ACK, 1, int(AckType.STANDARD), [1, 1])),
        "Fail": called(lambda: say(Op.ACK, 1, int(AckType.REDELIVERED), [2, 2], {"reason": "busy"}), world.journal.commit),
    }
    for title, names in walks.items():
        steps = walk_of(title)
        assert len(steps) > 5
        for step in steps:
            assert step in names, f"{title}: {step} is not called, or not after the one before it"


def test_the_page_says_how_long_its_walks_are() -> None:
    said = re.search(r"a send passes (\d+) functions, an acknowledgement (\d+), a failure (\d+) and a delivery (\d+)", PAGE)
    assert said is not None
    assert [int(number) for number in said.groups()] == [len(walk_of(title)) for title in ("Send", "Acknowledge", "Fail", "Receive")]
