"""Engine: the parts of a broker, made and joined, and what they do when their time has come. Nothing here waits.

The loop calls ``drain`` once a turn in which something became dispatchable, and ``tick`` when it is time and at least once a second. Nobody
is asked whether there is something to do: who has something says so where it is looked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from homing.journal.contract import Outcome
from homing.journal.declarations import DeclarationRecord, UserContent

from .auth.access import Who, WriteLine, no_audit
from .auth.users import USER, Users
from .config.config import Config
from .connection import Connection
from .core import slow_consumer
from .core.amqp.account import NO_AMQP, AmqpAccount
from .core.amqp.vhost import DEFAULT
from .core.consumer import Consumer
from .core.dead_letter import EXPIRED
from .core.high_watermarks import HighWatermarks
from .core.memory import Memory
from .core.message import Where, largest_message
from .core.queue import Queue
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
from .long_work import WITHOUT_A_LOOP, Long, LongWork, LoopTurns, OnItsWay, Work
from .recording.journal_port import JournalPort
from .recording.recorder import Recorder
from .step_times import StepTimes
from .steps import LOOK_STEP, STEP, Steps
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
        self.limits, self._parked_retry_ms = config.limits, config.broker.parked_retry_ms
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
        self._disk_low = disk.low
        self._event_messages = EventMessages(self.events, self.virtual_hosts.find(DEFAULT).exchanges, self.office, self.intake, now_ms)
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
        self._long = LongWork(turns, wake, self._kinds_of_long_work())
        #: Messages wait for their turn; some have expired and are there still.
        self._in_line = self._expiring = False
        #: All queues are being looked at.
        self._sweeps = False
        self._next_second_ms = self._next_parked_ms = 0

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

    def _kinds_of_long_work(self) -> dict[str, Long]:
        state, office, call = self.state, self.office, self.step_times.call
        bounded = OnItsWay(self.journal, state.wake).bounded
        return {
            # These two see to it by themselves what is on its way to the disk.
            "fan-out": (lambda: self._in_line, lambda: call("fan-out", state.throttle.go_on)),
            "redrive": (lambda: state.redrives.active, lambda: call("redrive", self.redriving.go_on)),
            "work": bounded((lambda: self.work.under_way, self.work.go_on)),
            "settle": bounded((lambda: self.settling.lines, lambda: call("settle", self.settling.go_on))),
            "parked": bounded((self._parked_may_go, lambda: call("parked", office.parking.go_on))),
            "trim": bounded((lambda: office.untrimmed, lambda: call("trim", office.go_on))),
            "by time": bounded((lambda: self._expiring or state.going_round.due, lambda: call("by time", self._by_time))),
        }

    def _parked_may_go(self) -> bool:
        return bool(self.awaited.found) or self.office.parking.bindings_seen != self.post_office.bindings_version

    def drain(self) -> int:
        """Dispatches every queue of the ready set, each within its budget. Returns when ``tick`` is wanted: 0 where it is now."""
        state, office, now_ms = self.state, self.office, self.now_ms()
        self._in_line = state.throttle.turn()
        if (
            self._in_line
            or self.work.under_way
            or self.settling.lines
            or self._parked_may_go()
            or office.untrimmed
            or state.redrives.active
            or self._expiring
            or state.going_round.due
        ):
            self._long.wait()
        if state.pager.held_back:
            state.pager.look_again()
        if self.events.waiting:
            self._event_messages.send()
        if state.ready.queues and not self.dispatcher.stopping:
            if self.journal.ids_reserved:
                self.dispatcher.ready(now_ms)
            else:
                state.throttle.wait_for_numbers()
        if self.flow.charged:
            self.flow.watch_shares()
        if self.flow.waiting:
            self.flow.relieve()
        next_ms = self.next_ms()
        return 0 if next_ms <= now_ms else next_ms

    def next_ms(self) -> int:
        """When ``tick`` is wanted next."""
        schedule, expiries, idle = self.schedule, self.references.expiries, self.resources.idle
        soon = min(schedule.look_at_ms, self.pulls.look_at_ms, idle.look_at_ms, self.redriving.look_at_ms)
        if not self._expiring:
            soon = min(soon, expiries.look_at_ms)
        return min(soon, self.going_round.look_at_ms, self._next_second_ms)

    def tick(self) -> None:
        """What falls due: redeliveries, expirations, pulls, and once a second everything that is only looked at then."""
        state, now_ms = self.state, self.now_ms()
        if state.schedule.look_at_ms <= now_ms:
            state.enqueuing.enqueue(state.schedule.take_due(now_ms, SWEEP_BUDGET))
        if state.references.expiries.look_at_ms <= now_ms and not self._expiring:
            self._expiring = True
            self._long.wait()
        if state.going_round.look_at_ms <= now_ms:
            state.going_round.look(now_ms)
            self._long.wait()
        state.pager.tick(now_ms)
        if state.redrives.active or self.redriving.look_at_ms <= now_ms:
            self.redriving.go_on()
        if self.pulls.look_at_ms <= now_ms:
            self.pulls.end(now_ms, self._nothing_for)
        if self.resources.idle.look_at_ms <= now_ms:
            for queue in self.resources.expired():
                self.removal.end(queue, "expired")
        if now_ms >= self._next_second_ms:
            self._next_second_ms = now_ms + _SECOND_MS
            self._every_second(now_ms)

    def _by_time(self) -> None:
        if self._expiring:
            self._expire()
        if self.going_round.due:
            self._write_returned()

    def _expire(self) -> None:
        """A step of what has expired."""
        expiries, now_ms = self.references.expiries, self.now_ms()
        for reference in expiries.take_expired(now_ms, STEP):
            if not reference.expired(now_ms) or reference.where in (Where.IN_COMMIT, Where.GONE):
                continue
            if reference.where is not Where.DELIVERING:
                self.office.dead_letter(reference, EXPIRED)
        self._expiring = expiries.look_at_ms <= now_ms
        if self._expiring:
            self.ready.wake()

    def _write_returned(self) -> None:
        self.going_round.go_on(self.now_ms())
        if self.going_round.due:
            self.ready.wake()

    def _nothing_for(self, consumer: Consumer) -> bool:
        """Whether a pull may be answered that there is nothing: what is on disk only, or was given back, may still come."""
        queue = consumer.queue
        return not (queue in self.ready.queues or queue.shut or consumer.returning or self.pager.may_find(consumer))

    def weigh_declared(self) -> None:
        """What is declared, as it is now. About twice a second."""
        self.declared.weigh(self._count_declared())

    def _count_declared(self) -> dict[str, int]:
        connections, queues = self.connections.all.values(), self.post_office.queues
        consumers = [consumer for each in connections for consumer in (*each.consumers.values(), *each.retired.values())]
        hosts = self.virtual_hosts.all()
        exchanges = [exchange for host in hosts for exchange in host.exchanges.exchanges.values()]
        return {
            "queues": len(queues),
            "addresses": len(self.post_office.addresses),
            "virtual hosts": len(hosts) - 1,
            "exchanges": sum([not exchange.predeclared for exchange in exchanges]),
            "consumers": len(consumers),
            "selectors": sum([len(each.selector.text) for each in consumers if each.selector is not None]),
            "producers": sum([len(each.producers) for each in connections]),
            "high watermarks": self.high_watermarks.count,
            "clients with high watermarks": self.high_watermarks.clients,
            "bindings": sum([len(exchange.bindings) for exchange in exchanges]),
            "nodes of topic patterns": sum([exchange.nodes for exchange in exchanges]),
            "duplicate ids": self.intake.duplicate_ids,
            "characters of duplicate ids": self.intake.duplicate_characters,
        }

    def _every_second(self, now_ms: int) -> None:
        if not self._sweeps:
            self._sweeps = True
            self.work.begin(self.step_times.of("sweep", self._sweep()), self._swept, _raise)
        for queue, outcome in list(self.office.parking.staying.items()):
            self._look_at_staying(queue, outcome)
        if self.journal.busy():
            # Broker time goes along with what is written anyway; an idle broker writes nothing.
            self.journal.batch.clock(now_ms)
        self.fault_groups.record_seen(now_ms)
        self.recorder.write_rounds()
        self.recorder.transient.look(now_ms)
        if now_ms >= self._next_parked_ms:
            self._next_parked_ms = now_ms + self._parked_retry_ms
            self.office.parking.try_all()
            still_open = {(producer.client, producer.number) for producer in self.flow.producers}
            for client, number in self.high_watermarks.forget(now_ms - self._journal_section.marks_retention_ms, still_open):
                self.journal.batch.forget_producer(f"{client}/{number}")
            self.fault_groups.forget(now_ms - self._journal_section.history_retention_ms, self.post_office.queues)
        if self.flow.waiting:
            self.flow.relieve()
        self.flow.look(now_ms)
        self.users.look(now_ms)
        self.events.disk(self._disk_low())
        self.events.notes.came_back(self.returns, now_ms)
        self.returns.clear()
        self.events.notes.look(now_ms)

    def _sweep(self) -> Steps[None]:
        """All consumers and transactions, for what took too long, and all queues and addresses."""
        looks = 0
        for connection in list(self.connections.all.values()):
            for consumer in (*connection.consumers.values(), *connection.retired.values()):
                if late := self.settlement.time_out(consumer, self.now_ms()):
                    connection.front_end.not_held(consumer, [each.tag for each in late])
                if why := slow_consumer.look(consumer, self.now_ms()):
                    self._is_slow(connection, consumer, why)
                looks += 1 + len(late) * (LOOK_STEP // STEP)
                if looks >= LOOK_STEP:
                    looks = 0
                    yield
            self.transactions.time_out(connection, self.now_ms())
        yield from self.resources.sweep()

    def _is_slow(self, connection: Connection, consumer: Consumer, why: str) -> None:
        self.events.slow(consumer, why)
        if connection.open and consumer.queue.settings.slow_consumer_policy == "kill":
            self.connections.end(connection, "connection-closed", f"its consumer of queue {consumer.queue.name} is slow: {why}")

    def _swept(self, _: None) -> None:
        self._sweeps = False

    def _look_at_staying(self, queue: Queue, outcome: Outcome) -> None:
        """One that stays beyond its end ends as soon as nothing is parked in it, unless somebody uses it again."""
        if queue.consumers or (outcome == EXPIRED and self.resources.idle.in_use(queue, self.now_ms())):
            del self.office.parking.staying[queue]
            self.resources.idle.watch(queue)
        else:
            self.removal.end(queue, outcome)

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
