"""Events (entries/events.py) as messages: sent to whatever queues are bound to ``homing.events``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ..core.amqp.origin import packed
from ..core.dead_letter import MAX_LENGTH
from ..core.message import AMQP_ORIGIN, DEFAULT_PRIORITY, Message, Properties, lookup
from ..core.queue import Queue
from ..core.reserved import EVENTS
from ..entries.events import Events
from ..properties import measured
from ..topology.amqp.exchanges import Exchanges
from ..topology.resources import makes_room, over_length
from .dead_lettering import DeadLetterOffice
from .publish import Storing

#: AMQP's content properties: content-type application/json, delivery-mode 2.
_JSON: Final = b"\x90\x00\x10application/json\x02"


class EventMessages:
    def __init__(self, events: Events, exchanges: Exchanges, office: DeadLetterOffice, storing: Storing, now_ms: Callable[[], int]) -> None:
        """``exchanges``: of the virtual host ``/``."""
        self._events = events
        self._exchanges = exchanges
        self._office = office
        self._storing = storing
        self._now_ms = now_ms

    def send(self) -> None:
        """Once a turn in which some wait."""
        waiting, self._events.waiting = self._events.waiting, []
        for name, content in waiting:
            message = self._message(name, content)
            bound = [*self._events.address.route(lambda sent=message: lookup(sent)), *self._exchanges.route(EVENTS, name, {}).queues]  # type: ignore[misc]
            queues = [queue for queue in dict.fromkeys(bound) if self._makes_room(queue)]
            if queues:
                self._storing.store(message, queues)

    def _message(self, name: str, content: dict[str, Any]) -> Message:
        properties: Properties = {key: value for key, value in content.items() if key in ("event", "subject", "queue", "fault")}
        properties[AMQP_ORIGIN] = packed(EVENTS, name, [], _JSON)
        body = json.dumps(content, ensure_ascii=False).encode()
        now_ms, (size, extra) = self._now_ms(), measured(properties)
        return Message(0, EVENTS, body, properties, DEFAULT_PRIORITY, True, now_ms, producer="homing", properties_size=size, extra=extra)

    def _makes_room(self, queue: Queue) -> bool:
        """The oldest event of a queue that is full goes; where that is no event, this one does not come."""
        if not over_length(queue, 1) or makes_room(queue):
            return True
        oldest = queue.pending.oldest_of_lowest_priority()
        if oldest is None or oldest.message.address != EVENTS:
            return False
        self._office.dead_letter(oldest, MAX_LENGTH)
        return True
