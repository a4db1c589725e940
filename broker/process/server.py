"""Composition root: build, recover, listen, shut down. The only file that knows every part."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, cast

from homing.journal.contract import Recovered
from homing.journal.errors import JournalError
from homing.journal.export.exports import Exports
from homing.journal.journal import Journal
from homing.journal.options import JournalOptions
from homing.journal.read.queries import JournalReader
from homing.journal.replication.leader import Leader

from .. import __version__
from ..answers.administration import Backup
from ..answers.inventory import ProcessStatistics
from ..answers.parts import Properties
from ..auth.logins import Logins
from ..clock import BrokerClock
from ..config.changes import Change, changes
from ..config.config import Config
from ..core.amqp.account import AmqpAccount
from ..core.counts import Histogram
from ..core.memory import Kind, Owner
from ..entries.disk_room import DiskRoom
from ..errors import Refused
from ..logs import audit
from ..logs.files import log_bytes, log_options, open_log
from ..logs.writer import LogWriter
from ..management.calls import Calls
from ..management.process import Past, in_steps
from ..protocols.amqp091.codec_cache import SHARED
from ..protocols.amqp091.message_mapping import headers_seen, rewritten
from ..protocols.amqp091.options import counts_sent_deaths
from ..protocols.output import Outgoing
from ..protocols.transport import SocketTransport
from ..protocols.turns import Turns
from ..tls.certificate import Certificate
from . import keeping, start_notes
from .dead_letter_sweep import DeadLetterSweep
from .declarations import declare
from .files import Files
from .heap import Heap
from .housekeeping import Housekeeping
from .listeners import Listeners, endpoint
from .long_work_turns import LongWorkTurns
from .making import make_broker
from .old_deaths import find_causes
from .recovery import recover
from .reload import log_changes, read_again, take_up
from .service_manager import ServiceManager
from .shutdown import drain
from .start_check import StartCheck
from .turn import BrokerTurn

if TYPE_CHECKING:
    from ..http.listener import HttpListener
    from .cluster.leading import Leading

log = logging.getLogger("homing")

#: The part of memory-limit that the journal's page cache takes at most, and what it has in any case.
_CACHE_SHARE: Final = 16
_LEAST_CACHE_BYTES: Final = 2 << 20
#: The part of it that what all AMQP connections remember together takes at most.
_SHARE_OF_SHARED_CACHE: Final = 64
#: How soon it is looked again where nothing is handed out.
_HELD_S: Final = 0.05
#: A leader that the log does not answer hangs up after so many times fail-over-after: others lead by then, where they can.
_LEFT_AFTER: Final = 2
_EXPORT_CHILD: Final = "homing.broker.process.export_child"
_LAGS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Server:
    """One broker process: journal, broker, listeners and the timer between them."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        clock: BrokerClock,
        log_writer: LogWriter | None,
        certificate: Certificate | None = None,
        rng: Random | None = None,
        manager: ServiceManager | None = None,
        leading: Leading | None = None,
    ) -> None:
        """``log_writer``: what a reload gives the log's settings to; None where the log is somebody else's. ``leading``: as a node of
        a cluster."""
        self.config = config
        self.manager = manager or ServiceManager()
        self._log_writer = log_writer
        self._journal = journal
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._turn_scheduled = False
        #: While it is in doubt nothing is handed out.
        self._leader = None if leading is None else leading.leader
        replication = config.journal.replication
        self._silent_s = 0.0 if replication is None else replication.fail_over_after_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0
        #: When the timer is to ring, and how late it was, in seconds.
        self._ring_at = 0.0
        self._loop_lag = Histogram(_LAGS_S)
        self._last_beat = 0.0
        self._reloading = asyncio.Lock()
        limits = config.limits
        self._certificate = certificate
        self._logins = Logins(lambda: self.broker.users.hashes, limits.login_threads, limits.login_timeout_ms)
        self._reader: JournalReader | None = None
        self._start_check: StartCheck | None = None
        self._old_deaths: asyncio.Task[None] | None = None
        self.kept = keeping.Kept({}, {})
        turns = Turns(self._loop.call_soon, time.monotonic)
        self._outgoing = Outgoing(self._loop.call_soon)
        self._turns = LongWorkTurns(turns, self._wake, self._fail)
        log_room = None if leading is None else leading.node.view.log_room
        disk = DiskRoom(lambda: journal.space_low, config.broker.store_limit_bytes, keeping.temp_limit(config, journal), log_room)
        self.broker = make_broker(
            journal,
            config,
            clock.now_ms,
            rng or Random(secrets.randbits(64)),
            self._wake,
            disk,
            turns=self._turns,
            amqp=AmqpAccount(rewritten, partial(headers_seen, config.amqp is None or counts_sent_deaths(config.amqp.version))),
            audit=audit.write,
        )
        journal.on_answered = self._outgoing.leave
        self._housekeeping = Housekeeping(self.broker, config, disk.low)
        self._broker_turn = BrokerTurn(self.broker, self._housekeeping, self._turns)
        self.sweep = DeadLetterSweep(self.broker, config.data_directory, config.journal.archive_directory, self._journal_reader)
        exports = Exports(config.data_directory, _EXPORT_CHILD, clock.now_ms, lambda: journal.space_low)
        self.files = Files(exports, config.data_directory / config.journal.report_directory, clock.now_ms)
        self._heap = Heap(lambda: self.broker.memory.bytes, self._loop.time, self._release_memory)
        self._releasing: asyncio.Task[None] | None = None
        self._shared_cache = Owner(self.broker.memory, Kind.CACHES)
        self._calls = Calls(self.broker, self)
        secret = b"" if leading is None else leading.node.secret
        self.listeners = Listeners(config, self.broker, self._logins, certificate, self._calls.run, turns, self._outgoing, secret)
        if leading is not None:
            leading.node.event = self.broker.events.of_cluster

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Something became dispatchable: one turn will look at all of it."""
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        try:
            if self._leader is not None and self._leader.in_doubt(self._silent_s):
                self._hold(self._leader)
                return
            next_ms = self._broker_turn.drain()
            if not next_ms:
                self._tick()
                if self.broker.ready.queues:
                    self._wake()
                next_ms = self._broker_turn.next_ms()
        except Exception as error:
            self._fail(error)
            return
        self._outgoing.leave()
        if next_ms != self._armed_for_ms:
            self._arm(next_ms)

    def _hold(self, leader: Leader) -> None:
        """Once another node leads for sure, where it is only this one that the log does not answer, clients are sent there."""
        self._tick()
        if leader.in_doubt(_LEFT_AFTER * self._silent_s):
            for transport in list(self.listeners.transports):
                transport.abort()
        self._loop.call_later(_HELD_S, self._wake)

    def _tick(self) -> None:
        self._clock.adopt()
        self._broker_turn.tick()
        now = self._loop.time()
        if now - self._last_beat >= 0.5:
            self._last_beat = now
            self._calls.meter.sample()
            self._housekeeping.weigh_declared()
            SHARED.most_bytes = self.broker.memory.limit // _SHARE_OF_SHARED_CACHE
            self._shared_cache.hold(SHARED.bytes)
            for transport in list(self.listeners.transports):
                transport.beat()
            self.listeners.gathering.look()
            self._heap.look()

    def _arm(self, next_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for_ms = next_ms
        # At least every second: a wall clock that jumped forward must be noticed.
        in_s = min(1.0, max(0, next_ms - self._clock.now_ms()) / 1000)
        self._ring_at = time.monotonic() + in_s
        self._timer = self._loop.call_later(in_s, self._ring)

    def _ring(self) -> None:
        self._loop_lag.add(max(0.0, time.monotonic() - self._ring_at))
        self._armed_for_ms = 0
        self._turn()

    def _release_memory(self) -> None:
        SHARED.clear()
        self.broker.high_watermarks.make_anew()
        self._releasing = self._loop.create_task(self._journal.release_memory())

    def _fail(self, error: Exception) -> None:
        """A fault in the broker's own turn leaves its state in doubt: answer nobody, stop, and recover from the journal."""
        if not self._journal.failed.done():
            self._journal.failed.set_exception(error)

    def busy(self) -> bool:
        """Whether its journal has something to do."""
        return self._journal.busy() or self._journal.waits_s > 0

    # -- start -------------------------------------------------------------------------------------------------------

    async def start(self, recovered: Recovered) -> dict[str, asyncio.Server]:
        """As it stood, with what the file declares, and listening; returns who listens, by protocol. Raises Refused."""
        config, self.kept = self.config, keeping.at_last_stop(recovered.declarations)
        recover(self.broker, recovered)
        keeping.tell(self.broker, self.kept)
        keeping.tell_of_temp_limit(self.broker, config, recovered.declarations)
        for sentence in start_notes.contradictions(self.broker.settings.repository):
            log.error("settings-contradict: %s", sentence)
        for sentence in start_notes.ignored(self.broker.settings.repository, self.broker.commanded.layers):
            log.warning("setting-ignored: %s", sentence)
        declare(self.broker, config)
        start_notes.warn(config)
        start_notes.log_changes_of_rules(self.broker.post_office.queues, recovered.settings)
        self.record_settings()
        await self._journal.flush()
        listening = await self.listeners.open(recovered.broker_id)
        self._turn()
        return listening

    def show_metrics(self, http: HttpListener) -> None:
        from ..http.metrics import BrokerFigures
        from ..http.monitor import Monitors

        http.show(
            BrokerFigures(
                self.broker,
                self._calls.meter,
                __version__,
                statistics=self.statistics,
                disk_low=lambda: self._journal.space_low,
                disk_waits_s=lambda: self._journal.waits_s,
                loop_lag=self._loop_lag,
                refused=lambda: self._logins.refused,
                certificate_ends_s=lambda: None if self._certificate is None else self._certificate.ends_s,
            ).collect,
            Monitors(self._logins, self.broker.access, self.config.insecure),
        )

    # -- what only the server can do (management.calls.Host) ---------------------------------------------------------

    def past(self) -> Past:
        return cast(Past, self._journal_reader())

    def name_old_deaths(self) -> None:
        """See old_deaths.py."""
        read = self._journal_reader
        self._old_deaths = self._loop.create_task(find_causes(self.broker, lambda after, limit: read().old_deaths(after, limit)))

    def _journal_reader(self) -> JournalReader:
        if self._reader is None:
            self._reader = JournalReader(self.config.data_directory)
        return self._reader

    def settings_in_force(self) -> Properties:
        return self.config.describe(self.broker.settings.repository)

    async def backup(self, name: str) -> Backup:
        """Raises Refused where none was made."""
        try:
            return cast(Backup, await self._journal.backups.make(name))
        except JournalError as error:
            raise Refused(error.code, error.message, error.fix) from error
        except asyncio.CancelledError:
            raise Refused("backup-interrupted", "the broker is stopping", "make the backup of the stopped one, with --data") from None

    def sockets(self) -> dict[object, SocketTransport]:
        return {transport.session: transport for transport in self.listeners.transports}

    def statistics(self) -> ProcessStatistics:
        """What the journal has done since the start, and what stands in memory and in files. Times in ms, sizes in bytes."""
        held, memory = self.broker.references, self.broker.memory.describe()
        return {
            "version": __version__,
            "journal": asdict(self._journal.statistics),
            "disk": {
                "free_bytes": self._journal.statistics.disk_free_bytes,
                "reserve_bytes": self.config.journal.disk_reserve_bytes,
                "low": self._journal.space_low,
                "waits_ms": int(self._journal.waits_s * 1000),
            },
            "log_bytes": log_bytes(self.config),
            "memory_bytes": sum(memory.values()),
            "memory": memory,
            "durable_bytes": held.durable_bytes,
            "transient_bytes": held.transient_bytes,
            "spilled_bytes": held.spilled_bytes,
            "failed_not_kept": held.failed_not_kept,
            "events": self.broker.events.describe(),
            "queues_staying": self.broker.statistics.figures().queues_staying,
            "slow_policies": self.broker.policies.slow(),
        }

    async def reload(self) -> list[Change]:
        """Reads the file again, beside the loop; all of it takes effect or nothing. Raises Refused when it cannot be used."""
        async with self._reloading:
            self.manager.reloading()
            came_of_it = "reloaded"
            try:
                changed = await self._reload()
            except Refused as refusal:
                log.error("not-reloaded: %s; %s", refusal.message, refusal.fix)
                came_of_it = f"not reloaded: {refusal.message}"
                raise
            finally:
                self.manager.ready(came_of_it)
            log_changes(self.config.source_path, changed)
            return changed

    async def _reload(self) -> list[Change]:
        read = await asyncio.to_thread(read_again, self.config)
        certificate = None if self._certificate is None else await asyncio.to_thread(self._certificate.read)
        sink = None if self._log_writer is None else await asyncio.to_thread(open_log, read)
        try:
            changed = changes(self.config, read)
            steps = self.broker.step_times.of("reload", self.broker.in_force.alone(take_up(self.broker, self.config, read)))
            self.config = await in_steps(self.broker, steps)
        except Refused:
            if sink is not None:
                sink.close()
            raise
        if self._log_writer is not None and sink is not None:
            self._log_writer.take_up(log_options(self.config), sink)
        if self._certificate is not None and certificate is not None:
            self._certificate.take_up(certificate)
        self.record_settings()
        return changed

    def reload_on_signal(self) -> None:
        self._calls.start(self.reload(), lambda answer: None)  # the log says what came of it

    def record_settings(self) -> None:
        self.broker.journal.batch.settings(self._clock.now_ms(), self.config.journal_settings(self.broker.settings.repository))

    def look_for_damage(self) -> None:
        """After an unclean stop, while clients are served. Not on a disk that is nearly full, nor when the write-ahead log has grown to
        its limit: who reads keeps it from being used anew."""
        self._start_check = check = StartCheck(self.config.data_directory)
        full, long = "the disk is nearly full", "the write-ahead log has reached journal.wal-limit"
        self._journal.on_space = lambda low: check.leave_off(full) if low else None
        self._journal.on_wal_limit = lambda over: check.leave_off(long) if over else None
        if self._journal.space_low:
            check.leave_off(full)
        elif self._journal.wal_over:
            check.leave_off(long)
        else:
            check.start()

    # -- stop --------------------------------------------------------------------------------------------------------

    def stop_clients(self) -> None:
        """Says goodbye."""
        keeping.end_clients(self.broker)
        self.broker.fault_groups.record_seen(self.broker.now_ms(), waited_ms=0)
        for transport in list(self.listeners.transports):
            transport.goodbye("broker-stopping", "the broker is stopping", "reconnect when it is back")

    async def keep_messages(self, began_s: float) -> None:
        """See process/keeping.py. ``began_s``: the stop."""
        await keeping.keep_at_stop(self.broker, self._journal, began_s + self.config.broker.stop_timeout_ms / 1000)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._turns.close()
        self.listeners.close()
        self._logins.close()
        self.sweep.close()
        if self._reader is not None:
            self._reader.close()
        if self._start_check is not None:
            self._start_check.close()
        for task in (self._old_deaths, self._releasing):
            if task is not None:
                task.cancel()


def journal_options(config: Config) -> JournalOptions:
    """A small memory-limit is for clients, not for pages of the file."""
    options = JournalOptions(**config.journal.model_dump(exclude={"replication"}))
    return replace(options, cache_bytes=min(options.cache_bytes, max(_LEAST_CACHE_BYTES, config.broker.memory_limit_bytes // _CACHE_SHARE)))


@asynccontextmanager
async def embedded(config: Config, clock_after: Callable[[int], BrokerClock], rng: Random) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """A broker in somebody else's process, whose signals, log and output are left alone; and where it listens, by protocol.

    Dead letters that are too old or too many stay until somebody calls ``server.sweep.look()``.
    ``clock_after``: its clock, from the latest time that the journal saw. Raises JournalError and Refused where it cannot start.
    """
    journal, recovered = await Journal.open(config.data_directory, journal_options(config), clock_after(0).now_ms())
    server = Server(config, journal, clock_after(recovered.clock_ms), None, rng=rng)
    try:
        listening = await server.start(recovered)
        yield server, {name: endpoint(each) for name, each in listening.items()}
        for each in listening.values():
            each.close()
        await drain(server, journal)
    finally:
        server.close()
        await server.sweep.close_archiver()
        await server.files.discard_export()
        await journal.close()
