"""What is otherwise loaded when it is first needed, loaded before the first client is let in.

An import in the middle of a settlement may fail, for want of a file descriptor or of memory, when half of what is to change has changed.
"""

from __future__ import annotations

import logging
import resource
import traceback
from typing import Final

from ..auth.passwords import hash_password
from ..config.config import Config
from ..core.selector import compile_selector

log = logging.getLogger("homing")

#: Files that are no connection: the journal and its readers, an export, listeners, the loop's own, the programs that look into the process.
_OWN_FILES: Final = 128


def load(config: Config) -> None:
    """Takes a fifth of a second, for the grammar of selectors, and the time of one login where there are users."""
    compile_selector("a LIKE 'b%' AND c IN ('d') OR e BETWEEN 1 AND 2")
    try:
        raise LookupError
    except LookupError as error:
        # A traceback is formatted by modules of its own.
        traceback.format_exception(error)
    if config.users:
        hash_password("what hashes and compares passwords")


def raise_file_limit(config: Config) -> None:
    """As many files as there may be connections and handshakes, and some; says so where the system does not allow that many."""
    limits = config.limits
    wanted = limits.max_connections + limits.max_handshakes + _OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if reachable > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    if reachable < wanted:
        log.warning(
            "file-limit-low: the limit of open files is %d: enough for %d connections, not for the %d of limits.max-connections; "
            "raise it (ulimit -n)",
            reachable,
            max(0, reachable - reachable // 4 - _OWN_FILES),
            limits.max_connections,
        )
