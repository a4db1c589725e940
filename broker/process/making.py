"""The parts of a broker, made and joined: from those that need no other to those that use the most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from random import Random
from typing import Final

from homing.journal.declarations import DeclarationRecord, UserContent

from ..auth.access import Who, WriteLine, no_audit
from ..auth.users import USER, Users
from ..broker import Broker
from ..config.config import Config
from ..connection import Connection
from ..core.amqp.account import NO_AMQP, AmqpAccount
from ..core.amqp.vhost import DEFAULT
from ..core.high_watermarks import HighWatermarks
from ..core.memory import Memory
from ..core.message import largest_message
from ..core.rights import Place
from ..core.routing import PostOffice
from ..core.scheduled import Schedule
from ..core.settings.address_settings import AddressSettingsRepository
from ..core.settings.in_force import SettingsInForce
from ..delivery.by_hand import ByHand
from ..delivery.changes import Changes
from ..delivery.chosen import Chosen
from ..delivery.connections import Connections
from ..delivery.consumers import Consumers
from ..delivery.dead_lettering import DeadLetterOffice, DeadLetterWays
from ..delivery.dispatching import Dispatcher
from ..delivery.duplicate_ids import DuplicateIds
from ..delivery.editing import Copying, Editing
from ..delivery.event_messages import EventMessages
from ..delivery.fan_out import FanOut
from ..delivery.faults import Faults
from ..delivery.flow_control import FlowControl
from ..delivery.gets import Gets
from ..delivery.open_logins import OpenLogins
from ..delivery.overflow import Overflow
from ..delivery.parking import Parking
from ..delivery.producers import Producers
from ..delivery.publish import Intake, Storing
from ..delivery.pull_timeouts import Pulls
from ..delivery.redriving import Redriving
from ..delivery.removal import Removal
from ..delivery.retrying import Retrying
from ..delivery.settled import SettledReports
from ..delivery.settlement import Failing, Settlement
from ..delivery.settling import Settling
from ..delivery.statistics import Statistics
from ..delivery.stories import Stories
from ..delivery.subscriptions import Subscriptions
from ..delivery.transactions import Transactions
from ..delivery.transfer import Transfer
from ..entries.awaited_room import AwaitedRoom
from ..entries.browsing import Browsing
from ..entries.by_number import ByNumber
from ..entries.choosing import Choosing
from ..entries.counting import Counting
from ..entries.declared import Declared
from ..entries.disk_moves import DiskMoves
from ..entries.disk_room import DiskRoom
from ..entries.enqueuing import Enqueuing
from ..entries.events import Events
from ..entries.fault_groups import FaultGroups
from ..entries.from_disk import FromDisk
from ..entries.going_round import GoingRound
from ..entries.memory_quota import MemoryQuota
from ..entries.page_reads import PageReads
from ..entries.pager import Pager
from ..entries.ready_set import ReadySet
from ..entries.redrive_tally import RedriveTally
from ..entries.references import References
from ..entries.room import Room, Windows
from ..entries.throttle import Throttle
from ..entries.to_disk import ToDisk
from ..entries.waiting import Waiting
from ..long_work import WITHOUT_A_LOOP, LoopTurns, Work
from ..recording.journal_port import JournalPort
from ..recording.recorder import Recorder
from ..step_times import StepTimes
from ..topology.amqp.dead_letter_exchanges import DeadLetterExchanges
from ..topology.amqp.exchanges import Exchanges
from ..topology.amqp.ignored import IgnoredArguments
from ..topology.amqp.policies import Policies
from ..topology.amqp.queues import DeclaredQueues
from ..topology.amqp.virtual_hosts import VirtualHosts
from ..topology.commanded_settings import CommandedSettings
from ..topology.contents import Contents
from ..topology.deletion import Deletion
from ..topology.explain import Explanations
from ..topology.idle_queues import IdleQueues
from ..topology.in_force import InForce
from ..topology.resources import Resources

NO_LIMIT: Final = DiskRoom()


def make_broker(
    journal: JournalPort,
    config: Config,
    now_ms: Callable[[], int],
    rng: Random,
    wake: Callable[[], None],
    disk: DiskRoom = NO_LIMIT,
    turns: LoopTurns = WITHOUT_A_LOOP,
    amqp: AmqpAccount = NO_AMQP,
    audit: WriteLine = no_audit,
) -> Broker:
    """``wake``: there is to be a turn. ``audit``: see Access."""
    made = _Making(journal, config, now_ms, rng, wake, disk, turns, amqp, audit)
    return Broker(**{each.name: getattr(made, each.name) for each in fields(Broker)})


class _Making:
    def __init__(
        self,
        journal: JournalPort,
        config: Config,
        now_ms: Callable[[], int],
        rng: Random,
        wake: Callable[[], None],
        disk: DiskRoom,
        turns: LoopTurns,
        amqp: AmqpAccount,
        audit: WriteLine,
    ) -> None:
        self.limits = config.limits
        self._max_hops = config.broker.max_hops
        self._journal_section = config.journal
        self.now_ms = now_ms
        self.step_times = StepTimes()
        self.memory = Memory(config.broker.memory_limit_bytes, lambda: journal.unwritten_bytes)
        self.journal = journal
        self.recorder = Recorder(journal, config.broker.history == "full")
        self.users = Users(self._keep_user, now_ms, self._check_room, audit)
        self.access = self.users.access
        windows = Windows(self.limits.window_messages, self.limits.window_bytes, self.limits.window_scheduled)
        settings = config.settings_repository()
        self.commanded = CommandedSettings(journal, settings)
        #: Long work that is under way; each returns whether there is more to do.
        self.work = Work(wake, turns)
        self._make_what_all_use(disk, windows, settings, wake, config.broker.name)
        journal.on_commit = self.throttle.written
        self._make_what_is_declared(amqp)
        self._make_what_dies()
        self.pager = Pager(self.from_disk, self.to_disk, self.enqueuing, self.ready, now_ms, self.office.expire)
        self.dispatcher = Dispatcher(journal, self.recorder, self.ready, self.awaited, self.pager, self.office, now_ms)
        self._make_what_ends(rng)
        self._make_what_goes_by_hand(amqp)
        self._make_what_comes_in(disk)
        exchanges = self.virtual_hosts.find(DEFAULT).exchanges
        self.event_messages = EventMessages(self.events, exchanges, self.office, self.storing, now_ms)
        self.transactions = Transactions(
            journal, self.post_office, self.memory, self.intake, self.settlement, self.settling, self.limits, now_ms
        )
        self.high_watermarks = HighWatermarks()
        self.pulls = Pulls()
        self._make_services()
        #: Routes are asked for anew, and what is open of those that may not have it any more ends.
        self.users.changed.append(lambda over, others: self.post_office.settings_changed())
        self.users.changed.append(OpenLogins(self.access, self.connections, journal, self.work).users_changed)

    def _make_what_all_use(
        self, disk: DiskRoom, windows: Windows, settings: AddressSettingsRepository, wake: Callable[[], None], name: str
    ) -> None:
        """``name``: of the broker."""
        journal, recorder, memory, now_ms = self.journal, self.recorder, self.memory, self.now_ms
        self.post_office = post_office = PostOffice()
        self.settings = SettingsInForce(post_office, settings)
        self.ready = ReadySet(wake)
        #: What is told of what happens: with the next commit, to queues, and in the log.
        self.events = Events(journal, post_office, self.settings, now_ms, wake, name)
        self.redrives = RedriveTally(journal, wake)
        self.fault_groups = FaultGroups(journal, now_ms, memory, self.redrives.bounced, self.events.fault)
        self.schedule, self.declared, self.awaited = Schedule(), Declared(memory), AwaitedRoom(wake)
        self.throttle = Throttle(journal, memory, wake)
        self.references = References(journal, recorder, self.fault_groups, self.redrives, now_ms, memory, self.awaited, self.settings, disk)
        self.going_round = GoingRound(self.references, recorder)
        self.room = Room(MemoryQuota(memory, post_office, now_ms), windows)
        self.reads = PageReads(journal, self.room.quota, post_office, self.ready, now_ms)
        self.to_disk = ToDisk(journal, recorder, self.references, self.room, self.reads, now_ms)
        self.enqueuing = Enqueuing(journal, self.references, self.to_disk, self.schedule, self.ready, self.going_round, now_ms)
        self.from_disk = FromDisk(journal, post_office, self.references, self.to_disk, self.reads, self.ready)

    def _make_what_is_declared(self, amqp: AmqpAccount) -> None:
        journal, access, now_ms = self.journal, self.access, self.now_ms
        post_office, settings, recorder, declared, ready = self.post_office, self.settings, self.recorder, self.declared, self.ready
        self.policies = Policies(journal, self.memory)
        self.in_force = InForce(post_office, settings, self.policies, recorder)
        idle, ignored = IdleQueues(ready.wake), IgnoredArguments()
        self.resources = Resources(access, post_office, settings, recorder, declared, self.policies, idle, self.limits, now_ms)
        self.resources.queue_gone.append(self.fault_groups.dead_letters.forget)
        self.contents = Contents(access, journal, recorder, self.references, self.from_disk, ready, now_ms)
        self.deletion = Deletion(
            post_office,
            settings,
            recorder,
            self.resources,
            self.contents,
            ready,
            lambda steps: self.work.begin(self.step_times.of("let go", steps)),
            now_ms,
        )
        make_exchanges = partial(
            Exchanges, access, journal, post_office, declared, self.throttle, self.memory, self.events, self.policies, ignored
        )
        self.virtual_hosts = VirtualHosts(
            access, journal, post_office, declared, self.resources, self.deletion, self.policies, make_exchanges
        )
        self.declared_queues = DeclaredQueues(access, post_office, settings, self.resources, ignored, ready, now_ms)
        self.dead_letter_exchanges = DeadLetterExchanges(self.resources, self.virtual_hosts, amqp, self._max_hops, self.now_ms)
        self.explanations = Explanations(self.post_office, self.settings, self.dead_letter_exchanges)

    def _make_what_dies(self) -> None:
        notes, settings, max_hops = self.events.notes, self.settings, self._max_hops
        self.parking = Parking(self.post_office, self.recorder, self.awaited, self.throttle, self.events, self.ready.wake)
        self.resources.queue_gone.append(self.parking.gone)
        ways = DeadLetterWays(self.post_office, settings, self.throttle, self.resources, self.dead_letter_exchanges, notes, max_hops)
        self.office = DeadLetterOffice(
            self.journal,
            self.references,
            self.enqueuing,
            self.from_disk,
            self.ready,
            self.throttle,
            self.events,
            ways,
            self.parking,
            self.now_ms,
        )

    def _make_what_ends(self, rng: Random) -> None:
        recorder, references, now_ms = self.recorder, self.references, self.now_ms
        self.settling = Settling(
            self.journal, self.enqueuing, self.from_disk, self.ready, lambda name, error: self.connections.settling_failed(name, error)
        )
        self.failing = Failing(recorder, references, self.fault_groups, self.going_round, self.office, self.ready, now_ms, rng)
        self.stories = Stories(self.journal, references, now_ms)
        self.settlement = Settlement(
            recorder, references, self.enqueuing, self.ready, self.office, self.failing, self.settling, self.stories, now_ms
        )
        self.settled_reports = SettledReports(
            self.access, recorder, self.fault_groups, self.redrives, self.settlement, self.stories, now_ms
        )

    def _make_what_goes_by_hand(self, amqp: AmqpAccount) -> None:
        access, journal, recorder, references, now_ms = self.access, self.journal, self.recorder, self.references, self.now_ms
        faults, from_disk, enqueuing = self.fault_groups, self.from_disk, self.enqueuing
        self.by_number = ByNumber(self.post_office, from_disk, enqueuing)
        choosing = Choosing(journal, faults, self.settings, from_disk, enqueuing)
        self.counting = Counting(journal, self.post_office, faults, references, choosing)
        disk_moves = DiskMoves(journal, faults, self.to_disk, self.awaited, self.ready)
        self.transfer = Transfer(recorder, references, from_disk, disk_moves, enqueuing, faults, self.redrives, now_ms)
        self.hand = ByHand(access, self.post_office, self.resources, references, self.by_number, self.transfer, now_ms)
        self.redriving = Redriving(
            access,
            journal,
            self.post_office,
            self.resources,
            self.redrives,
            choosing,
            self.hand,
            self.transfer,
            self.events,
            self.to_disk,
            now_ms,
            self.ready.wake,
        )
        largest = min(self.limits.max_message_bytes, largest_message(self.limits.max_frame_bytes))
        copying = Copying(amqp, self.limits.max_properties_bytes, largest, now_ms)
        self.editing = Editing(access, journal, self.settings, references, choosing, self.hand, self.transfer, copying)
        self.chosen = Chosen(access, Browsing(journal, from_disk), choosing, references, self.transfer, self.limits.answer_bytes, now_ms)
        waiting = Waiting(faults, from_disk)
        self.retrying = Retrying(access, recorder, references, from_disk, waiting, enqueuing, faults, self.room, now_ms)
        self.faults = Faults(access, self.post_office, faults, now_ms)

    def _make_what_comes_in(self, disk: DiskRoom) -> None:
        journal, references, enqueuing, throttle, now_ms = self.journal, self.references, self.enqueuing, self.throttle, self.now_ms
        self.duplicate_ids = DuplicateIds(journal, self.declared, self.resources, self._journal_section.duplicate_ids_per_address)
        overflow = Overflow(journal, references, self.events, self.office, now_ms)
        self.storing = Storing(journal, references, enqueuing, throttle, self.office, self.duplicate_ids, now_ms)
        fan_out = FanOut(journal, references, self.to_disk, self.ready)
        self.intake = Intake(
            journal, self.post_office, self.resources, throttle, enqueuing, fan_out, overflow, self.storing, self.duplicate_ids
        )
        self.flow = FlowControl(journal, self.post_office, references, self.events, self.memory, disk, now_ms, self.ready.wake)

    def _make_services(self) -> None:
        access, post_office, resources, idle, now_ms = self.access, self.post_office, self.resources, self.resources.idle, self.now_ms
        self.producers = Producers(access, post_office, self.settings, self.declared, resources, self.flow, self.high_watermarks)
        self.subscriptions = Subscriptions(access, post_office, self.declared, resources, self.declared_queues, self.ready)
        self.consumers = Consumers(self.ready, self.settlement, self.pulls, idle, now_ms)
        self.gets = Gets(access, self.dispatcher, self.office, self.pager, self.room.quota, self.recorder, self.journal, now_ms)
        self.connections = Connections(
            access, self.virtual_hosts, self.producers, self.consumers, self.transactions, self.room.quota, now_ms
        )
        self.removal = Removal(
            access,
            post_office,
            self.contents,
            self.deletion,
            self.declared_queues,
            self.virtual_hosts,
            self.connections,
            self.consumers,
            self.office,
        )
        self.changes = Changes(access, self.commanded, self.policies, self.in_force, self.virtual_hosts, self.deletion, self.office)
        references, enqueuing, parking = self.references, self.enqueuing, self.office.parking
        self.statistics = Statistics(self.memory, references, enqueuing, self.events, self.schedule, parking, self.flow)

    def _check_room(self, who: Who, places: Sequence[Place]) -> None:
        """Raises Refused where its user, or its address, may have no more queues. An address gets a queue of its name."""
        if isinstance(who, Connection):
            names = [place.names[0] for place in places if place.kind != "exchange"]
            for share in who.shares:
                share.make_queues(names, self.post_office.queues.__contains__)

    # -- users -------------------------------------------------------------------------------------------------------

    def _keep_user(self, name: str, content: UserContent | None) -> None:
        if content is None:
            self.journal.batch.delete_declaration(USER, name)
        else:
            self.journal.batch.declare(DeclarationRecord(USER, name, content))
