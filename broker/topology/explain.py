"""What holds for an address, and where each value came from: where there is a queue of its name, its declaration and its policy go before
the address settings.
"""

from __future__ import annotations

from typing import NamedTuple

from homing.journal.contract import Death

from ..core import dead_letter
from ..core.amqp.declared import AMQP, arguments_of
from ..core.dead_letter import DELIVERY_LIMIT, Target
from ..core.message import SHARED_QUEUE
from ..core.queue import Queue
from ..core.redelivery import delays_returns
from ..core.routing import PostOffice
from ..core.settings.address_settings import FIELD_OF_KEY, Origin
from ..core.settings.in_force import SettingsInForce
from .amqp.arguments import delayed_retries, is_temporary
from .amqp.dead_letter_exchanges import DeadLetterExchanges
from .amqp.policies import dead_letter_exchange, fields_of


class Explained(NamedTuple):
    origins: list[Origin]
    #: The queues that what fails there ends in, those to be made then among them, as far as that is known before.
    dead_letter_queues: list[str]
    dead_letter_exchange: str | None
    dead_letter_routing_key: str | None
    #: It was declared over AMQP, and no delay is meant for what AMQP clients return.
    amqp_returns_at_once: bool


class Explanations:
    def __init__(self, post_office: PostOffice, settings: SettingsInForce, exchanges: DeadLetterExchanges) -> None:
        self._post_office = post_office
        self._settings = settings
        self._exchanges = exchanges

    def of(self, address: str) -> Explained:
        queue = self._post_office.queues.get(address)
        origins = self._settings.repository.explain(address)
        if queue is None or queue.address != address:
            target = dead_letter.target(self._settings.resolve(address), address, DELIVERY_LIMIT)
            return Explained(origins, _ends_in(self._post_office, target, None), None, None, False)
        if (by_exchange := self._exchanges.leads_to(queue)) is not None:
            ends = [each.name for each in by_exchange]
        else:
            ends = _ends_in(self._post_office, *target_of(self._post_office, queue, DELIVERY_LIMIT))
        at_once = AMQP in queue.options and not delays_returns(queue.settings)
        return Explained([_in_force(queue, origin) for origin in origins], ends, *dead_letter_exchange(queue), at_once)


def target_of(post_office: PostOffice, queue: Queue, reason: Death) -> tuple[Target | None, str | None]:
    """Where the queue's dead letters go, and, where it shares their queue with other temporary ones, that queue.

    One that is there under the queue's own name was made on purpose, or before, and takes them.
    """
    target = dead_letter.target(queue.settings, queue.address, reason)
    if target is not None and target.queue is not None and target.queue not in post_office.queues and is_temporary(queue):
        shared = dead_letter.shared_target(queue.settings, queue.address, reason)
        if shared is not None and shared.queue is not None:
            return shared, shared.queue
    return target, None


def takes_all(post_office: PostOffice, address: str) -> bool:
    """Whether somebody has made a queue of the address's own name for what comes to it: one beside it would be a second copy."""
    own = post_office.queues.get(address)
    return own is not None and own.address == address and own.selector is None and not own.auto_created and not is_temporary(own)


def to_make(post_office: PostOffice, target: Target) -> str | None:
    """The queue that is still to be made for what goes there."""
    queues = post_office.queues
    there = target.queue in queues or target.full_name in queues or takes_all(post_office, target.address)
    return None if there else target.queue


def _ends_in(post_office: PostOffice, target: Target | None, shared: str | None) -> list[str]:
    if target is None:
        return []
    there = post_office.addresses.get(target.address)
    said = {"_AMQ_ORIG_ADDRESS": target.source, SHARED_QUEUE: shared}
    found = [each.name for each in there.queues if each.selector is None or each.selector.matches(said.get)] if there else []
    if (name := to_make(post_office, target)) is not None:
        found.append(name)
    return found


def _in_force(queue: Queue, origin: Origin) -> Origin:
    field = FIELD_OF_KEY[origin.key]
    value = getattr(queue.settings, field)
    if queue.policy is not None and fields_of(queue.policy).get(field, origin) == value:
        return Origin(origin.key, value, f"policy {queue.policy.name}", None)
    if field in queue.options or field in delayed_retries(arguments_of(queue), {}):
        return Origin(origin.key, value, "the queue's declaration", None)
    if value == origin.value:
        return origin
    # RabbitMQ's limit, where AMQP declared the queue.
    return Origin(origin.key, value, f"default of {arguments_of(queue).get('x-queue-type', 'classic')} queues", None)
