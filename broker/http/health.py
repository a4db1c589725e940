"""What the process is doing, for whoever asks whether it lives and whether to send clients to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

State = Literal["recovering", "ready", "stopping", "failed"]


class Health:
    """``state`` is set by the server. A disk that is full, or hangs, leaves the broker ready: consumers must come to drain it."""

    def __init__(self) -> None:
        self.state: State = "recovering"
        self.disk_degraded: Callable[[], bool] = lambda: False

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    def describe(self) -> dict[str, Any]:
        degraded = ["disk"] if self.ready and self.disk_degraded() else []
        return {"state": self.state, "degraded": degraded}
