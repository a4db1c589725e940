"""Where the lines of the log and of the audit go, as broker.yaml says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..config.config import Config
from ..errors import Refused
from . import audit
from .writer import LogOptions, LogWriter, Sink, open_sink, start_logging


def log_options(config: Config) -> LogOptions:
    log = config.log
    return LogOptions(log.level, log.format == "json", log.zone == "utc", config.log_file, log.max_bytes, log.backup_count)


def open_log(config: Config) -> Sink:
    """Raises Refused where it cannot be written."""
    try:
        return open_sink(log_options(config))
    except OSError as error:
        said = f"the log {config.log_file} cannot be written: {error.strerror}"
        raise Refused("log-unwritable", said, "make its directory, or change log.file in broker.yaml") from error


def log_bytes(config: Config) -> int | None:
    """What the log's files come to; None where it goes to standard error, and is somebody else's."""
    path = config.log_file
    if path is None:
        return None
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, config.log.backup_count + 1))]
    found = 0
    for each in files:
        with suppress(OSError):
            found += each.stat().st_size
    return found


@contextmanager
def opened(config: Config) -> Iterator[LogWriter]:
    """Meanwhile what this process logs goes there, and what is audited. Raises Refused where that cannot be written."""
    writer = start_logging()
    try:
        writer.take_up(log_options(config), open_log(config))
        # For who wants the audit apart.
        apart = LogOptions(path=config.audit_file, max_bytes=config.audit.max_bytes, backup_count=config.audit.backup_count)
        with audit.kept(apart):
            yield writer
    finally:
        writer.close()
