"""What of a batch is one state by key: of queues, addresses, declarations, producers and settings the latest counts. And events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..contract import AddressRecord, EditRecord, PolicyRecord, QueueRecord, SettingsInForce
from ..declarations import DeclarationRecord


class LastStates:
    """``wake`` is called at the first touch."""

    __slots__ = (
        "_wake",
        "addresses",
        "clock_ms",
        "declarations",
        "duplicates",
        "edits",
        "events",
        "forgotten",
        "policies",
        "producers",
        "queues",
        "settings_rows",
        "stories",
        "touched",
        "transactions",
    )

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.touched = False
        self.clock_ms = 0
        self.queues: dict[int, QueueRecord] = {}
        #: None: to be deleted.
        self.addresses: dict[str, AddressRecord | None] = {}
        #: (kind, name) -> record; None: to be deleted.
        self.declarations: dict[tuple[str, str], DeclarationRecord | None] = {}
        #: High watermark, and when it was stored; None: to be deleted.
        self.producers: dict[str, tuple[int, int] | None] = {}
        #: In the order of arrival.
        self.duplicates: dict[tuple[str, str], None] = {}
        #: Addresses that were removed, whether or not they came back since. ``duplicates`` holds none of the ids that came before.
        self.forgotten: set[str] = set()
        self.transactions: dict[str, int] = {}
        self.policies: dict[str, PolicyRecord] = {}
        self.settings_rows: dict[int, SettingsInForce] = {}
        self.edits: dict[int, EditRecord] = {}
        #: (queue, story) -> its message, and how often it failed; None: it is over.
        self.stories: dict[tuple[str, str], tuple[int, int] | None] = {}
        #: In the order in which they happened: what, when, to which queue ("": the broker), of which address, and what is said of it.
        self.events: list[tuple[str, int, str, str, dict[str, Any]]] = []

    def touch(self) -> None:
        """Wake the writer, once."""
        if not self.touched:
            self.touched = True
            self._wake()

    def queue(self, record: QueueRecord) -> None:
        """Set a queue's row. ``deleted_at_ms`` set: deleted; the row stays while history speaks of it."""
        self.touch()
        self.queues[record.queue_id] = record

    def address(self, record: AddressRecord) -> None:
        self.touch()
        self.addresses[record.name] = record

    def delete_address(self, name: str) -> None:
        """With the duplicate ids that came to it."""
        self.touch()
        self.addresses[name] = None
        self._forget_duplicates({name})

    def _forget_duplicates(self, addresses: set[str]) -> None:
        self.forgotten |= addresses
        if self.duplicates:
            self.duplicates = {key: None for key in self.duplicates if key[0] not in addresses}

    def declare(self, record: DeclarationRecord) -> None:
        self.touch()
        self.declarations[record.kind, record.name] = record

    def delete_declaration(self, kind: str, name: str) -> None:
        self.touch()
        self.declarations[kind, name] = None

    def producer_high_watermark(self, producer: str, high_watermark: int, at_ms: int) -> None:
        """The highest number stored for a producer. It may rise only together with what it stands for, in one batch."""
        if not self.touched:
            self.touch()
        self.producers[producer] = (high_watermark, at_ms)

    def forget_producer(self, producer: str) -> None:
        self.touch()
        self.producers[producer] = None

    def duplicate(self, address: str, duplicate_id: str) -> None:
        """Remember an id given by hand. The journal numbers them and keeps the newest N of an address (an option)."""
        if not self.touched:
            self.touch()
        self.duplicates[address, duplicate_id] = None

    def committed(self, transaction_id: str, at_ms: int) -> None:
        self.touch()
        self.transactions[transaction_id] = at_ms

    def policy(self, record: PolicyRecord) -> None:
        """The key is a hash of the content; the same again only makes it younger."""
        self.touch()
        self.policies[record.policy] = record

    def edit(self, record: EditRecord) -> None:
        self.touch()
        self.edits[record.message_id] = record

    def story(self, queue: str, story: str, told: tuple[int, int] | None) -> None:
        """The tries of a task so far; the last of all queues are kept. See broker/delivery/stories.py."""
        self.touch()
        self.stories[queue, story] = told

    def event(self, kind: str, at_ms: int, queue: str, address: str, content: dict[str, Any]) -> None:
        """Of each kind the last are kept."""
        self.touch()
        self.events.append((kind, at_ms, queue, address, content))

    def settings(self, from_ms: int, settings: SettingsInForce) -> None:
        self.touch()
        self.settings_rows[from_ms] = settings

    def clock(self, now_ms: int) -> None:
        """The broker's time; a restart never begins before the latest one seen here."""
        if not self.touched:
            self.touch()
        if now_ms > self.clock_ms:
            self.clock_ms = now_ms

    def absorb_states(self, later: LastStates) -> None:
        """Those of ``later`` take the place of these."""
        self.clock_ms = max(self.clock_ms, later.clock_ms)
        if later.forgotten:
            self._forget_duplicates(later.forgotten)
        self.queues.update(later.queues)
        self.addresses.update(later.addresses)
        self.declarations.update(later.declarations)
        self.producers.update(later.producers)
        self.duplicates.update(later.duplicates)
        self.transactions.update(later.transactions)
        self.policies.update(later.policies)
        self.settings_rows.update(later.settings_rows)
        self.edits.update(later.edits)
        self.stories.update(later.stories)
        self.events += later.events

    def declares(self) -> bool:
        """Whether anything is declared or set in it."""
        return bool(self.queues or self.addresses or self.declarations or self.policies or self.settings_rows)

    def has_states(self) -> bool:
        return self.declares() or bool(self.producers or self.duplicates or self.transactions or self.edits or self.stories or self.events)
