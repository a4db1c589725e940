"""Reports that come when their delivery is acknowledged already: which queue's, and which message it was (docs/interoperability.md)."""

from __future__ import annotations

from typing import Final

from ...core.amqp.vhost import prefix_of
from ...core.message import DEFAULT_PRIORITY, Message
from ...core.queue import Queue
from ...core.settled_report import SettledReport
from ...properties import measured
from .codec_methods import NUMBER
from .codec_properties import read_properties, write_properties
from .codec_tables import split_table
from .connection import AmqpConnection
from .errors import precondition_failed
from .message_mapping import headers_of, message_properties
from .reports import Settled

#: Consumers of a channel that are remembered when they have ended: a worker that stops cancels them before its last tasks end.
_REMEMBERED: Final = 100
#: The headers of the message that failed, in a header of its report.
_HEADERS: Final = "message_headers"
_NEEDS: Final = "a failure report of what was settled names its consumer in the header consumer_tag"


class ConsumerQueues:
    """By the tags of a channel's consumers: the names of their queues."""

    def __init__(self, session: AmqpConnection) -> None:
        self._session = session
        self._queues: dict[str, str] = {}

    def consumes(self, tag: str, queue: str) -> None:
        self._queues.pop(tag, None)
        self._queues[tag] = queue
        if len(self._queues) > _REMEMBERED:
            del self._queues[next(iter(self._queues))]

    def failed(self, settled: Settled) -> None:
        """Raises AmqpError or Refused. A queue that is gone has no failures any more."""
        session, headers = self._session, settled.headers
        name = self._queues.get(str(headers.get("consumer_tag")))
        if name is None:
            raise precondition_failed(_NEEDS, NUMBER["basic.publish"])
        queue = session.broker.post_office.find_queue(name)
        if queue is None:
            return
        whole = "routing_key" in headers and settled.event.body is not None
        again, succeeded = headers.get("again") is True, headers.get("succeeded") is True
        told = SettledReport(settled.report, _message(session, settled, queue), whole, again, succeeded, settled.before)
        session.broker.settled_reports.report(session.connection, session.next_consumer(), queue, told)


def _message(session: AmqpConnection, settled: Settled, queue: Queue) -> Message:
    """The one that failed: its body and properties are the report's, its headers stand in one of the report's. Where it was sent to, is
    said only along with it."""
    event, said = settled.event, settled.headers
    properties = read_properties(event.properties)
    own = split_table(properties.headers or b"").get(_HEADERS, b"")
    # Behind the type and the length.
    properties = properties._replace(headers=own[5:] if own[:1] == b"F" else None, expiration=None, user_id=None)
    raw = write_properties(properties)
    exchange, key = str(said.get("exchange", "")), str(said.get("routing_key", ""))
    durable, priority = properties.delivery_mode == 2, DEFAULT_PRIORITY if properties.priority is None else properties.priority
    kept = message_properties(exchange, key, [], [], raw, properties, headers_of(properties), durable, priority)
    size, extra = measured(kept)
    address = prefix_of(session.connection.virtual_host) + (exchange or key) if exchange or key else queue.address
    now_ms = session.broker.now_ms()
    return Message(0, address, event.body or b"", kept, priority, durable, now_ms, None, session.producer.name, None, 0, size, extra)
