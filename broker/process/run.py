"""The process of a broker: its log, its loop, its signals, and its exit code."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from homing.journal.errors import JournalError
from homing.journal.journal import Journal
from homing.journal.migrations import VERSION

from .. import __version__
from ..clock import BrokerClock
from ..config.config import Config
from ..config.models import ReplicationSection
from ..core.settings.units import counted, format_duration_ms
from ..errors import Refused
from ..http.health import Health
from ..logs.files import opened
from ..logs.writer import LogWriter
from ..management.statistics import waiting
from ..tls.certificate import Certificate
from ..version import BUILD, commit
from . import preload
from .console_child import ConsoleChild
from .keeping import Kept
from .listeners import endpoint, listen
from .old_deaths import are_left
from .server import Server, journal_options
from .service_manager import ServiceManager
from .shutdown import close_in_time, until_stopped

if TYPE_CHECKING:
    from ..http.listener import HttpListener
    from .cluster.leading import Leading

log = logging.getLogger("homing")

#: The writer's thread must win the interpreter's lock back often: the default of 5 ms starves it beside a busy loop
#: (docs/performance-budget.md).
_SWITCH_INTERVAL_S: Final = 0.00001
#: No exit code: this process handed over, and begins anew as a standby.
STAND_BY: Final = -1
#: Held back where nobody handles them. Process 1 of a container would never hear of them else.
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Collections of a generation before one of the next.
_NEVER: Final = 1 << 30
#: A disk that has not answered for this long is named by the probes.
_DISK_HANGS_S: Final = 5.0


async def serve(config: Config, json_ready: bool, log_writer: LogWriter) -> int:
    """Runs until SIGTERM or SIGINT (0), until the journal fails (its exit code), or until another node is to lead (STAND_BY)."""
    process = _Process(config, json_ready, log_writer)
    if config.http is None:
        return await process.run()
    # Half of what a broker imports: not for one that has no such port.
    from ..http.listener import HttpListener

    process.http = http = HttpListener(process.health)
    listening = await listen("http", config.http, http.make, process.certificate, needed=config.names("http"))
    process.http_endpoints = {name: endpoint(each) for name, each in listening.items()}
    try:
        return await process.run()
    finally:
        for each in listening.values():
            each.close()
        http.close()


class _Process:
    """What is there from start to end, whether this node follows, leads, or is all there is."""

    def __init__(self, config: Config, json_ready: bool, log_writer: LogWriter) -> None:
        self._config = config
        self._json_ready = json_ready
        self._log_writer = log_writer
        self._stop = asyncio.Event()
        self._manager = ServiceManager()
        self._loaded = False
        self.health = Health()
        self.certificate = None if config.tls is None else Certificate(config.tls)
        self.http: HttpListener | None = None
        #: Where it listens.
        self.http_endpoints: dict[str, str] = {}

    async def run(self) -> int:
        """Raises as Journal.open, Server.start and Standby.follow do."""
        config, loop = self._config, asyncio.get_running_loop()
        if config.journal.replication is not None:
            # The threads of the loop's own are made now, and get no signal either.
            await loop.getnameinfo(("127.0.0.1", 0), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
        for number in (signal.SIGTERM, signal.SIGINT):
            _on(number, _stop, self._stop, signal.Signals(number).name)
        log.info("starting: Homing %s, commit %s, configuration %s", BUILD.version, commit()[:12], config.source_path or "of the defaults")
        try:
            return await (self._lead(None) if config.journal.replication is None else self._as_node(config.journal.replication))
        finally:
            self._manager.close()

    async def _as_node(self, section: ReplicationSection) -> int:
        """Of a cluster, whose driver is an extra."""
        from .cluster.leading import Leading
        from .cluster.node import Node
        from .cluster.passing import Passing
        from .cluster.standby import Standby

        config, loop = self._config, asyncio.get_running_loop()
        node = Node(config, section)
        self.health.cluster = node.view
        if self.http is not None:
            from .cluster.metrics import cluster_metrics

            self.http.show_node(partial(cluster_metrics, node.view))
        try:
            self._manager.feed_watchdog(loop)
            _on(signal.SIGHUP, self._not_reloaded)
            standby = Standby(node, config.data_directory, self.health, Passing(config, self.certificate))
            leader = await standby.follow(journal_options(config), self._stop, self._stand_by)
            exit_code = 0 if leader is None else await self._lead(Leading(node, leader, section.copies))
        finally:
            await node.close()
        await _hold_signals()
        return STAND_BY if exit_code == 0 and not self._stop.is_set() else exit_code

    def _stand_by(self, endpoints: dict[str, str]) -> None:
        log.info("standby: another node leads; connections are passed on to it")
        self._say_ready({**endpoints, **self.http_endpoints}, None)
        # Whoever waits for the next leader does not wait for this, too.
        self._load()

    def _load(self) -> None:
        if not self._loaded:
            preload.load(self._config)
            self._loaded = True

    def _not_reloaded(self) -> None:
        said = "not reloaded: a standby reads its configuration when it is started again"
        self._manager.reloading()
        log.warning("standby-not-reloaded: %s", said)
        self._manager.ready(said)

    def _say_ready(self, endpoints: dict[str, str], kept: Kept | None) -> None:
        """To whoever started it. ``kept``: see _ready_line."""
        print(_ready_line(self._config, endpoints, kept, self._json_ready), flush=True)
        self._manager.ready(_ready_line(self._config, endpoints, kept, False))

    async def _lead(self, leading: Leading | None) -> int:
        """``leading``: as a node of a cluster."""
        config, health, loop, began_s = self._config, self.health, asyncio.get_running_loop(), time.monotonic()
        leader = None if leading is None else leading.leader
        journal, recovered = await Journal.open(config.data_directory, journal_options(config), BrokerClock().now_ms(), leader)
        if leading is not None:
            leading.attend(journal, config.data_directory)
        clock = BrokerClock(recovered.clock_ms)
        if clock.behind_ms:
            log.warning("clock-behind: the clock is %d s behind the journal's last entry; the clock is believed", clock.behind_ms // 1000)
        server = Server(config, journal, clock, self._log_writer, self.certificate, manager=self._manager, leading=leading)
        console = ConsoleChild(config.console, config.tls)
        try:
            listening = await server.start(recovered)
            clean_stop, old_deaths = recovered.clean_stop, are_left(recovered.declarations)
            del recovered  # every message as it was read; the broker has its own by now
            server.listeners.watch_certificate()
            _on(signal.SIGHUP, server.reload_on_signal)
            endpoints = {name: endpoint(each) for name, each in listening.items()} | self.http_endpoints
            endpoints |= console.start(listening, self._stop)
            _log_start(server, config, clean_stop, time.monotonic() - began_s)
            log.info("ready: %s", " ".join(f"{name}={each}" for name, each in endpoints.items()))
            if self.http is not None:
                server.show_metrics(self.http)
            health.serves(lambda: journal.space_low or journal.waits_s > _DISK_HANGS_S, lambda: waiting(server.broker.statistics.figures()))
            self._say_ready(endpoints, server.kept)
            if leading is None:
                self._manager.feed_watchdog(loop)
            server.sweep.start()
            # Whoever connects meanwhile waits for it: this takes a fifth of a second, and is not to happen in the middle of a settlement.
            self._load()
            if not clean_stop:
                server.look_for_damage()
            if old_deaths:
                server.name_old_deaths()
            if leading is not None:
                await leading.serves()
            hands_over = asyncio.Event() if leader is None else leader.hands_over
            exit_code = await until_stopped(server, journal, list(listening.values()), self._stop, health, hands_over)
        finally:
            await console.close()
            await server.files.discard_export()
            server.close()
            await close_in_time(journal)
            if leading is not None:
                leading.close()
        if exit_code == 0:
            log.info("stopped: in order, after %s", format_duration_ms(round(time.monotonic() - began_s) * 1000))
        return exit_code


def _on(number: signal.Signals, callback: Callable[..., object], *arguments: object) -> None:
    """What came of it while it was held follows at once."""
    asyncio.get_running_loop().add_signal_handler(number, callback, *arguments)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})


async def _hold_signals() -> None:
    """From here on each waits for whoever handles it next, as this process does when it has begun anew. What came before is handled."""
    await asyncio.get_running_loop().shutdown_default_executor()
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    # It is passed on through a socket, which is looked at between two turns.
    for _ in range(3):
        await asyncio.sleep(0)


def _stop(stop: asyncio.Event, why: str) -> None:
    if not stop.is_set():
        log.info("stopping: %s: nothing more is handed out, what was asked for is answered", why)
    stop.set()


def _log_start(server: Server, config: Config, clean_stop: bool, took_s: float) -> None:
    """What was recovered."""
    queues = server.broker.post_office.queues.values()
    log.info(
        "recovered: the journal in %s, format %d: %s, %s, in %.1f s; the stop before was %s",
        config.data_directory,
        VERSION,
        counted(len(queues), "queue"),
        counted(sum(queue.count for queue in queues), "message"),
        took_s,
        "in order" if clean_stop else "none in order",
    )


def _ready_line(config: Config, endpoints: dict[str, str], kept: Kept | None, as_json: bool) -> str:
    """``kept``: at the last stop; None: of a standby."""
    if as_json:
        said = {"ready": True, **endpoints, "pid": os.getpid(), "data": str(config.data_directory), "version": __version__}
        if kept is None:
            return json.dumps({**said, "standby": True})
        return json.dumps({**said, "at_last_stop": kept._asdict()} if kept.any else said)
    shown = " ".join(f"{name}={endpoint}" for name, endpoint in endpoints.items())
    over = f" at the last stop: {kept.said()}" if kept is not None and kept.any else ""
    return f"homing {'standby' if kept is None else 'ready'} {shown} data={config.data_directory} pid={os.getpid()}{over}"


def run_server(config: Config, *, json_ready: bool = False) -> int:
    """The process: logging to stderr, uvloop, and the exit code. Raises JournalError or Refused when it cannot start."""
    import uvloop

    began_in = dict(os.environ)
    # Threads that are made before they are handled never get them, and whoever holds them for the process that is to follow holds them all.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    with opened(config) as writer:
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        preload.raise_file_limit(config)
        # Messages are freed by their counts, not by the collector: let it look once at what is new, at no more than 10,000 objects together
        # (some 5 ms), at all of them only where it may help (heap.py), and at the program never.
        gc.freeze()
        gc.set_threshold(10_000, _NEVER, _NEVER)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                exit_code = runner.run(serve(config, json_ready, writer))
            except (JournalError, Refused) as error:
                if config.log_file is not None:  # else it stands there anyway
                    log.critical("not-started: %s %s", error.message, error.fix)
                raise
    if exit_code == STAND_BY:
        # The same process, with nothing left of the broker that it was; whoever started it need not start another.
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], began_in)
    return exit_code
