"""A publish, from the frame to the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.message import Message
from broker.core.queue import Queue
from broker.errors import Refused
from broker.exchanges import Route
from broker.protocols.amqp091.codec import AmqpError, PublishEvent
from broker.protocols.amqp091.codec_methods import NUMBER
from broker.protocols.amqp091.codec_properties import ContentProperties
from broker.protocols.amqp091.codec_tables import TableError
from broker.protocols.amqp091.contents import headers_of, key_list, message_properties, new_message, ttl_of, without_bcc
from broker.protocols.amqp091.replies import error_of, precondition_failed

if TYPE_CHECKING:
    from broker.protocols.amqp091.session import AmqpSession

_PUBLISH = NUMBER["basic.publish"]


def take_in(session: AmqpSession, event: PublishEvent) -> tuple[bool, bool]:
    """(whether every queue it was meant for took it, whether there was any). Raises AmqpError."""
    raw, body = event.properties, event.body or b""
    try:
        properties = session.reader_of_properties.read(raw)
        headers = headers_of(properties)
    except TableError as error:
        raise AmqpError(502, f"SYNTAX_ERROR - {error}", _PUBLISH) from None
    _check_user(session, properties)
    cc = bcc = []
    if headers:
        cc, bcc = key_list(headers, "CC"), key_list(headers, "BCC")
        if "BCC" in headers:
            raw = without_bcc(properties)
    ttl_ms = ttl_of(properties)
    try:
        route = session.route(event.exchange, event.routing_key, headers, [*cc, *bcc])
    except Refused as refusal:
        raise error_of(refusal, _PUBLISH) from None
    if not route.queues:
        return True, False
    durable = properties.delivery_mode == 2
    now_ms = session.broker.now_ms()
    message = new_message(
        event.exchange or event.routing_key,
        body,
        message_properties(event.exchange, event.routing_key, cc, raw, properties, headers, durable),
        _priority(properties, route),
        durable,
        None if ttl_ms is None else now_ms + ttl_ms,
        session.producer.name,
    )
    session.turn.charge(message.size)
    if route.plain:
        session.turn.arrive(route.queues[0], message)
        return True, True
    return _store(session, message, route.queues), True


def _priority(properties: ContentProperties, route: Route) -> int:
    """AMQP's priority where a queue tells priorities apart; elsewhere all are alike."""
    if route.max_priority is None or properties.priority is None:
        return route.default_priority
    return min(properties.priority, route.max_priority)


def _check_user(session: AmqpSession, properties: ContentProperties) -> None:
    if properties.user_id is not None and properties.user_id != session.login:
        raise precondition_failed(f"user_id property set to '{properties.user_id}' but authenticated user was '{session.login}'", _PUBLISH)


def _store(session: AmqpSession, message: Message, queues: list[Queue]) -> bool:
    """Queues with limits: those that are full and say so refuse it, the others take it."""
    session.turn.hand_over()
    intake = session.broker.intake
    willing = [queue for queue in queues if intake.admits(queue, message)]
    if willing:
        intake.store(message, willing)
    return len(willing) == len(queues)
