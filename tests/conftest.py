"""Fixtures that all tests share, and the account of what was skipped."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests import pauses, transitions
from tests.process import HomingCommand, Server

_skips_over_limit = pytest.StashKey[str]()
_repeated = pytest.StashKey[list[str]]()

# How long an example takes says something about the machine only: it may pause in the middle of one. The suite draws the same ones each
# time; a campaign (HOMING_LIVES) draws others.
settings.register_profile(
    "unhurried",
    settings(),
    deadline=None,
    derandomize="HOMING_LIVES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
transitions.watch()
# Until all tests are collected there is nothing to find, and it would be looked for all the time: a third of what collecting takes.
gc.disable()
# A shell has its background jobs ignore Ctrl-C, and they hand that on to the programs that tests interrupt, which would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts real servers: ``start_server({"address-settings": …}, name="second")``. All are ended with the test."""
    servers: list[Server] = []

    def start(config: Mapping[str, Any] | None = None, *, name: str = "broker") -> Server:
        server = Server(tmp_path / name, config)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    """A real server with dead letters on, on a free port, with data of its own."""
    return start_server()


@pytest.fixture
def homing(tmp_path: Path) -> HomingCommand:
    """The command line, run as a process in an empty directory."""
    directory = tmp_path / "shell"
    directory.mkdir()
    return HomingCommand(directory)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--expected-skips", type=int, default=None, help="fail when more tests than this are skipped")


class _OneSession(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests stay with one process, and so do all that share a Spark session: there is one Java, which gets warm once."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if "/test_spark_" in file else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return _OneSession(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Collected as seldom as in a broker (process/run.py): what runs here, and five thousand tests, would be looked at all the time."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 4, 250)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that start Spark come first, then the harness: they take the longest."""
    if transitions.COMPILED:
        _skip_plain(items)
    items.sort(key=lambda item: (item.get_closest_marker("spark") is None, item.path.parent.name != "performance"))


def _skip_plain(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip("this is the compiled build, and the test is marked plain; enable: run it on the plain sources")
    for item in items:
        if item.get_closest_marker("plain"):
            item.add_marker(skip)


def _skipped(terminal: Any) -> dict[str, list[str]]:
    """Reason -> tests. A reason says why and, after 'enable:', what brings the test back."""
    reasons: dict[str, list[str]] = {}
    for report in terminal.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    return reasons


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a process of xdist's repeated."""
    node.config.stash.setdefault(_repeated, []).extend(getattr(node, "workeroutput", {}).get("repetitions", []))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["repetitions"] = pauses.repetitions
    expected = session.config.getoption("--expected-skips")
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if expected is None or terminal is None:
        return
    count = sum(len(tests) for tests in _skipped(terminal).values())
    if count > expected:
        session.config.stash[_skips_over_limit] = f"{count} tests were skipped, {expected} are expected: see the reasons above"
        if exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reasons = _skipped(terminalreporter)
    if reasons:
        terminalreporter.section("skipped, and what enables it")
        for reason, tests in sorted(reasons.items()):
            terminalreporter.write_line(reason)
            for test in tests:
                terminalreporter.write_line(f"    {test}")
    repeated = config.stash.get(_repeated, []) + pauses.repetitions
    if repeated:
        terminalreporter.section("repeated, because the machine paused")
        for line in repeated:
            terminalreporter.write_line(line)
    if _skips_over_limit in config.stash:
        terminalreporter.write_line(config.stash[_skips_over_limit], red=True)
