"""Engine: the parts of a broker, made and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from homing.journal.declarations import DeclarationRecord, UserContent

from .auth.access import Who, WriteLine, no_audit
from .auth.users import USER, Users
from .config.config import Config
from .connection import Connection
from .core.amqp.account import NO_AMQP, AmqpAccount
from .core.amqp.vhost import DEFAULT
from .core.dead_letter import EXPIRED
from .core.high_watermarks import HighWatermarks
from .core.memory import Memory
from .core.message import largest_message
from .core.rights import Place
from .delivery.by_hand import ByHand
from .delivery.changes import Changes
from .delivery.chosen import Chosen
from .delivery.connections import Connections
from .delivery.consumers import Consumers
from .delivery.dead_lettering import DeadLetterOffice
from .delivery.dispatching import Dispatcher
from .delivery.editing import Editing
from .delivery.event_messages import EventMessages
from .delivery.faults import Faults
from .delivery.flow_control import FlowControl
from .delivery.gets import Gets
from .delivery.open_logins import OpenLogins
from .delivery.producers import Producers
from .delivery.publish import Intake
from .delivery.pull_timeouts import Pulls
from .delivery.redriving import Redriving
from .delivery.removal import Removal
from .delivery.retrying import Retrying
from .delivery.settled import SettledReports
from .delivery.settlement import Settlement
from .delivery.settling import Settling
from .delivery.statistics import Statistics
from .delivery.subscriptions import Subscriptions
from .delivery.transactions import Transactions
from .entries.by_number import ByNumber
from .entries.counting import Counting
from .entries.disk_room import DiskRoom
from .entries.room import Windows
from .entries.shared_state import SharedState
from .long_work import WITHOUT_A_LOOP, LoopTurns, Work
from .recording.journal_port import JournalPort
from .recording.recorder import Recorder
from .step_times import StepTimes
from .topology.amqp.dead_letter_exchanges import DeadLetterExchanges
from .topology.amqp.ignored import IgnoredArguments
from .topology.amqp.policies import Policies
from .topology.amqp.queues import DeclaredQueues
from .topology.amqp.virtual_hosts import VirtualHosts
from .topology.commanded_settings import CommandedSettings
from .topology.explain import Explanations
from .topology.in_force import InForce
from .topology.resources import Resources

#: Due or expired references looked at in one turn.
SWEEP_BUDGET: Final = 5000
_SECOND_MS: Final = 1000
_NO_LIMIT: Final = DiskRoom()


class Engine:
    def __init__(
        self,
        journal: JournalPort,
        config: Config,
        now_ms: Callable[[], int],
        rng: Random,
        wake: Callable[[], None],
        disk: DiskRoom = _NO_LIMIT,
        turns: LoopTurns = WITHOUT_A_LOOP,
        amqp: AmqpAccount = NO_AMQP,
        audit: WriteLine = no_audit,
    ) -> None:
        """``wake``: there is to be a turn. ``audit``: see Access."""
        self.limits = config.limits
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
        self.state = SharedState(
            journal, self.recorder, settings, now_ms, rng, wake, config.broker.max_hops, windows, self.memory, disk, config.broker.name
        )
        state = self.state
        self.post_office, self.settings = state.post_office, state.settings
        self.fault_groups, self.redrives = state.faults, state.redrives
        self.ready, self.enqueuing, self.references, self.schedule = state.ready, state.enqueuing, state.references, state.schedule
        self.room, self.reads, self.to_disk, self.pager = state.room, state.reads, state.to_disk, state.pager
        self.throttle, self.declared, self.awaited, self.going_round = state.throttle, state.declared, state.awaited, state.going_round
        self.returns, self.events = state.returns, state.events
        journal.on_commit = self.throttle.written
        self._make_what_is_declared(amqp)
        self.pager.expire = lambda reference: self.office.dead_letter(reference, EXPIRED)
        self.dispatcher = Dispatcher(self.state, self.office)
        self.settling = Settling(self.state, lambda name, error: self.connections.settling_failed(name, error))
        self.settlement = Settlement(self.state, self.office, self.settling)
        self.settled_reports = SettledReports(self.access, self.state, self.settlement)
        self._make_what_goes_by_hand(amqp)
        self.intake = Intake(self.state, self.resources, self.office, config.journal.duplicate_ids_per_address)
        self.flow = FlowControl(self.state, disk)
        self.event_messages = EventMessages(self.events, self.virtual_hosts.find(DEFAULT).exchanges, self.office, self.intake, now_ms)
        self.transactions = Transactions(self.state, self.intake, self.settlement, self.settling, self.limits)
        self.high_watermarks = HighWatermarks()
        self.pulls = Pulls()
        self._make_services()
        #: Long work that is under way; each returns whether there is more to do.
        self.work = Work(wake, turns)
        #: Routes are asked for anew, and what is open of those that may not have it any more ends.
        self.users.changed.append(lambda over, others: self.post_office.settings_changed())
        self.users.changed.append(OpenLogins(self.access, self.connections, journal, self.work).users_changed)
        self.resources.begin = lambda steps: self.work.begin(self.step_times.of("let go", steps), lambda _: None, _raise)

    def _make_what_is_declared(self, amqp: AmqpAccount) -> None:
        self.policies = Policies(self.state)
        self.in_force = InForce(self.post_office, self.settings, self.policies, self.recorder)
        self.resources = Resources(self.access, self.state, self.policies, self.limits)
        ignored = IgnoredArguments()
        self.virtual_hosts = VirtualHosts(self.access, self.state, self.resources, self.policies, ignored)
        self.declared_queues = DeclaredQueues(self.access, self.state, self.resources, ignored)
        exchanges = DeadLetterExchanges(self.state, self.resources, self.virtual_hosts, amqp)
        self.office = DeadLetterOffice(self.state, self.resources, exchanges)
        self.explanations = Explanations(self.post_office, self.settings, exchanges)

    def _make_what_goes_by_hand(self, amqp: AmqpAccount) -> None:
        self.by_number = ByNumber(self.state)
        self.hand = ByHand(self.access, self.state, self.resources, self.by_number)
        self.redriving = Redriving(self.access, self.state, self.resources, self.hand)
        largest = min(self.limits.max_message_bytes, largest_message(self.limits.max_frame_bytes))
        self.editing = Editing(self.access, self.state, self.hand, self.limits.max_properties_bytes, largest, amqp)
        self.chosen = Chosen(self.access, self.state, self.hand, self.limits.answer_bytes)
        self.retrying, self.counting = Retrying(self.access, self.state), Counting(self.state)
        self.faults = Faults(self.access, self.state)

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
            access, post_office, resources, self.declared_queues, self.virtual_hosts, self.connections, self.consumers, self.office
        )
        self.changes = Changes(access, self.commanded, self.policies, self.in_force, self.virtual_hosts, resources, self.office)
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


def _raise(error: Exception) -> None:
    raise error
