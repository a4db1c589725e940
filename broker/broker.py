"""Broker: a record of its services, each by its name. docs/architecture.md has on one page what a front end may call of them.

Nothing here waits: what must be on disk first is answered through ``when_safe`` callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .auth.access import Access
from .auth.users import Users
from .config.models import LimitsSection
from .core.high_watermarks import HighWatermarks
from .core.memory import Memory
from .core.routing import PostOffice
from .core.scheduled import Schedule
from .core.settings.in_force import SettingsInForce
from .delivery.by_hand import ByHand
from .delivery.changes import Changes
from .delivery.chosen import Chosen
from .delivery.connections import Connections
from .delivery.consumers import Consumers
from .delivery.dead_lettering import DeadLetterOffice
from .delivery.dispatching import Dispatcher
from .delivery.duplicate_ids import DuplicateIds
from .delivery.editing import Editing
from .delivery.event_messages import EventMessages
from .delivery.faults import Faults
from .delivery.flow_control import FlowControl
from .delivery.gets import Gets
from .delivery.producers import Producers
from .delivery.publish import Intake, Storing
from .delivery.pull_timeouts import Pulls
from .delivery.redriving import Redriving
from .delivery.removal import Removal
from .delivery.retrying import Retrying
from .delivery.settled import SettledReports
from .delivery.settlement import Failing, Settlement
from .delivery.settling import Settling
from .delivery.statistics import Statistics
from .delivery.subscriptions import Subscriptions
from .delivery.transactions import Transactions
from .delivery.transfer import Transfer
from .entries.awaited_room import AwaitedRoom
from .entries.by_number import ByNumber
from .entries.counting import Counting
from .entries.declared import Declared
from .entries.enqueuing import Enqueuing
from .entries.events import Events
from .entries.fault_groups import FaultGroups
from .entries.from_disk import FromDisk
from .entries.going_round import GoingRound
from .entries.page_reads import PageReads
from .entries.pager import Pager
from .entries.ready_set import ReadySet
from .entries.redrive_tally import RedriveTally
from .entries.references import References
from .entries.room import Room
from .entries.throttle import Throttle
from .entries.to_disk import ToDisk
from .long_work import Work
from .recording.journal_port import JournalPort
from .recording.recorder import Recorder
from .step_times import StepTimes
from .topology.amqp.dead_letter_exchanges import DeadLetterExchanges
from .topology.amqp.policies import Policies
from .topology.amqp.queues import DeclaredQueues
from .topology.amqp.virtual_hosts import VirtualHosts
from .topology.commanded_settings import CommandedSettings
from .topology.contents import Contents
from .topology.deletion import Deletion
from .topology.explain import Explanations
from .topology.in_force import InForce
from .topology.resources import Resources


@dataclass(frozen=True, kw_only=True, eq=False)
class Broker:
    """Whole in ``process/`` alone, which makes it (making.py)."""

    # -- what front ends call ----------------------------------------------------------------------------------------

    access: Access
    by_number: ByNumber
    changes: Changes
    chosen: Chosen
    commanded: CommandedSettings
    connections: Connections
    consumers: Consumers
    contents: Contents
    counting: Counting
    declared_queues: DeclaredQueues
    dispatcher: Dispatcher
    duplicate_ids: DuplicateIds
    editing: Editing
    explanations: Explanations
    failing: Failing
    fault_groups: FaultGroups
    faults: Faults
    flow: FlowControl
    gets: Gets
    hand: ByHand
    in_force: InForce
    intake: Intake
    journal: JournalPort
    limits: LimitsSection
    memory: Memory
    now_ms: Callable[[], int]
    policies: Policies
    post_office: PostOffice
    producers: Producers
    ready: ReadySet
    redriving: Redriving
    removal: Removal
    resources: Resources
    retrying: Retrying
    settled_reports: SettledReports
    settlement: Settlement
    settling: Settling
    statistics: Statistics
    step_times: StepTimes
    subscriptions: Subscriptions
    throttle: Throttle
    transactions: Transactions
    users: Users
    virtual_hosts: VirtualHosts
    work: Work

    # -- what stands behind it, for process/ alone -------------------------------------------------------------------

    awaited: AwaitedRoom
    dead_letter_exchanges: DeadLetterExchanges
    declared: Declared
    deletion: Deletion
    enqueuing: Enqueuing
    event_messages: EventMessages
    events: Events
    from_disk: FromDisk
    going_round: GoingRound
    high_watermarks: HighWatermarks
    office: DeadLetterOffice
    pager: Pager
    pulls: Pulls
    reads: PageReads
    recorder: Recorder
    redrives: RedriveTally
    references: References
    room: Room
    schedule: Schedule
    settings: SettingsInForce
    storing: Storing
    to_disk: ToDisk
    transfer: Transfer
