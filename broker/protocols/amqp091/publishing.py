"""A publish, from the frame to the queues.

Programs publish the same kind of message again and again, so what follows from exchange, routing key and properties alone is worked out
once (``Pattern``) and kept as long as its route stands; headers and expirations are looked at each time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ...core.amqp.exchange import LateHeaders
from ...core.amqp.search import Search
from ...core.amqp.vhost import prefix_of
from ...core.message import Message
from ...core.routing import Route
from ...errors import Refused
from ...properties import measured
from .codec import AmqpError, PublishEvent, PublishRun
from .codec_methods import NUMBER
from .codec_properties import ContentProperties, read_properties
from .codec_tables import TableError
from .connection import AmqpConnection, Pattern
from .errors import error_of, precondition_failed
from .message_mapping import headers_compared, headers_of, key_list, message_properties, ttl_of, without_bcc

_PUBLISH = NUMBER["basic.publish"]
#: The longest properties that make a pattern, and what one takes beside its names and properties.
_LONGEST: Final = 128
_PATTERN_BYTES: Final = 1500
#: Exchange, routing key, properties.
Way = tuple[str, str, bytes]


def message_of(session: AmqpConnection, event: PublishEvent, pattern: Pattern) -> Message:
    """What is published, as of now."""
    _, address, properties, size, extra, priority, durable, ttl_ms, _, _ = pattern
    now_ms = session.broker.now_ms()
    expires_at_ms = None if ttl_ms is None else now_ms + ttl_ms
    body, producer = event.body or b"", session.producer.name
    return Message(0, address, body, properties, priority, durable, now_ms, expires_at_ms, producer, None, 0, size, extra)


def take_in(session: AmqpConnection, event: PublishEvent) -> tuple[bool, bool] | None:
    """(whether every queue it was meant for took it, whether there was any). Raises AmqpError.

    None: nothing was done; it is for several queues, or its way is long to find, and this turn has no room for that.
    """
    pattern = pattern_of(session, event)
    if pattern is None:
        return None
    route = pattern.route
    if not route.queues:
        return True, False
    if not session.broker.throttle.room_for(route):
        return None
    message = message_of(session, event, pattern)
    session.producer.lasting, session.producer.passing = pattern.lasting, pattern.passing
    taken = session.gathered.publish(route, [message]) if route.plain else None
    if taken == 0:
        return None
    session.gathered.charge(1, message.size, len(route.queues))
    if taken is None:
        session.gathered.hand_over()
        return session.broker.intake.offer(session.producer, route.queues, message), True
    return True, True


def take_in_run(session: AmqpConnection, run: PublishRun) -> int | None:
    """Takes in messages that differ in their bodies alone, where no queue refuses any: how many of the first, as there is room for in
    this turn. None: none, as each is to be looked at by itself.

    Raises AmqpError.
    """
    pattern = pattern_of(session, run)
    if pattern is None:
        return 0
    route, address, properties, size, extra, priority, durable, ttl_ms, lasting, passing = pattern
    if not route.plain:
        return None
    bodies = run.bodies[: session.broker.throttle.room_for(route)]
    if not bodies:
        return 0
    now_ms, producer = session.broker.now_ms(), session.producer.name
    expires_at_ms = None if ttl_ms is None else now_ms + ttl_ms
    messages = [
        Message(0, address, body, properties, priority, durable, now_ms, expires_at_ms, producer, None, 0, size, extra) for body in bodies
    ]
    session.producer.lasting, session.producer.passing = lasting, passing
    number = session.gathered.publish(route, messages)
    if number is not None:
        session.gathered.charge(number, number * (run.size + size), len(route.queues))
    return number


def held_bytes(event: PublishEvent) -> int:
    """What a publish takes until its transaction ends, with its pattern."""
    size = event.size + len(event.properties)
    return size if len(event.properties) <= _LONGEST else size + _PATTERN_BYTES


def pattern_again(session: AmqpConnection, event: PublishEvent, pattern: Pattern) -> Pattern:
    """The pattern of a publish that has one, as things stand now. Raises AmqpError where it may not be published any more."""
    while not pattern.route.stands:
        again = pattern_of(session, event)
        pattern = again or pattern
    return pattern


def pattern_of(session: AmqpConnection, event: PublishEvent | PublishRun) -> Pattern | None:
    """What the publish comes to, as things stand. None: its way is long to find, to go on in a later turn. Raises AmqpError where it may
    not be published.
    """
    key = (event.exchange, event.routing_key, event.properties)
    pattern = session.patterns.found.get(key)
    if pattern is not None and pattern.route.stands:
        return pattern
    pattern = _pattern(session, key)
    if pattern is not None and len(event.properties) <= _LONGEST:
        size = _PATTERN_BYTES + len(key[0]) + len(key[1]) + 2 * len(event.properties) + 8 * len(pattern.route.queues)
        session.patterns.keep(key, pattern._replace(properties_extra=0), size)
    return pattern


def _pattern(session: AmqpConnection, way: Way) -> Pattern | None:
    exchange, key, raw = way
    try:
        properties = read_properties(raw)
        headers = headers_of(properties)
    except TableError as error:
        raise AmqpError(502, f"SYNTAX_ERROR - {error}", _PUBLISH) from None
    _check_user(session, properties)
    cc, bcc = key_list(headers, "CC"), key_list(headers, "BCC")
    if "BCC" in headers:
        raw = without_bcc(properties)
        headers = {name: value for name, value in headers.items() if name != "BCC"}
    ttl_ms = ttl_of(properties)
    route = _route(session, way, LateHeaders(partial(headers_compared, raw)), [*cc, *bcc])
    if route is None:
        return None
    durable = properties.delivery_mode == 2
    priority = _priority(properties, route)
    kept = message_properties(exchange, key, cc, bcc, raw, properties, headers, durable, priority)
    address = prefix_of(session.connection.virtual_host) + (exchange or key)
    size, extra = measured(kept)
    lasts = [queue.durable and (durable or queue.keeps_all) for queue in route.queues]
    return Pattern(route, address, kept, size, extra, priority, durable, ttl_ms, True in lasts, False in lasts)


def _route(session: AmqpConnection, way: Way, headers: LateHeaders, more_keys: list[str]) -> Route | None:
    """None: the search goes on in a later turn, where it stands."""
    exchange, key, _ = way
    if session.search is not None and session.search[0] == way:
        found: Route | Search = session.search[1]
    else:
        try:
            found = session.broker.virtual_hosts.route(session.connection, exchange, key, headers, more_keys)
        except Refused as refusal:
            raise error_of(refusal, _PUBLISH) from None
    if isinstance(found, Route):
        return found
    route = session.broker.throttle.seek(found)
    session.search = None if route is not None else (way, found)
    return route


def _priority(properties: ContentProperties, route: Route) -> int:
    """AMQP's priority where a queue tells priorities apart; elsewhere all are alike."""
    return properties.priority if route.by_priority and properties.priority is not None else route.default_priority


def _check_user(session: AmqpConnection, properties: ContentProperties) -> None:
    if properties.user_id is not None and properties.user_id != session.login:
        raise precondition_failed(f"user_id property set to '{properties.user_id}' but authenticated user was '{session.login}'", _PUBLISH)
