"""What was counted since the start, for metrics and commands."""

from __future__ import annotations

from ..core.counts import Figures
from ..core.memory import Memory
from ..core.scheduled import Schedule
from ..entries.enqueuing import Enqueuing
from ..entries.events import Events
from ..entries.references import References
from .flow_control import FlowControl
from .parking import Parking


class Statistics:
    def __init__(
        self,
        memory: Memory,
        references: References,
        enqueuing: Enqueuing,
        events: Events,
        schedule: Schedule,
        parking: Parking,
        flow: FlowControl,
    ) -> None:
        self._memory = memory
        self._references = references
        self._enqueuing = enqueuing
        self._events = events
        self._schedule = schedule
        self._parking = parking
        self._flow = flow

    def figures(self) -> Figures:
        return Figures(
            self._memory.limit,
            self._references.dead_lettered,
            self._references.attempts,
            self._enqueuing.lateness_ms,
            self._events.describe(),
            self._schedule.next_ms(),
            len(self._parking.staying),
            self._flow.held_back(),
            self._flow.levels(),
        )
