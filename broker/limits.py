"""What one broker takes, at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    memory_bytes: int = 512 * 1024 * 1024
    store_bytes: int | None = None
    #: Asked each time, for it may follow the disk.
    temp_bytes: Callable[[], int] | None = None
    #: What the replicated log takes, and may take, of what durable messages are written to; None: there is none.
    log: Callable[[], tuple[int, int]] | None = None
    transaction_operations: int = 10_000
    transaction_bytes: int = 64 * 1024 * 1024
    transaction_references: int = 50_000
    transaction_timeout_ms: int = 300_000
    max_hops: int = 32
    duplicate_ids: int = 20_000
    marks_retention_ms: int = 24 * 3_600_000
    history_retention_ms: int = 7 * 24 * 3_600_000
    consumers_per_connection: int = 10_000
    parked_retry_ms: int = 30_000
    selector_characters: int = 4096
    selector_depth: int = 64
    max_queues: int = 20_000
    properties_bytes: int = 64 * 1024
    #: Body and properties of a message that can be delivered.
    message_bytes: int = 16 * 1024 * 1024
    #: See entries.Windows.
    window_messages: int = 32_000
    window_bytes: int = 32 * 1024 * 1024
    window_scheduled: int = 10_000
    #: Of a page of an answer, beyond its first entry.
    answer_bytes: int = 512 * 1024
