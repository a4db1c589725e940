"""From what the journal kept to a broker that goes on: addresses, queues, references, high watermarks and outcomes."""

from __future__ import annotations

import logging
from typing import cast

from homing.journal.contract import QueueRecord, Recovered, ReferenceRecord, ReferenceState
from homing.journal.declarations import QueueOptions

from ..auth.users import contents
from ..broker import Broker
from ..core.message import Message
from ..core.queue import Queue
from ..core.routing import Address, RoutingTypes
from ..core.settings.units import known_duration_ms
from ..entries.references import reference_of
from ..errors import Refused
from ..recording.mapping import park_reason
from ..topology.amqp.arguments import keeps_all, priorities
from ..topology.resources import parse_selector, settings_for

log = logging.getLogger("homing")


def recover(broker: Broker, recovered: Recovered) -> None:
    """Fills an empty broker. What fell due meanwhile goes out at once; parked messages look again at the first tick."""
    post_office = broker.post_office
    post_office.reserve_queue_ids(recovered.next_queue_id)
    for record in recovered.addresses:
        post_office.add_address(Address(record.name, RoutingTypes(record.routing_types), record.created_at_ms, record.auto_created))
    broker.users.restore(contents(recovered.declarations))
    broker.policies.restore(recovered.declarations)
    broker.commanded.restore(recovered.declarations)
    broker.settings.repository = broker.commanded.over(broker.commanded.configured)
    broker.fault_groups.restore(recovered.faults)
    broker.redrives.restore(recovered.declarations)
    for queue_record in recovered.queues:
        _queue(broker, queue_record)
    broker.virtual_hosts.restore(recovered.declarations)
    messages: dict[int, Message] = {}
    for reference in recovered.references:
        _reference(broker, reference, messages)
    for queue_id, cause, dead in recovered.dead:
        if (there := post_office.queues_by_id.get(queue_id)) is not None:
            broker.fault_groups.dead_letters.count(there, cause, dead)
    for counted in recovered.on_disk:
        queue = post_office.queues_by_id[counted.queue_id]
        times = (counted.first_due_ms, counted.first_expiry_ms)
        broker.from_disk.restore(queue, counted.ready, counted.due, *times, counted.mean_bytes, counted.on_hold)
    for key, (high_watermark, at_ms) in recovered.producers.items():
        client, _, number = key.rpartition("/")
        broker.high_watermarks.keep(client, int(number), high_watermark, at_ms)
    for address, duplicate_ids in recovered.duplicates.items():
        broker.duplicate_ids.remember(address, duplicate_ids)
    broker.settlement.stories.restore(recovered.stories)
    for sentence in recovered.quarantined:
        log.error("message-quarantined: %s", sentence)


def _queue(broker: Broker, record: QueueRecord) -> None:
    if record.policy is not None:
        broker.policies.held_last(record.name, record.policy)
    settings, policy = broker.settings.resolve(record.address), broker.policies.for_queue(record.name)
    read = {key: known_duration_ms(value) if key.endswith("_ms") else value for key, value in record.options.items()}
    options = cast(QueueOptions, read)
    try:
        settings = settings_for(broker.settings.repository, record.address, options, policy)
    except Refused as refusal:
        log.error(
            "declaration-unreadable: queue %s: what it was declared with is not understood any more (%s); the address's settings apply",
            record.name,
            refusal,
        )
    queue = Queue(
        record.queue_id,
        record.name,
        record.address,
        record.routing_type,
        settings,
        created_at_ms=record.created_at_ms,
        selector=parse_selector(record.selector),
        auto_created=record.auto_created,
        options=options,
        priorities=priorities(record.options or {}),
        keeps_all=keeps_all(record.options or {}),
    )
    queue.paused, queue.policy = record.paused, policy
    broker.post_office.add_queue(queue)
    broker.resources.idle.begin(queue, broker.now_ms())


def _reference(broker: Broker, record: ReferenceRecord, messages: dict[int, Message]) -> None:
    reference = reference_of(broker.post_office.queues_by_id[record.queue_id], record)
    message = messages.setdefault(record.message.message_id, reference.message)
    message.shared = record.shared
    message.stored += 1
    reference.message = message
    broker.references.restore(reference)
    if record.state & ReferenceState.PARKED and (parked_for := park_reason(record.state)):
        broker.office.parking.keep(reference, parked_for)
    else:
        broker.enqueuing.enqueue((reference,))
