"""What the journal refuses or breaks on. Every error: a stable code, one sentence, what to do."""

from __future__ import annotations

#: Exit codes of the command line (docs/semantics, section 13) for the codes that have one of their own.
EXIT_CODES = {
    "journal-newer": 6,
    "journal-damaged": 6,
    "journal-foreign": 6,
    "log-newer": 6,
    "journal-io": 70,
    "journal-full": 70,
    "journal-bad-record": 70,
    "journal-gone": 71,
    "journal-fenced": 72,
    "journal-log-lost": 73,
    "journal-copy-damaged": 74,
}


class JournalError(Exception):
    """Codes:

    - ``journal-locked``: another process holds this directory.
    - ``journal-newer``: written by a later version of Homing.
    - ``journal-missing``: there is no journal in this directory (readers only).
    - ``journal-damaged``: the file is not what it should be; nothing was changed.
    - ``journal-foreign``: the file is another program's; nothing was changed.
    - ``journal-io``: a write or a commit failed, so its outcome is unknown: answer nobody and stop.
    - ``journal-full``: the disk is full and the reserve is spent.
    - ``journal-bad-record``: a record that cannot be stored reached the journal, a fault of the caller's checks; its batch was rolled back.
    - ``journal-gone``: a file of it, or the lock, was removed or is another one, under a broker that runs: answer nobody and stop.
    - ``journal-fenced``: another node took the lead of the replicated log: answer nobody and stop.
    - ``journal-log-lost``: the replicated log lacks what this node knows of it: answer nobody and stop.
    - ``journal-left-behind``: the replicated log begins behind what this node has.
    - ``journal-other-past``: the replicated log goes on from another past than this node's.
    - ``journal-copy-damaged``: what a node has of a replicated journal is damaged; it is made anew from another node's.
    - ``journal-unusable``: what another node gave is no copy of the journal.
    - ``journal-replicated``: a node's copy of a replicated journal was to be written without its log.
    - ``journal-closed``: used after close().
    - ``log-…``: what the replicated log says no to; ``log-newer``: it is of a later version of Homing.
    """

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(f"{code}: {message} {fix}")
        self.code = code
        self.message = message
        self.fix = fix

    @property
    def exit_code(self) -> int:
        return EXIT_CODES.get(self.code, 1)


_IO_FIX = "Nobody was answered for what is uncertain; check the disk and the kernel log, then start again: the broker reads what is there."


def io_failure(what: str, tried: str = "written") -> JournalError:
    return JournalError("journal-io", f"The journal could not be {tried}: {what}.", _IO_FIX)
