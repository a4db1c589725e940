"""What can be set on a journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Every default is the one that broker.yaml shows."""

    #: Kept back as a file of its own, and given up when the disk is full.
    disk_reserve_bytes: int = 64 << 20
    #: WAL in use beyond this: a backup ends, and ``on_wal_limit`` is called, so that other long readers can. Producers never wait for it.
    wal_limit_bytes: int = 1 << 30
    #: A checkpoint each time this much WAL has gathered. Commits wait meanwhile, for 16 MiB half as long as for 64.
    checkpoint_every_bytes: int = 16 << 20
    history_retention_ms: int = 7 * _DAY_MS
    #: Attempts and outcomes together; beyond it the oldest go first.
    history_max_bytes: int = 1 << 30
    #: Producers' marks and transaction ids are kept this long.
    marks_retention_ms: int = _DAY_MS
    #: What was consumed before it was written is not written.
    elide: bool = True
    #: Of the file's pages, so many bytes stay in memory.
    cache_bytes: int = 32 << 20
    #: Ids reserved on disk at a time; at least one block is always ahead.
    id_block: int = 1 << 20
    duplicate_ids_per_address: int = 20_000
    #: A journal with at most so many messages is read and verified whole at the start; a larger one is counted, and read a page at a time.
    load_limit: int = 20_000
    #: Where backups are made; relative to the data directory.
    backup_directory: str = "backups"
    #: Where dead letters are archived before they are removed; relative to the data directory.
    archive_directory: str = "archive"
    #: Where reports stand that clients may read; relative to the data directory.
    report_directory: str = "reports"
    #: Before a migration a copy of the database is made, where twice its size is free.
    keep_before_migration: bool = True
    #: What to do with rows that fail their checksum at start.
    on_damage: Literal["refuse", "quarantine"] = "refuse"
