"""Producers: opened and closed, and what is known of each when it comes again, its high watermark."""

from __future__ import annotations

from collections.abc import Iterable

from ..auth.access import Access, at_address, needs
from ..connection import Connection
from ..core.high_watermarks import HighWatermarks
from ..core.producer import Producer
from ..core.rights import Place, Right
from ..core.routing import MULTICAST, PostOffice, RoutingTypes
from ..core.settings.in_force import SettingsInForce
from ..entries.declared import Declared
from ..errors import Refused
from ..topology.places import address_place
from ..topology.resources import Resources
from .flow_control import FlowControl


def _at_new_address(owner: Producers, address: str) -> Iterable[Place]:
    """Where a send would make it, or a queue for it."""
    there = owner.post_office.addresses.get(address)
    if there is not None and (
        there.queues
        or there.routing_types == RoutingTypes.MULTICAST
        or owner.settings.resolve(address).default_address_routing_type == MULTICAST
    ):
        return ()
    return (address_place(address),)


class Producers:
    def __init__(
        self,
        access: Access,
        post_office: PostOffice,
        settings: SettingsInForce,
        declared: Declared,
        resources: Resources,
        flow: FlowControl,
        high_watermarks: HighWatermarks,
    ) -> None:
        self.access = access
        self.post_office = post_office
        self.settings = settings
        self._declared = declared
        self._resources = resources
        self._flow = flow
        #: Kept for journal.marks-retention beyond the connection.
        self._high_watermarks = high_watermarks

    @needs((Right.SEND, at_address), (Right.CREATE, _at_new_address), action="open-producer")
    def open(self, connection: Connection, number: int, address: str) -> Producer:
        """The producer with its high watermark. Answer it through ``when_safe``; credit follows, see FlowControl.open."""
        if number in connection.producers:
            raise Refused("producer-exists", f"producer {number} is open already", "choose another number")
        self._declared.check("producers")
        self._resources.check_producer(address)
        client = connection.client_id or connection.name
        producer = Producer(client, number, address, self._high_watermarks.of(client, number), connection.front_end, connection.bounds)
        connection.producers[number] = producer
        self._resources.named[address] = self._resources.named.get(address, 0) + 1
        return producer

    def open_sender(self, connection: Connection) -> Producer:
        """One producer for all that comes on the connection, to whatever address; nothing is numbered (AMQP). It is given credit."""
        connection.sender = producer = Producer(f"{connection.name}/amqp", 0, "", 0, connection.front_end, connection.bounds)
        self._flow.open(producer)
        return producer

    def close(self, connection: Connection, number: int) -> None:
        producer = connection.producers.pop(number, None)
        if producer is None:
            return
        self._flow.close(producer)
        if producer.used_at_ms:
            self._high_watermarks.keep(producer.client, number, producer.high_watermark, producer.used_at_ms)
        named = self._resources.named
        named[producer.address] -= 1
        if not named[producer.address]:
            del named[producer.address]

    def close_all(self, connection: Connection) -> None:
        """The connection has ended."""
        for number in list(connection.producers):
            self.close(connection, number)
        if connection.sender is not None:
            self._flow.close(connection.sender)
