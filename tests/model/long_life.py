"""Lives in which hardly anything fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from homing.broker.steps import Steps
from tests import inside
from tests.model.life import AT_ONCE, Life
from tests.model.world import Client, World

WINDOW = 3


class LongLife(Life):
    def __init__(self, settings: dict[str, Any] | None = None, **limits: Any) -> None:
        super().__init__()
        limits = {"window_messages": WINDOW, "window_scheduled": 2, **limits}
        self.world = World({"#": {**AT_ONCE, **(settings or {})}}, **limits)

    def run(self, steps: Steps[Any]) -> Any:
        """Long work to its end, with the disk in between."""
        value = self.world.run(steps)
        self.world.commit()
        return value

    def acknowledge_all(self, client: Client, look: Callable[[], None] = lambda: None) -> list[str]:
        """What comes until nothing comes any more, each acknowledged as it comes."""
        keys: list[str] = []
        (consumer,) = client.consumers.values()
        while True:
            self.world.commit()
            self.world.check_balance()
            look()
            if not (came := self.keys()):
                return keys
            keys += came
            inside.settlement(self.world.broker).acknowledge(consumer, list(consumer.unsettled.values()))


def numbers(count: int, start: int = 0) -> list[str]:
    return [f"m{number}" for number in range(start, start + count)]
