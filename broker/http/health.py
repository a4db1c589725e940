"""What the process is doing, for whoever asks whether it lives and whether to send clients to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from ..answers.administration import ClusterHealth
from ..answers.parts import Waiting
from ..management.statistics import WHOLE

State = Literal["recovering", "rebuilding", "standby", "ready", "stopping", "failed"]


class OfCluster(Protocol):
    """What a node knows of its cluster."""

    log_away: bool

    def health(self) -> ClusterHealth: ...


class Health:
    """``state`` is set by the server. A disk that is full, or hangs, and producers that wait, leave it ready: consumers must come."""

    def __init__(self) -> None:
        self.state: State = "recovering"
        #: None: there is none.
        self.cluster: OfCluster | None = None
        self._broker: tuple[Callable[[], bool], Callable[[], list[Waiting]]] | None = None

    def serves(self, disk_degraded: Callable[[], bool], producers_wait: Callable[[], list[Waiting]]) -> None:
        """The broker is ready. ``producers_wait``: see management.statistics.waiting."""
        self._broker = disk_degraded, producers_wait
        self.state = "ready"

    @property
    def ready(self) -> bool:
        """Clients may come: a standby passes them on to whoever leads."""
        return self.state in ("ready", "standby") and not self._log_away

    def describe(self) -> dict[str, Any]:
        disk_degraded, producers_wait = self._broker if self.ready and self._broker is not None else (bool, list)
        degraded = ["disk"] if disk_degraded() else []
        waits = producers_wait()
        # Whoever asks has not logged in, and is told no names of queues and users.
        told = [{**each, "why": each["why"] if each["limit"] in WHOLE else None} for each in waits]
        said = {"state": self._shown(), "degraded": degraded, "producers_wait": told}
        return said if self.cluster is None else {**said, "cluster": self.cluster.health()}

    @property
    def _log_away(self) -> bool:
        return self.cluster is not None and self.cluster.log_away

    def _shown(self) -> str:
        if self._log_away and self.state in ("recovering", "rebuilding", "standby", "ready"):
            return "log-away"
        return "leading" if self.state == "ready" and self.cluster is not None else self.state
