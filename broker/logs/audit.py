"""The audit: a JSON object on a line for each management action, login and refusal: who, from where, what, and what came of it.

Lines go into the log, or into a file of their own. None is left out for being like others, and none holds a password or a hash.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from ..errors import Refused
from .writer import AUDIT, Lines, LogOptions, LogWriter, open_sink

_logger = logging.getLogger(AUDIT)
#: Whatever the level of the log.
_logger.setLevel(logging.INFO)


def write(line: dict[str, object]) -> None:
    _logger.info("audit: %s", json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **line}))


class _Lines(Lines):
    def format(self, record: logging.LogRecord) -> str:
        return str(record.args[0]) if isinstance(record.args, tuple) and record.args else super().format(record)


@contextmanager
def kept(options: LogOptions) -> Iterator[None]:
    """Meanwhile in the file of its own, where ``options`` name one. Raises Refused where it cannot be written."""
    if options.path is None:
        yield
        return
    try:
        writer = LogWriter(open_sink(options))
    except OSError as error:
        said = f"the audit {options.path} cannot be written: {error.strerror}"
        raise Refused("audit-unwritable", said, "make its directory, or change audit.file in broker.yaml") from error
    writer.setFormatter(_Lines(as_json=True))
    _logger.addHandler(writer)
    _logger.propagate = False
    try:
        yield
    finally:
        _logger.removeHandler(writer)
        _logger.propagate = True
        writer.close()
