"""What tests see of a broker's inside, beyond its verbs: each part by its name, and nothing of where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Final

import homing.broker
from homing.broker.auth.access import Needs, declared
from homing.broker.broker import Broker
from homing.broker.config.config import Config
from homing.broker.config.models import BrokerSection, JournalSection, LimitsSection, Section
from homing.broker.core.amqp.policy import Policy
from homing.broker.core.high_watermarks import HighWatermarks
from homing.broker.core.memory import Memory
from homing.broker.core.message import Message
from homing.broker.core.queue import Queue
from homing.broker.core.routing import Address
from homing.broker.core.settings.address_settings import AddressSettingsRepository
from homing.broker.delivery.by_hand import ByHand
from homing.broker.delivery.changes import Changes
from homing.broker.delivery.connections import Connections
from homing.broker.delivery.consumers import Consumers
from homing.broker.delivery.dead_lettering import DeadLetterOffice
from homing.broker.delivery.dispatching import Dispatcher
from homing.broker.delivery.flow_control import FlowControl
from homing.broker.delivery.gets import Gets
from homing.broker.delivery.producers import Producers
from homing.broker.delivery.publish import Intake, Storing
from homing.broker.delivery.redriving import Redriving
from homing.broker.delivery.removal import Removal
from homing.broker.delivery.settlement import Settlement
from homing.broker.delivery.statistics import Statistics
from homing.broker.delivery.subscriptions import Subscriptions
from homing.broker.delivery.transactions import Transactions
from homing.broker.delivery.transfer import Transfer
from homing.broker.entries.events import Events
from homing.broker.entries.fault_groups import FaultGroups
from homing.broker.entries.from_disk import FromDisk
from homing.broker.entries.going_round import GoingRound
from homing.broker.entries.page_reads import PageReads
from homing.broker.entries.redrive_tally import RedriveTally
from homing.broker.entries.references import References
from homing.broker.entries.room import Room
from homing.broker.entries.throttle import Throttle
from homing.broker.process.housekeeping import Housekeeping
from homing.broker.process.turn import BrokerTurn
from homing.broker.recording.journal_port import JournalPort
from homing.broker.recording.recorder import Recorder
from homing.broker.steps import at_once
from homing.broker.topology.amqp.dead_letter_exchanges import DeadLetterExchanges
from homing.broker.topology.amqp.policies import Policies
from homing.broker.topology.amqp.queues import DeclaredQueues
from homing.broker.topology.amqp.virtual_hosts import VirtualHosts
from homing.broker.topology.contents import Contents
from homing.broker.topology.deletion import Deletion
from homing.broker.topology.explain import Explanations
from homing.broker.topology.resources import Resources

#: Where verbs stand.
SERVICES: Final = re.compile(r"homing\.broker\.(broker|delivery|topology|entries|auth)\b")


def asking() -> dict[str, Needs]:
    """What every verb declares that asks for a right, by its name in the audit."""
    modules = [import_module(each.name) for each in walk_packages(homing.broker.__path__, "homing.broker.") if SERVICES.match(each.name)]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    found = [declared(getattr(each, name)) for each in classes for name in dir(each) if not name.startswith("__")]
    return {needs.action: needs for needs in found if needs is not None}


def configured(layers: dict[str, dict[str, Any]], **limits: Any) -> Config:
    """With these address settings, and limits of whichever sections have a field of that name."""
    limits = {"memory_limit_bytes": 512 << 20, **limits}
    sections: dict[str, Section] = {"broker": BrokerSection(), "journal": JournalSection(), "limits": LimitsSection()}
    taken = {name: {key: limits.pop(key) for key in list(limits) if key in type(each).model_fields} for name, each in sections.items()}
    assert not limits, f"no section has {sorted(limits)}"
    found = {name: each.model_copy(update=taken[name]) for name, each in sections.items()}
    return Config().model_copy(update={"address_settings": AddressSettingsRepository(layers), **found})


def turn_of(broker: Broker, config: Config) -> BrokerTurn:
    return BrokerTurn(broker, Housekeeping(broker, config, lambda: False))


def addresses(broker: Broker) -> dict[str, Address]:
    return broker.post_office.addresses


def arrive(broker: Broker, messages: list[Message], queue: Queue) -> None:
    broker.enqueuing.arrive(messages, queue, broker.now_ms())


def call_when_woken(broker: Broker, wake: Callable[[], None]) -> None:
    broker.ready.wake = wake


def connections(broker: Broker) -> Connections:
    return broker.connections


def consumers(broker: Broker) -> Consumers:
    return broker.consumers


def contents(broker: Broker) -> Contents:
    return broker.contents


def dead_letter_exchanges(broker: Broker) -> DeadLetterExchanges:
    return broker.dead_letter_exchanges


def deletion(broker: Broker) -> Deletion:
    return broker.deletion


def declared_queues(broker: Broker) -> DeclaredQueues:
    return broker.declared_queues


def events(broker: Broker) -> Events:
    return broker.events


def faults(broker: Broker) -> FaultGroups:
    return broker.fault_groups


def flow(broker: Broker) -> FlowControl:
    return broker.flow


def hand(broker: Broker) -> ByHand:
    return broker.hand


def high_watermarks(broker: Broker) -> HighWatermarks:
    return broker.high_watermarks


def going_round(broker: Broker) -> GoingRound:
    return broker.going_round


def intake(broker: Broker) -> Intake:
    return broker.intake


def mark_ready(broker: Broker, queue: Queue) -> None:
    broker.ready.mark(queue)


def memory(broker: Broker) -> Memory:
    return broker.memory


def office(broker: Broker) -> DeadLetterOffice:
    return broker.office


def apply_settings(broker: Broker, configured: AddressSettingsRepository) -> None:
    """As a reload does, at once."""

    def then() -> None:
        broker.commanded.configured = configured

    at_once(changes(broker).bring(broker.commanded.over(configured), then=then))


def set_policy(broker: Broker, policy: Policy) -> None:
    at_once(changes(broker).bring(broker.settings.repository, broker.policies.with_set(policy)))


def clear_policy(broker: Broker, virtual_host: str, name: str) -> None:
    at_once(changes(broker).bring(broker.settings.repository, broker.policies.cleared(virtual_host, name)))


def from_disk(broker: Broker) -> FromDisk:
    return broker.from_disk


def policies(broker: Broker) -> Policies:
    return broker.policies


def queues(broker: Broker) -> dict[str, Queue]:
    return broker.post_office.queues


def ready(broker: Broker) -> dict[Queue, None]:
    return broker.ready.queues


def room(broker: Broker) -> Room:
    return broker.room


def reads(broker: Broker) -> PageReads:
    return broker.reads


def recorder(broker: Broker) -> Recorder:
    return broker.recorder


def redrives(broker: Broker) -> RedriveTally:
    return broker.redrives


def redriving(broker: Broker) -> Redriving:
    return broker.redriving


def references(broker: Broker) -> References:
    return broker.references


def resources(broker: Broker) -> Resources:
    return broker.resources


def settings(broker: Broker) -> AddressSettingsRepository:
    return broker.settings.repository


def settlement(broker: Broker) -> Settlement:
    return broker.settlement


def settles(broker: Broker) -> bool:
    """Something ends in steps."""
    return bool(broker.settling.lines)


def journal(broker: Broker) -> JournalPort:
    return broker.journal


def storing(broker: Broker) -> Storing:
    return broker.storing


def throttle(broker: Broker) -> Throttle:
    return broker.throttle


def transfer(broker: Broker) -> Transfer:
    return broker.transfer


def transactions(broker: Broker) -> Transactions:
    return broker.transactions


def virtual_hosts(broker: Broker) -> VirtualHosts:
    return broker.virtual_hosts


def gets(broker: Broker) -> Gets:
    return broker.gets


def producers(broker: Broker) -> Producers:
    return broker.producers


def removal(broker: Broker) -> Removal:
    return broker.removal


def statistics(broker: Broker) -> Statistics:
    return broker.statistics


def subscriptions(broker: Broker) -> Subscriptions:
    return broker.subscriptions


def dispatcher(broker: Broker) -> Dispatcher:
    return broker.dispatcher


def changes(broker: Broker) -> Changes:
    return broker.changes


def explanations(broker: Broker) -> Explanations:
    return broker.explanations
