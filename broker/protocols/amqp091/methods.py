"""The methods of a channel other than publish and acknowledge: what each does, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final

from ...core.amqp.exchange import Destination
from ...core.amqp.keys import is_text
from ...core.amqp.vhost import REPLY_TO, local_name
from ...core.queue import Queue
from ...errors import Refused
from ...topology.amqp.exchanges import Exchanges
from .channel import Channel
from .codec import AmqpError
from .codec_methods import NUMBER
from .codec_tables import Fields, Table, split_table
from .errors import not_implemented, precondition_failed
from .getting import get

#: A queue or exchange name in AMQP has at most this many bytes, which the short string sees to.
_Values = list[Any]


def _reply(channel: Channel, no_wait: bool, name: str, *values: object) -> None:
    if not no_wait:
        channel.answer_when_safe(name, *values)


def without_line_feeds(name: str) -> str:
    """A name as the methods of queues and exchanges read it, but for what only looks into a queue: as with RabbitMQ."""
    return name.replace("\r", "").replace("\n", "") if "\n" in name or "\r" in name else name


def _arguments(table: Fields) -> Fields:
    """Arguments as the journal can keep them. Raises AmqpError for names that it cannot."""
    kept: Fields = _storable(table)
    return kept


def _of_binding(table: Table) -> tuple[Fields, dict[str, bytes]]:
    """The arguments, and the same as they came."""
    return _arguments(table), split_table(table.content)


def _storable(value: object) -> Any:
    if isinstance(value, dict):
        if not all(map(is_text, value)):
            raise precondition_failed("the name of an argument is not UTF-8")
        return {name: _storable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, Decimal):
        return str(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _queue(channel: Channel, name: str) -> Queue:
    """The queue of that name; an empty one is the channel's last. Raises Refused."""
    if not name and not channel.last_queue:
        raise AmqpError(404, "NOT_FOUND - no previously declared queue")
    return channel.session.broker.declared_queues.find(channel.session.connection, name or channel.last_queue)


def _queue_to_remove(channel: Channel, name: str) -> Queue | None:
    """The queue of that name; None where it is not there, which as with RabbitMQ is as good as deleted, or unbound."""
    try:
        return _queue(channel, name)
    except Refused as refusal:
        if refusal.code != "not-found":
            raise
        return None


def _exchanges(channel: Channel) -> Exchanges:
    return channel.session.broker.virtual_hosts.exchanges_of(channel.session.connection)


# -- exchanges ---------------------------------------------------------------------------------------------------------


def _exchange_declare(channel: Channel, values: _Values) -> None:
    _, name, kind, passive, durable, auto_delete, internal, no_wait, arguments = values
    name = without_line_feeds(name)
    exchanges, connection = _exchanges(channel), channel.session.connection
    if passive:
        if not name:
            raise AmqpError(403, "ACCESS_REFUSED - operation not permitted on the default exchange")
        exchanges.look_up(connection, name)
    else:
        exchanges.declare(
            connection, name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=_arguments(arguments)
        )
    _reply(channel, no_wait, "exchange.declare-ok")


def _exchange_delete(channel: Channel, values: _Values) -> None:
    _, name, if_unused, no_wait = values
    _exchanges(channel).delete(channel.session.connection, without_line_feeds(name), if_unused)
    _reply(channel, no_wait, "exchange.delete-ok")


def _exchange_bind(channel: Channel, values: _Values) -> None:
    _, destination, source, key, no_wait, arguments = values
    destination, source = without_line_feeds(destination), without_line_feeds(source)
    _exchanges(channel).bind(channel.session.connection, source, Destination(destination, False), key, *_of_binding(arguments))
    _reply(channel, no_wait, "exchange.bind-ok")


def _exchange_unbind(channel: Channel, values: _Values) -> None:
    _, destination, source, key, no_wait, arguments = values
    destination, source = without_line_feeds(destination), without_line_feeds(source)
    _exchanges(channel).unbind(channel.session.connection, source, Destination(destination, False), key, *_of_binding(arguments))
    _reply(channel, no_wait, "exchange.unbind-ok")


