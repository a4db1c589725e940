"""broker.yaml read again while the broker runs: what may take effect, in what order, and what is said of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from ..broker import Broker
from ..config.changes import Change, check_reload, reloaded
from ..config.checks import layer_problems
from ..config.config import Config, ConfigError, load, without_removing
from ..errors import Refused
from ..steps import Steps
from .declarations import declare, policies_of, problems

log = logging.getLogger("homing")

#: So many names stand in one line of the log.
_MOST_NAMES: Final = 20


def read_again(running: Config) -> Config:
    """The file of the running configuration as it is now: takes a while, changes nothing. Raises Refused when it cannot be used."""
    path = running.source_path
    if path is None:
        raise Refused("no-config-file", "the broker was started without a file", "start it with --config broker.yaml")
    if path.exists() and not path.is_file():
        raise Refused("no-config-file", f"{path} is no regular file and cannot be read again", "start it with a file of its own")
    try:
        read = without_removing(load(path, insecure=running.insecure))
        if running.data_given:
            read = read.with_data(running.data_directory)
        check_reload(running, read)
    except ConfigError as error:
        raise _refused(error) from None
    return read


def take_up(broker: Broker, running: Config, read: Config) -> Steps[Config]:
    """Brings into force what a reload can, and returns what is in force then. Raises Refused before anything has changed."""

    def declare_all() -> None:
        broker.commanded.configured = read.settings_repository()
        limits = config.limits
        broker.room.resize(limits.window_messages, limits.window_bytes, limits.window_scheduled)
        declare(broker, config)

    def check() -> None:
        _check(broker, running, read)

    check()
    config = reloaded(running, read)
    policies = broker.policies.configured(policies_of(config))
    yield from broker.changes.bring(broker.commanded.over(read.settings_repository()), policies, check, declare_all)
    return config


def _check(broker: Broker, running: Config, read: Config) -> None:
    """Raises Refused where it cannot take effect as things stand."""
    try:
        # Again: another reload may have been first.
        check_reload(running, read)
        over = broker.commanded.over(read.settings_repository())
        if found := [*problems(broker, read), *(layer_problems(over, {}) if over is not read.settings_repository() else ())]:
            raise ConfigError(found, str(read.source_path))
    except ConfigError as error:
        raise _refused(error) from None


def _refused(error: ConfigError) -> Refused:
    return Refused(error.code, error.message, f"nothing was changed: {error.fix}")


def log_changes(path: Path | None, changed: list[Change]) -> None:
    """A line of the log: what changed, and what waits for a restart."""
    now, later = ([each.path for each in changed if each.needs_restart is restart] for restart in (False, True))
    waits = f"; only a restart brings into force: {_names(later)}" if later else ""
    log.info("reloaded: %s: %s%s", path, f"changed: {_names(now)}" if now else "nothing changed", waits)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
