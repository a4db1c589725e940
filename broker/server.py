"""Composition root: build, recover, listen, shut down. The only file that knows every part."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from homing.journal.contract import Recovered
from homing.journal.errors import JournalError
from homing.journal.journal import Journal
from homing.journal.options import JournalOptions
from homing.journal.read.queries import JournalReader

from . import __version__, audit, preload, start_notes
from .auth.logins import Logins
from .broker import Broker
from .clock import BrokerClock
from .config.changes import Change, changes
from .config.config import Config
from .core.counts import Histogram
from .dead_letter_sweep import DeadLetterSweep
from .declarations import declare
from .errors import Refused
from .heap import Heap
from .http.health import Health
from .limits import BrokerLimits
from .listeners import Listeners, listen, place
from .log_files import log_options, open_log, opened
from .logs import LogWriter
from .management.calls import Calls
from .protocols.transport import SocketTransport
from .recording.old_deaths import are_left, find_causes
from .recording.recovery import recover
from .reload import log_changes, read_again, take_up
from .service_manager import ServiceManager
from .shutdown import close_in_time, drain, until_stopped
from .start_check import StartCheck
from .tls.certificate import Certificate

if TYPE_CHECKING:
    from .http.listener import HttpListener

log = logging.getLogger("homing")

#: The writer's thread must win the interpreter's lock back often: the default of 5 ms starves it beside a busy loop
#: (docs/performance-budget.md).
_SWITCH_INTERVAL_S: Final = 0.0002
#: A disk that has not answered for this long is named by the probes.
_DISK_HANGS_S: Final = 5.0
#: The part of memory-limit that the journal's page cache takes at most, and what it has in any case.
_CACHE_SHARE: Final = 16
_LEAST_CACHE_BYTES: Final = 2 << 20
#: A page of an answer, where frames are not smaller.
_ANSWER_BYTES: Final = 512 * 1024
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
    ) -> None:
        """``log_writer``: what a reload gives the log's settings to; None where the log is somebody else's."""
        self.config = config
        self.manager = ServiceManager()
        self._log_writer = log_writer
        self._journal = journal
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._turn_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0
        #: When the timer is to ring, and how late it was, in seconds.
        self._ring_at = 0.0
        self._loop_lag = Histogram(_LAGS_S)
        self._last_beat = 0.0
        self._reloading = asyncio.Lock()
        limits = config.limits
        self._certificate = certificate
        self._logins = Logins(lambda: self.broker.access.users.hashes, limits.login_threads, limits.login_timeout_ms)
        self._reader: JournalReader | None = None
        self._start_check: StartCheck | None = None
        self._old_deaths: asyncio.Task[None] | None = None
        self.broker = Broker(
            journal,
            config.settings_repository(),
            clock.now_ms,
            rng or Random(secrets.randbits(64)),
            self._wake,
            BrokerLimits(
                memory_bytes=config.broker.memory_limit_bytes,
                store_bytes=config.broker.store_limit_bytes,
                temp_bytes=config.broker.temp_limit_bytes,
                transaction_operations=config.limits.max_transaction_operations,
                transaction_bytes=config.limits.max_transaction_bytes,
                transaction_references=config.limits.max_transaction_references,
                transaction_timeout_ms=config.limits.transaction_timeout_ms,
                max_hops=config.broker.max_hops,
                duplicate_ids=config.journal.duplicate_ids_per_address,
                marks_retention_ms=config.journal.marks_retention_ms,
                history_retention_ms=config.journal.history_retention_ms,
                parked_retry_ms=config.broker.parked_retry_ms,
                selector_characters=config.limits.max_selector_characters,
                selector_depth=config.limits.max_selector_depth,
                max_queues=config.limits.max_queues,
                properties_bytes=config.limits.max_properties_bytes,
                window_messages=config.limits.window_messages,
                window_bytes=config.limits.window_bytes,
                window_scheduled=config.limits.window_scheduled,
                answer_bytes=min(_ANSWER_BYTES, config.limits.max_frame_bytes // 2),
            ),
            keep_all_history=config.broker.history == "full",
            disk_low=lambda: journal.space_low,
            name=config.broker.name,
        )
        self.broker.access.audit = audit.write
        self.sweep = DeadLetterSweep(self.broker, config.data_directory, config.journal.archive_directory, self._journal_reader)
        self._heap = Heap(lambda: self.broker.memory.bytes, self._loop.time)
        self._calls = Calls(self.broker, self)
        self.listeners = Listeners(config, self.broker, self._logins, certificate, self._calls.run)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Something became dispatchable: one turn will look at all of it."""
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        broker = self.broker
        try:
            broker.drain()
            next_ms = broker.next_ms()
            if next_ms <= self._clock.now_ms():
                self._tick()
                if broker.state.ready:
                    self._wake()
                next_ms = broker.next_ms()
        except Exception as error:
            self._fail(error)
            return
        if next_ms != self._armed_for_ms:
            self._arm(next_ms)

    def _tick(self) -> None:
        self._clock.adopt()
        self.broker.tick()
        now = self._loop.time()
        if now - self._last_beat >= 0.5:
            self._last_beat = now
            self._calls.meter.sample()
            self.broker.weigh_declared()
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
        config = self.config
        recover(self.broker, recovered)
        for sentence in start_notes.contradictions(self.broker.settings):
            log.error("settings-contradict: %s", sentence)
        declare(self.broker, config)
        start_notes.warn(config)
        start_notes.log_changes_of_rules(self.broker.state.post_office.queues, recovered.settings)
        self.record_settings()
        await self._journal.flush()
        listening = await self.listeners.open(recovered.broker_id)
        self._turn()
        return listening

    def show_metrics(self, http: HttpListener) -> None:
        from .http.metrics import BrokerCollector
        from .http.monitor import Monitors

        http.show(
            BrokerCollector(
                self.broker,
                self._calls.meter,
                __version__,
                statistics=self.statistics,
                disk_low=lambda: self._journal.space_low,
                disk_waits_s=lambda: self._journal.waits_s,
                loop_lag=self._loop_lag,
                refused=lambda: self._logins.refused,
                certificate_ends_s=lambda: None if self._certificate is None else self._certificate.ends_s,
            ),
            Monitors(self._logins, self.broker.access, self.config.insecure),
        )

    # -- what only the server can do (management.calls.Host) ---------------------------------------------------------

    def history(self, message_id: int) -> dict[str, Any] | None:
        """In a thread: a short read through a connection of its own."""
        return self._journal_reader().history(message_id)

    def last_attempts(self, entries: list[tuple[int, int]]) -> list[dict[str, Any] | None]:
        """In a thread: of each queue entry (message_id, sequence) the last attempt, None where there was none."""
        return self._journal_reader().last_attempts(entries)

    def committed(self, transaction_id: str) -> bool:
        """In a thread: whether a transaction of the last 24 h was committed."""
        return self._journal_reader().committed(transaction_id)

    def fault_lives(self) -> dict[int, dict[str, int]]:
        """In a thread: see JournalReader."""
        return self._journal_reader().fault_lives(self._clock.now_ms())

    def name_old_deaths(self) -> None:
        """See recording/old_deaths.py."""
        read = self._journal_reader
        self._old_deaths = self._loop.create_task(find_causes(self.broker, lambda after, limit: read().old_deaths(after, limit)))

    def fault_counts(self) -> dict[str, Any]:
        """In a thread: see JournalReader."""
        return self._journal_reader().fault_counts(self._clock.now_ms())

    def failures(self, since_ms: int, most: int) -> Iterator[Any]:
        """In a thread: see JournalReader."""
        return self._journal_reader().failures(since_ms, most)

    def count_chosen(self, queue_id: int, which: Any) -> dict[tuple[int, str | None], int]:
        """In a thread: see JournalReader."""
        return self._journal_reader().count_chosen(queue_id, which)

    def first_and_last(self, queue_ids: list[int]) -> dict[int, tuple[int, int]]:
        """In a thread: see JournalReader."""
        return self._journal_reader().first_and_last(queue_ids, self._clock.now_ms())

    def calendar(self, queue_ids: list[int], now_ms: int, parts: Any) -> dict[int, int]:
        """In a thread: see JournalReader."""
        return self._journal_reader().calendar(queue_ids, now_ms, parts)

    def describe_fault(self, fault_ids: list[int]) -> dict[str, Any]:
        """In a thread: see JournalReader."""
        return self._journal_reader().describe_fault(fault_ids, self._clock.now_ms())

    def _journal_reader(self) -> JournalReader:
        if self._reader is None:
            self._reader = JournalReader(self.config.data_directory)
        return self._reader

    def settings_in_force(self) -> dict[str, Any]:
        return self.config.describe(self.broker.settings)

    async def backup(self, name: str) -> dict[str, Any]:
        """Raises Refused where none was made."""
        try:
            return await self._journal.backups.make(name)
        except JournalError as error:
            raise Refused(error.code, error.message, error.fix) from error
        except asyncio.CancelledError:
            raise Refused("backup-interrupted", "the broker is stopping", "make the backup of the stopped one, with --data") from None

    def sockets(self) -> dict[object, SocketTransport]:
        return {transport.session: transport for transport in self.listeners.transports}

    def statistics(self) -> dict[str, Any]:
        """What the journal has done since the start, and what stands in memory. Times in ms, sizes in bytes."""
        held, account = self.broker.state.references, self.broker.memory
        return {
            "journal": asdict(self._journal.statistics),
            **account.describe(),
            **held.describe(),
            "events": self.broker.events.describe(),
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
            self.config = take_up(self.broker, self.config, read)
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
        self.broker.recorder.batch.settings(self._clock.now_ms(), self.config.journal_settings(self.broker.settings))

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
        """Says goodbye. What clients hold comes back as at a clean close: nobody is blamed for our stopping."""
        for connection in list(self.broker.connections.values()):
            self.broker.disconnect(connection, lost=False)
        for transport in list(self.listeners.transports):
            transport.goodbye("broker-stopping", "the broker is stopping", "reconnect when it is back")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.listeners.close()
        self._logins.close()
        self.sweep.close()
        if self._reader is not None:
            self._reader.close()
        if self._start_check is not None:
            self._start_check.close()
        if self._old_deaths is not None:
            self._old_deaths.cancel()


def _journal_options(config: Config) -> JournalOptions:
    """A small memory-limit is for clients, not for pages of the file."""
    options = JournalOptions(**config.journal.model_dump())
    return replace(options, cache_bytes=min(options.cache_bytes, max(_LEAST_CACHE_BYTES, config.broker.memory_limit_bytes // _CACHE_SHARE)))


async def serve(config: Config, json_ready: bool, log_writer: LogWriter) -> int:
    """Runs until SIGTERM or SIGINT (0) or until the journal fails (its exit code)."""
    health = Health()
    certificate = None if config.tls is None else Certificate(config.tls)
    if config.http is None:
        return await _serve(config, json_ready, log_writer, certificate, health, None, {})
    # Half of what a broker imports: not for one that has no such port.
    from .http.listener import HttpListener

    http = HttpListener(health)
    listening = await listen("http", config.http, http.make, certificate)
    try:
        return await _serve(config, json_ready, log_writer, certificate, health, http, listening)
    finally:
        for each in listening.values():
            each.close()
        http.close()


async def _serve(
    config: Config,
    json_ready: bool,
    log_writer: LogWriter,
    certificate: Certificate | None,
    health: Health,
    http: HttpListener | None,
    listening_for_http: dict[str, asyncio.Server],
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    journal, recovered = await Journal.open(config.data_directory, _journal_options(config), BrokerClock().now_ms())
    clock = BrokerClock(recovered.clock_ms)
    if clock.behind_ms:
        log.warning("clock-behind: the clock is %d s behind the journal's last entry; the clock is believed", clock.behind_ms // 1000)
    server = Server(config, journal, clock, log_writer, certificate)
    try:
        listening = await server.start(recovered)
        clean_stop, old_deaths = recovered.clean_stop, are_left(recovered.declarations)
        del recovered  # every message as it was read; the broker has its own by now
        server.listeners.watch_certificate()
        loop.add_signal_handler(signal.SIGHUP, server.reload_on_signal)
        places = {name: place(each) for name, each in (listening | listening_for_http).items()}
        print(_ready_line(config, places, json_ready), flush=True)
        if http is not None:
            server.show_metrics(http)
        health.disk_degraded = lambda: journal.space_low or journal.waits_s > _DISK_HANGS_S
        health.state = "ready"
        server.manager.ready(_ready_line(config, places, False))
        server.manager.feed_watchdog(loop)
        server.sweep.start()
        # Whoever connects meanwhile waits for it: this takes a fifth of a second, and is not to happen in the middle of a settlement.
        preload.load(config)
        if not clean_stop:
            server.look_for_damage()
        if old_deaths:
            server.name_old_deaths()
        return await until_stopped(server, journal, list(listening.values()), stop, health)
    finally:
        server.close()
        await close_in_time(journal)
        server.manager.close()


@asynccontextmanager
async def embedded(config: Config, clock_after: Callable[[int], BrokerClock], rng: Random) -> AsyncIterator[tuple[Server, dict[str, str]]]:
    """A broker in somebody else's process, whose signals, log and output are left alone; and where it listens, by protocol.

    ``clock_after``: its clock, from the latest time that the journal saw. Raises JournalError and Refused where it cannot start.
    """
    journal, recovered = await Journal.open(config.data_directory, _journal_options(config), clock_after(0).now_ms())
    server = Server(config, journal, clock_after(recovered.clock_ms), None, rng=rng)
    try:
        listening = await server.start(recovered)
        yield server, {name: place(each) for name, each in listening.items()}
        for each in listening.values():
            each.close()
        await drain(server, journal)
    finally:
        server.close()
        await journal.close()


def _ready_line(config: Config, places: dict[str, str], as_json: bool) -> str:
    if as_json:
        return json.dumps({"ready": True, **places, "pid": os.getpid(), "data": str(config.data_directory), "version": __version__})
    shown = " ".join(f"{name}={place}" for name, place in places.items())
    return f"homing ready {shown} data={config.data_directory} pid={os.getpid()}"


def run_server(config: Config, *, json_ready: bool = False) -> int:
    """The process: logging to stderr, uvloop, and the exit code. Raises JournalError or Refused when it cannot start."""
    import uvloop

    with opened(config) as writer:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        preload.raise_file_limit(config)
        # Messages are freed by their counts, not by the collector: let it look at what is new only seldom, and at the program never.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(config, json_ready, writer))