# -- queues ------------------------------------------------------------------------------------------------------------


def _queue_declare(channel: Channel, values: _Values) -> None:
    _, name, passive, durable, exclusive, auto_delete, no_wait, arguments = values
    session, name = channel.session, without_line_feeds(name)
    if name == REPLY_TO or name.startswith(REPLY_TO + "."):
        # How a server of requests asks whether the client still waits for its answer.
        session.broker.declared_queues.check_reply_queue(session.connection, name)
        _reply(channel, no_wait, "queue.declare-ok", name, 0, 1)
        return
    if passive:
        # The name as it is: only here, as with RabbitMQ, an empty one is not the channel's last queue.
        queue = session.broker.declared_queues.look_up(session.connection, name)
    else:
        queue = session.broker.declared_queues.declare(
            session.connection, name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=_arguments(arguments)
        )
    channel.last_queue = local_name(queue.name)
    session.broker.dispatcher.serve(queue)
    consumers = len(session.broker.declared_queues.all_consumers(queue))
    _reply(channel, no_wait, "queue.declare-ok", channel.last_queue, queue.ready + len(queue.parked), consumers)


def _queue_bind(channel: Channel, values: _Values) -> None:
    _, name, source, key, no_wait, arguments = values
    name, source = without_line_feeds(name), without_line_feeds(source)
    queue = _queue(channel, name)
    # Neither queue nor key: the key is the queue's name too.
    key = local_name(queue.name) if not name and not key else key
    to = Destination(local_name(queue.name), True)
    _exchanges(channel).bind(channel.session.connection, source, to, key, *_of_binding(arguments))
    _reply(channel, no_wait, "queue.bind-ok")


def _queue_unbind(channel: Channel, values: _Values) -> None:
    _, name, source, key, arguments = values
    name, source = without_line_feeds(name), without_line_feeds(source)
    queue = _queue_to_remove(channel, name)
    if queue is not None:
        key = local_name(queue.name) if not name and not key else key
        to = Destination(local_name(queue.name), True)
        _exchanges(channel).unbind(channel.session.connection, source, to, key, *_of_binding(arguments))
    _reply(channel, False, "queue.unbind-ok")


def _queue_purge(channel: Channel, values: _Values) -> None:
    _, name, no_wait = values
    session, queue = channel.session, _queue(channel, name)
    session.broker.dispatcher.serve(queue)
    steps = session.broker.contents.purge(session.connection, queue)

    def purged(count: int) -> None:
        if not channel.closed:
            _reply(channel, no_wait, "queue.purge-ok", count)
        session.go_on()

    session.defer()
    session.broker.work.begin(session.broker.step_times.of("queue.purge", steps), purged, session.broken)


def _queue_delete(channel: Channel, values: _Values) -> None:
    _, name, if_unused, if_empty, no_wait = values
    broker = channel.session.broker
    queue = _queue_to_remove(channel, without_line_feeds(name))
    if queue is None:
        _reply(channel, no_wait, "queue.delete-ok", 0)
        return
    broker.dispatcher.serve(queue)
    check = partial(broker.declared_queues.check_delete, queue, if_unused, if_empty)
    count = queue.ready + len(queue.parked)
    broker.removal.delete(channel.session.connection, queue, lambda: _reply(channel, no_wait, "queue.delete-ok", count), check)


# -- basic -------------------------------------------------------------------------------------------------------------


def _qos(channel: Channel, values: _Values) -> None:
    size, count, for_channel = values
    if size:
        raise not_implemented("prefetch_size!=0", NUMBER["basic.qos"])
    channel.qos(count, for_channel)
    channel.answer("basic.qos-ok")


def _consume(channel: Channel, values: _Values) -> None:
    _, name, tag, _, no_ack, exclusive, no_wait, arguments = values
    session = channel.session
    asked = session.broker.declared_queues.read_consumer_arguments(session.connection, name or channel.last_queue, _arguments(arguments))
    tag = channel.consume(_reply_queue(channel, no_ack) if name == REPLY_TO else _queue(channel, name), tag, no_ack, exclusive, asked)
    if not no_wait:
        channel.answer("basic.consume-ok", tag)


