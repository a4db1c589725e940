"""Where the lines of the log and of the audit go, as broker.yaml says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
