"""Virtual hosts: made, found and deleted. Each has exchanges of its own, and the queues and addresses whose names begin with its prefix."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from homing.journal.declarations import DeclarationRecord, NoContent

from ...auth.access import Access, Who, needs
from ...connection import Connection
from ...core.amqp.exchange import Binding, Compared, Destination, Exchange
from ...core.amqp.search import Search
from ...core.amqp.vhost import DEFAULT, name_problem, prefix_of, split
from ...core.queue import Queue
from ...core.reserved import FAILURE
from ...core.rights import Place, Right
from ...core.routing import PostOffice, Route
from ...entries.declared import Declared
from ...errors import Refused
from ...recording.journal_port import JournalPort
from .. import places
from ..deletion import Deletion
from ..resources import Resources
from .exchanges import Exchanges
from .policies import Policies

_KIND: Final = "virtual-host"
#: Each has exchanges of its own, and names are looked up by them.
_MOST: Final = 1000


def _published(connection: Connection, exchange: str, key: str, more_keys: Sequence[str]) -> Iterable[Place]:
    """Settling what one holds asks for nothing, nor does reporting why it failed."""
    if exchange == FAILURE:
        return ()
    return places.exchange_places(prefix_of(connection.virtual_host), exchange, (key, *more_keys))


def _same_route(connection: Connection, exchange: str, key: str, more_keys: Sequence[str]) -> Hashable | None:
    return None if more_keys else (connection.user, connection.virtual_host, exchange, key)


class VirtualHost:
    def __init__(self, name: str, exchanges: Exchanges) -> None:
        self.name = name
        self.prefix = prefix_of(name)
        #: False: it is being deleted.
        self.open = True
        self.exchanges = exchanges


class VirtualHosts:
    def __init__(
        self,
        access: Access,
        journal: JournalPort,
        post_office: PostOffice,
        declared: Declared,
        resources: Resources,
        deletion: Deletion,
        policies: Policies,
        make_exchanges: Callable[[str], Exchanges],
    ) -> None:
        self.access = access
        self._journal = journal
        self._post_office = post_office
        self._declared = declared
        self._make_exchanges = make_exchanges
        self._policies = policies
        self._resources = resources
        self._deletion = deletion
        self._by_prefix: dict[str, VirtualHost] = {}
        self._make(DEFAULT)
        resources.queue_gone.append(self._queue_gone)

    # -- found -------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> VirtualHost:
        """Raises Refused, with RabbitMQ's sentence, where there is none of that name."""
        found = self._by_prefix.get(prefix_of(name))
        if found is None or not found.open:
            raise Refused("no-such-virtual-host", f"vhost {name} not found", "make it: homing vhost add NAME")
        return found

    def of_name(self, name: str) -> VirtualHost:
        """One that is known to be there, perhaps on its way out."""
        return self._by_prefix[prefix_of(name)]

    def exchanges_of(self, connection: Connection) -> Exchanges:
        return self.of_name(connection.virtual_host).exchanges

    def of(self, queue: Queue) -> VirtualHost:
        return self._by_prefix[split(queue.name)[0]]

    @needs((Right.SEND, _published), same=_same_route)
    def route(self, connection: Connection, exchange: str, key: str, headers: Compared, more_keys: Sequence[str] = ()) -> Route | Search:
        """Where a message published to the exchange under these keys goes, good as long as it ``stands``; or the search for it, which is to
        go on (``throttle.seek``). Raises Refused: no such exchange, or an internal one.
        """
        return self.exchanges_of(connection).published(exchange, key, headers, more_keys)

    def list_exchanges(self) -> list[tuple[str, Exchange]]:
        """And the virtual host of each."""
        return [(host.name, each) for host in self.all() for each in host.exchanges.exchanges.values()]

    def bindings_of(self, queue: Queue) -> list[Binding]:
        """That lead to it."""
        destination = Destination(split(queue.name)[1], True)
        return [binding for exchange in self.of(queue).exchanges.exchanges.values() for binding in exchange.bindings_to(destination)]

    def all(self) -> list[VirtualHost]:
        return sorted(self._by_prefix.values(), key=lambda each: each.name)

    def names(self) -> list[str]:
        return [each.name for each in self.all()]

    def queues_of(self, virtual_host: VirtualHost) -> list[Queue]:
        return [queue for queue in self._post_office.queues.values() if split(queue.name)[0] == virtual_host.prefix]

    # -- made and deleted --------------------------------------------------------------------------------------------

    @needs((Right.ADMINISTER, places.at_virtual_host), audited=True, action="add-vhost")
    def add(self, who: Who, virtual_host: str) -> VirtualHost:
        """Makes a virtual host; one that is there already is no error. Raises Refused for what cannot be a name."""
        self.check(virtual_host)
        known = self._by_prefix.get(prefix_of(virtual_host))
        if known is not None:
            return known
        self.check_room()
        self._declared.check("virtual hosts")
        self._journal.batch.declare(DeclarationRecord(_KIND, virtual_host, NoContent()))
        return self._make(virtual_host)

    def check(self, name: str) -> bool:
        """Whether a virtual host of that name would be a new one. Raises Refused where it can be none."""
        if problem := name_problem(name):
            raise Refused("invalid-name", problem, "choose another name")
        known = self._by_prefix.get(prefix_of(name))
        if known is not None and not known.open:
            raise Refused("virtual-host-closing", f"the virtual host {name} is being deleted", "add it again when it is gone")
        return known is None

    def check_room(self, more: int = 1) -> None:
        """Raises Refused unless so many more may be made."""
        if len(self._by_prefix) + more > _MOST:
            raise Refused("too-many-virtual-hosts", f"there are {_MOST} virtual hosts, as many as there may be", "delete some")

    def _make(self, name: str) -> VirtualHost:
        made = VirtualHost(name, self._make_exchanges(name))
        self._by_prefix[made.prefix] = made
        self._resources.prefixes.add(made.prefix)
        return made

    def close(self, name: str) -> VirtualHost:
        """From here on nobody comes in and nothing is made there; what is in it is for the caller to remove, and then ``forget``."""
        found = self.find(name)
        if name == DEFAULT:
            raise Refused("invalid-argument", "the virtual host / cannot be deleted", "delete its queues instead")
        found.open = False
        self._resources.prefixes.discard(found.prefix)
        return found

    def reopen(self, virtual_host: VirtualHost) -> None:
        """Not all of it could be removed: the rest is a virtual host as before."""
        virtual_host.open = True
        self._resources.prefixes.add(virtual_host.prefix)

    def forget(self, virtual_host: VirtualHost) -> None:
        """Its queues are gone; now its exchanges, addresses and the virtual host itself, in one batch."""
        virtual_host.exchanges.forget_all()
        self._policies.forget_virtual_host(virtual_host.name)
        for address in [each for each in self._post_office.addresses.values() if split(each.name)[0] == virtual_host.prefix]:
            self._deletion.remove_address(address)
        del self._by_prefix[virtual_host.prefix]
        self._journal.batch.delete_declaration(_KIND, virtual_host.name)

    # -- for all -----------------------------------------------------------------------------------------------------

    def restore(self, declarations: Iterable[DeclarationRecord]) -> None:
        """What the journal kept, the queues being there."""
        found = list(declarations)
        for record in found:
            if record.kind == _KIND:
                self._make(record.name)
        for virtual_host in self._by_prefix.values():
            virtual_host.exchanges.restore(found)

    def settings_changed(self) -> None:
        for virtual_host in self._by_prefix.values():
            virtual_host.exchanges.settings_changed()

    def _queue_gone(self, queue: Queue) -> None:
        prefix, name = split(queue.name)
        self._by_prefix[prefix].exchanges.queue_gone(name)