def _reply_queue(channel: Channel, no_ack: bool) -> Queue:
    if not no_ack:
        raise precondition_failed("reply consumer cannot acknowledge", NUMBER["basic.consume"])
    if channel.publisher.reply_queue:
        raise precondition_failed("reply consumer already set", NUMBER["basic.consume"])
    queue = channel.session.broker.declared_queues.make_reply_queue(channel.session.connection)
    channel.publisher.reply_queue = local_name(queue.name)
    return queue


def _cancel(channel: Channel, values: _Values) -> None:
    tag, no_wait = values
    channel.cancel(tag)
    if not no_wait:
        channel.answer("basic.cancel-ok", tag)


def _get(channel: Channel, values: _Values) -> None:
    _, name, no_ack = values
    get(channel, _queue(channel, name), no_ack)


def _nack(channel: Channel, values: _Values) -> None:
    tag, multiple, requeue = values
    channel.refuse(tag, multiple, requeue)


def _recover(channel: Channel, values: _Values) -> None:
    if not values[0]:
        raise not_implemented("requeue=false", NUMBER["basic.recover"])
    channel.recover()
    session = channel.session
    session.broker.settling.when_over(session.connection.name, partial(channel.answer, "basic.recover-ok"))
    session.settle_first()


def _recover_async(channel: Channel, values: _Values) -> None:
    if not values[0]:
        raise not_implemented("requeue=false", NUMBER["basic.recover-async"])
    channel.recover()
    channel.session.settle_first()


# -- the rest ----------------------------------------------------------------------------------------------------------


def _confirm_select(channel: Channel, values: _Values) -> None:
    channel.select_confirms()
    if not values[0]:
        channel.answer("confirm.select-ok")


def _tx_select(channel: Channel, values: _Values) -> None:
    channel.select_transactions()
    channel.answer("tx.select-ok")


def _tx_commit(channel: Channel, values: _Values) -> None:
    """What comes behind it finds the messages where they went, which is so once they are on disk."""
    session = channel.session
    channel.commit()

    session.defer()
    channel.answer_when_safe("tx.commit-ok")
    channel.answers.now(session.go_on)


def _tx_rollback(channel: Channel, values: _Values) -> None:
    channel.roll_back()
    channel.answer("tx.rollback-ok")


def _flow(channel: Channel, values: _Values) -> None:
    if not values[0]:
        raise not_implemented("active=false", NUMBER["channel.flow"])
    channel.answer("channel.flow-ok", True)


def _access_request(channel: Channel, values: _Values) -> None:
    channel.answer("access.request-ok", 1)


def _cancel_ok(channel: Channel, values: _Values) -> None:
    """A client's answer to a cancel of ours; nothing is left to do."""


METHODS: Final[dict[int, Callable[[Channel, _Values], None]]] = {
    NUMBER[name]: handler
    for name, handler in {
        "exchange.declare": _exchange_declare,
        "exchange.delete": _exchange_delete,
        "exchange.bind": _exchange_bind,
        "exchange.unbind": _exchange_unbind,
        "queue.declare": _queue_declare,
        "queue.bind": _queue_bind,
        "queue.unbind": _queue_unbind,
        "queue.purge": _queue_purge,
        "queue.delete": _queue_delete,
        "basic.qos": _qos,
        "basic.consume": _consume,
        "basic.cancel": _cancel,
        "basic.cancel-ok": _cancel_ok,
        "basic.get": _get,
        "basic.nack": _nack,
        "basic.recover": _recover,
        "basic.recover-async": _recover_async,
        "confirm.select": _confirm_select,
        "tx.select": _tx_select,
        "tx.commit": _tx_commit,
        "tx.rollback": _tx_rollback,
        "channel.flow": _flow,
        "access.request": _access_request,
    }.items()
}
