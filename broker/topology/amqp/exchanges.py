"""The exchanges of one virtual host: declared, bound, journalled, and asked where a message goes.

Names are those that the virtual host's clients use, of queues too; nothing of another virtual host can be named here. Refusals carry
RabbitMQ's sentences; a front end puts its own codes before them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, cast

from homing.journal.declarations import BindingContent, DeclarationRecord, ExchangeContent, Table

from ...auth.access import BROKER, Access, Who, needs, needs_any
from ...core.amqp.declared import AMQP
from ...core.amqp.exchange import (
    DIRECT,
    FANOUT,
    HEADERS,
    KINDS,
    TOPIC,
    Binding,
    Compared,
    Destination,
    Exchange,
    Fields,
    headers_match_problem,
)
from ...core.amqp.keys import kept, key_of
from ...core.amqp.policy import Policy
from ...core.amqp.search import Search
from ...core.amqp.vhost import DEFAULT, SEPARATOR, prefix_of
from ...core.memory import Cache, Memory
from ...core.message import DEFAULT_PRIORITY
from ...core.queue import Queue
from ...core.reserved import EVENTS, FAILURE, RESERVED
from ...core.rights import Place, Right
from ...core.routing import PostOffice, Route, take_at_once
from ...core.settings.wildcard import ANY_WORDS
from ...core.standing import Standing
from ...entries.declared import Declared
from ...entries.events import Events
from ...entries.throttle import Throttle
from ...errors import Refused
from ...protocols.amqp091.codec_tables import compared, write_value
from ...recording.journal_port import JournalPort
from ..places import exchange_places
from .arguments import check_equal
from .ignored import IgnoredArguments
from .policies import Policies

DEFAULT_EXCHANGE: Final = ""
_EXCHANGE: Final = "exchange"
_BINDING: Final = "binding"
ALTERNATE: Final = "alternate-exchange"
#: name -> kind of the exchanges that are always there.
_PREDECLARED: Final = {
    "amq.direct": DIRECT,
    "amq.fanout": FANOUT,
    "amq.headers": HEADERS,
    "amq.match": HEADERS,
    "amq.topic": TOPIC,
    FAILURE: DIRECT,
}
#: Ways that are remembered, by exchange and key.
_ROUTES_BYTES: Final = 8 << 20
#: What one takes: beside its key, and for each queue.
_ROUTE_BYTES: Final = 500
_QUEUE_BYTES: Final = 8


def _at_exchange(owner: Exchanges, name: str) -> Iterable[Place]:
    return (Place("exchange", (owner.prefix + name,)),)


def _looked_up(owner: Exchanges, name: str) -> Iterable[Place]:
    """Reporting why a delivery failed asks for nothing, nor does the question whether that is possible."""
    return () if name == FAILURE else _at_exchange(owner, name)


def _with_alternate(owner: Exchanges, name: str, arguments: Table) -> Iterable[Place]:
    return _at_exchange(owner, name) if isinstance(arguments.get(ALTERNATE), str) else ()


def _alternate(owner: Exchanges, arguments: Table) -> Iterable[Place]:
    name = arguments.get(ALTERNATE)
    return exchange_places(owner.prefix, name, (ANY_WORDS,)) if isinstance(name, str) else ()


def _bound_to(owner: Exchanges, destination: Destination) -> Iterable[Place]:
    return (Place("queue" if destination.is_queue else "exchange", (owner.prefix + destination.name,)),)


def _bound_from(owner: Exchanges, source: str, key: str) -> Iterable[Place]:
    return (Place("exchange", (owner.prefix + source,), key),)


class Exchanges:
    def __init__(
        self,
        access: Access,
        journal: JournalPort,
        post_office: PostOffice,
        declared: Declared,
        throttle: Throttle,
        memory: Memory,
        events: Events,
        policies: Policies,
        ignored: IgnoredArguments,
        virtual_host: str = DEFAULT,
    ) -> None:
        self.access = access
        self._journal = journal
        self._post_office = post_office
        self._declared = declared
        self._throttle = throttle
        self._ignored = ignored
        self._policies = policies
        self._virtual_host = virtual_host
        self.prefix = prefix_of(virtual_host)
        #: Kinds of declaration in the journal: each virtual host has its own.
        self._exchange_kind = _EXCHANGE + self.prefix
        self._binding_kind = _BINDING + self.prefix
        self.exchanges: dict[str, Exchange] = {name: Exchange(name, kind) for name, kind in _PREDECLARED.items()}
        if virtual_host == DEFAULT:
            self.exchanges[EVENTS] = events.exchange
        self._routes: Cache[tuple[str, str], Route] = Cache(memory, _ROUTES_BYTES)
        #: Of the names that no exchange has: falls with each new one.
        self._absence_stands = Standing()

    def queue(self, name: str) -> Queue | None:
        """The virtual host's queue of that name."""
        return None if name.startswith(SEPARATOR) else self._post_office.queues.get(self.prefix + name)

    # -- exchanges ---------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise no_such_exchange(name, self._virtual_host)
        return exchange

    @needs_any(_looked_up, action="look-up-exchange")
    def look_up(self, who: Who, name: str) -> Exchange:
        """A passive declaration. Raises Refused."""
        return self.find(name)

    @needs(
        (Right.CREATE, _at_exchange),
        (Right.CONSUME, _with_alternate),
        (Right.SEND, _alternate),
        action="declare-exchange",
    )
    def declare(self, who: Who, name: str, kind: str, *, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> Exchange:
        """Makes an exchange; the same declaration again is no error, another one is."""
        exchange = self._declare(name, kind, durable, auto_delete, internal, arguments)
        what = f"exchange '{name}' in vhost '{self._virtual_host}'"
        self._ignored.report(what, [each for each in arguments if each != ALTERNATE], "the ")
        return exchange

    def _declare(self, name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table) -> Exchange:
        if kind not in KINDS:
            raise Refused("command-invalid", f"unknown exchange type '{kind}'", "use direct, topic, fanout or headers")
        if not isinstance(arguments.get(ALTERNATE, ""), str):
            raise Refused("precondition-failed", f"invalid arg '{ALTERNATE}' for exchange '{name}': it is no text", "name an exchange")
        existing = self.exchanges.get(name)
        if existing is not None:
            _check_same(existing, kind, durable, auto_delete, internal, arguments, self._virtual_host)
            return existing
        if name.startswith(("amq.", RESERVED)) or name == DEFAULT_EXCHANGE:
            reserved = RESERVED if name.startswith(RESERVED) else "amq."
            raise Refused("access-refused", f"exchange name '{name}' contains reserved prefix '{reserved}*'", "use another name")
        self._declared.check("exchanges")
        exchange = Exchange(name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        self._take_in(exchange)
        self._changed()
        if durable:
            content = ExchangeContent(kind=kind, auto_delete=auto_delete, internal=internal, arguments=arguments)
            self._journal.batch.declare(DeclarationRecord(self._exchange_kind, name, content))
        return exchange

    def _take_in(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = exchange
        self._absence_stands = self._absence_stands.fall()
        self._set_alternate(exchange)

    def policy(self, exchange: Exchange) -> Policy | None:
        return None if exchange.name == FAILURE else self._policies.for_exchange(self.prefix, exchange.name)

    def _set_alternate(self, exchange: Exchange) -> None:
        """The alternate exchange it was declared with, else that of its policy."""
        policy = self.policy(exchange)
        named = exchange.arguments.get(ALTERNATE)
        alternate = named if isinstance(named, str) else policy.definition.get(ALTERNATE) if policy is not None else None
        exchange.alternate = None if alternate is not None and alternate.startswith(RESERVED) else alternate

    @needs((Right.MANAGE, _at_exchange), audited=True, action="delete-exchange")
    def delete(self, who: Who, name: str, if_unused: bool = False) -> None:
        """Removes an exchange with its bindings; one that is not there is no error, as with RabbitMQ."""
        exchange = self.exchanges.get(name)
        if name == DEFAULT_EXCHANGE:
            raise Refused("access-refused", "operation not permitted on the default exchange", "leave it")
        if name.startswith(("amq.", RESERVED)):
            what = f"deletion of system exchange '{name}' in vhost '{self._virtual_host}' not allowed"
            raise Refused("access-refused", what, "leave it")
        if exchange is None:
            return
        if if_unused and exchange.bindings:
            raise Refused("in-use", f"exchange '{name}' in vhost '{self._virtual_host}' in use", "unbind its queues first")
        del self.exchanges[name]
        exchange.changed()
        for binding in list(exchange.bindings.values()):
            self._forget(exchange, binding)
        if exchange.durable:
            self._journal.batch.delete_declaration(self._exchange_kind, name)
        self._unbind_all(Destination(name, False))
        self._changed()

    # -- bindings ----------------------------------------------------------------------------------------------------

    @needs((Right.SEND, _bound_to), (Right.CONSUME, _bound_from))
    def bind(self, who: Who, source: str, destination: Destination, key: str, arguments: Table, fields: Fields | None = None) -> None:
        """``fields``: the arguments as AMQP writes them, where they came so."""
        exchange = self._bindable(source, destination)
        if exchange.kind == HEADERS and (problem := headers_match_problem(arguments)) is not None:
            raise Refused("precondition-failed", problem, "see docs/interoperability.md")
        binding = _binding(source, destination, key, arguments, fields)
        if exchange.has(binding):
            return
        self._declared.check("bindings")
        exchange.bind(binding)
        self._changed()
        if self._lasts(exchange, destination):
            content = BindingContent(
                source=source, to=destination.name, queue=destination.is_queue, key=kept((key,))[0], arguments=arguments
            )
            if binding.fields:
                content["fields"] = dict(binding.fields)
            self._journal.batch.declare(DeclarationRecord(self._binding_kind, _binding_name(binding), content))

    @needs((Right.SEND, _bound_to), (Right.CONSUME, _bound_from))
    def unbind(self, who: Who, source: str, destination: Destination, key: str, arguments: Table, fields: Fields | None = None) -> None:
        """Removes a binding; one that is not there is no error, nor are ends that are not there, as with RabbitMQ."""
        _check_not_default(source, destination)
        exchange = self.exchanges.get(source)
        if exchange is None:
            return
        # Older journals tell no types.
        for binding in (_binding(source, destination, key, arguments, each) for each in (fields, None)):
            if exchange.unbind(binding):
                self._forget(exchange, binding)
                self._after_unbind(exchange)
                return

    def _bindable(self, source: str, destination: Destination) -> Exchange:
        _check_not_default(source, destination)
        if source == FAILURE or (not destination.is_queue and destination.name.startswith(RESERVED)):
            what = f"exchange '{source}' cannot be bound to '{destination.name}': one of them is the broker's own"
            raise Refused("access-refused", what, "use another exchange")
        if destination.is_queue and self.queue(destination.name) is None:
            raise no_such_queue(destination.name, self._virtual_host)
        if not destination.is_queue:
            self.find(destination.name)
        return self.find(source)

    def _lasts(self, exchange: Exchange, destination: Destination) -> bool:
        """A binding survives a restart when both its ends do."""
        if destination.is_queue:
            queue = self.queue(destination.name)
            return exchange.durable and queue is not None and queue.durable
        return exchange.durable and self.exchanges[destination.name].durable

    def _forget(self, exchange: Exchange, binding: Binding) -> None:
        if exchange.durable:
            self._journal.batch.delete_declaration(self._binding_kind, _binding_name(binding))

    def _after_unbind(self, exchange: Exchange) -> None:
        self._changed()
        if exchange.auto_delete and not exchange.bindings and self.exchanges.get(exchange.name) is exchange:
            self.delete(BROKER, exchange.name)

    def queue_gone(self, name: str) -> None:
        """The virtual host's queue of that name was removed."""
        self._unbind_all(Destination(name, True))

    def _unbind_all(self, destination: Destination) -> None:
        for exchange in list(self.exchanges.values()):
            gone = exchange.bindings_to(destination)
            for binding in gone:
                exchange.unbind(binding)
                self._forget(exchange, binding)
            if gone:
                self._after_unbind(exchange)

    # -- restored ----------------------------------------------------------------------------------------------------

    def restore(self, declarations: Iterable[DeclarationRecord]) -> None:
        """What the journal kept. A binding whose queue is gone is passed over."""
        found = list(declarations)
        for record in found:
            if record.kind == self._exchange_kind:
                self._take_in(Exchange(record.name, **cast(ExchangeContent, record.content)))
        for record in found:
            if record.kind == self._binding_kind:
                content = cast(BindingContent, record.content)
                exchange = self.exchanges.get(content["source"])
                destination = Destination(content["to"], content["queue"])
                there = self.queue(destination.name) if destination.is_queue else self.exchanges.get(destination.name)
                if exchange is not None and there is not None:
                    source, key, arguments = content["source"], key_of(content["key"]), content["arguments"]
                    exchange.bind(_binding(source, destination, key, arguments, content.get("fields")))

    # -- routing -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._post_office.bindings_changed()

    def settings_changed(self) -> None:
        """Settings or policies have changed."""
        for exchange in self.exchanges.values():
            self._set_alternate(exchange)

    def forget_all(self) -> None:
        """The virtual host is gone, and what it had in the journal with it."""
        for exchange in self.exchanges.values():
            exchange.changed()
            for binding in exchange.bindings.values():
                self._forget(exchange, binding)
            if exchange.durable and exchange.name not in _PREDECLARED:
                self._journal.batch.delete_declaration(self._exchange_kind, exchange.name)
        self.exchanges.clear()
        self._changed()

    def published(self, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()) -> Route | Search:
        """The route of what a client publishes, or the search for it. Raises Refused, for an internal exchange, too."""
        if exchange and self.find(exchange).internal:
            what = f"cannot publish to internal exchange '{exchange}' in vhost '{self._virtual_host}'"
            raise Refused("access-refused", what, "use another")
        return self._seek(exchange, key, headers, more_keys)

    def route(self, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()) -> Route:
        """Where a message published to ``exchange`` under ``key`` goes, at once. Raises Refused: no such exchange."""
        found = self._seek(exchange, key, headers, more_keys)
        if isinstance(found, Route):
            return found
        self._throttle.spend(found.go_on(sys.maxsize))
        assert found.route is not None, "it is over"
        return found.route

    def _seek(self, exchange: str, key: str, headers: Compared, more_keys: Sequence[str]) -> Route | Search:
        if exchange == DEFAULT_EXCHANGE:
            return self._by_name((key, *more_keys))
        first = self.find(exchange)
        if more_keys:
            return Search(self.exchanges, first, (key, *more_keys), headers, self._described)
        known = self._routes.found.get((exchange, key))
        if known is not None and known.stands:
            return known
        return Search(self.exchanges, first, (key,), headers, partial(self._remembered, (exchange, key)))

    def _by_name(self, names: Sequence[str]) -> Route:
        queues = [self.queue(name) for name in dict.fromkeys(names)]
        there = [queue for queue in queues if queue is not None]
        standings = [queue.standing for queue in there]
        if len(there) < len(queues):
            standings.append(self._post_office.absence_stands)
        return self._route(there, standings)

    def _described(self, search: Search) -> Route:
        standings = [*search.standings, self._absence_stands] if search.misses else search.standings
        return self._route([queue for name in search.queues if (queue := self.queue(name)) is not None], standings)

    def _remembered(self, way: tuple[str, str], search: Search) -> Route:
        route = self._described(search)
        if not search.by_headers:
            self._routes.keep(way, route, _ROUTE_BYTES + len(way[1]) + _QUEUE_BYTES * len(route.queues))
        return route

    def _route(self, queues: list[Queue], standings: Sequence[Standing]) -> Route:
        by_priority = any(queue.lowest_priority < queue.highest_priority for queue in queues)
        named = any(AMQP in queue.options and queue.highest_priority > queue.lowest_priority for queue in queues)
        default = 0 if named else DEFAULT_PRIORITY
        return Route(queues, take_at_once(queues), by_priority, default, (self._post_office.settings_stand, *standings))


def _check_not_default(source: str, destination: Destination) -> None:
    if source == DEFAULT_EXCHANGE or (not destination.is_queue and destination.name == DEFAULT_EXCHANGE):
        raise Refused("access-refused", "operation not permitted on the default exchange", "publish to it: every queue is bound by name")


def _binding(source: str, destination: Destination, key: str, arguments: Table, fields: Fields | None = None) -> Binding:
    """Without ``fields`` each argument is of the type that it would be written as."""
    plain = {name: write_value(value) for name, value in arguments.items()}
    wanted = compared(plain if fields is None else fields)
    if fields is not None and fields != plain:
        return Binding(source, destination, key, arguments, wanted, fields)
    return Binding(source, destination, key, arguments, wanted) if wanted else Binding(source, destination, key, arguments)


def _binding_name(binding: Binding) -> str:
    source, destination, key, arguments = binding.identity()
    return json.dumps([source, destination.is_queue, destination.name, key, arguments])


def _check_same(
    exchange: Exchange, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Table, virtual_host: str
) -> None:
    what = f"exchange '{exchange.name}' in vhost '{virtual_host}'"
    check_equal(what, "type", kind, exchange.kind)
    check_equal(what, "durable", durable, exchange.durable)
    check_equal(what, "auto_delete", auto_delete, exchange.auto_delete)
    check_equal(what, "internal", internal, exchange.internal)
    check_equal(what, ALTERNATE, arguments.get(ALTERNATE), exchange.arguments.get(ALTERNATE))


def no_such_exchange(name: str, virtual_host: str) -> Refused:
    return Refused("not-found", f"no exchange '{name}' in vhost '{virtual_host}'", "declare it first")


def no_such_queue(name: str, virtual_host: str) -> Refused:
    return Refused("not-found", f"no queue '{name}' in vhost '{virtual_host}'", "declare it first")
