"""What a batch holds of fault groups and dead letters beside the messages themselves (written by fault_groups.py)."""

from __future__ import annotations

from ..contract import FaultRecord, FaultStat

FAULT_STATS = len(FaultStat)
#: Counts of fault groups are kept by ten minutes.
FAULT_SLOT_MS = 600_000


class FaultChanges:
    """Final states by key, as in the batch; counts add up."""

    __slots__ = ("causes", "folded", "keys", "records", "stats", "texts")

    def __init__(self) -> None:
        #: (fault_id, ten minutes) -> increments
        self.stats: dict[tuple[int, int], list[int]] = {}
        self.records: dict[int, FaultRecord] = {}
        #: Text and traceback of new groups.
        self.texts: dict[int, tuple[str, str]] = {}
        #: Groups that go -> those that take their counts over.
        self.folded: dict[int, int] = {}
        #: sequence -> what key a dead letter that was added in this batch has.
        self.keys: dict[int, str] = {}
        #: sequence -> cause, of dead letters that have none yet.
        self.causes: dict[int, int] = {}

    def __len__(self) -> int:
        """Rows, about."""
        return len(self.stats) + len(self.records) + len(self.texts) + len(self.folded) + len(self.keys) + len(self.causes)

    def counts(self, fault_id: int, at_ms: int) -> list[int]:
        """The row of increments of one group at that time, indexed by FaultStat; add to it in place."""
        key = (fault_id, at_ms // FAULT_SLOT_MS)
        row = self.stats.get(key)
        if row is None:
            row = self.stats[key] = [0] * FAULT_STATS
        return row

    def absorb(self, later: FaultChanges) -> None:
        """What ``later`` holds happens here as well, after what is here."""
        for key, increments in later.stats.items():
            row = self.stats.setdefault(key, increments)
            if row is not increments:
                row[:] = map(sum, zip(row, increments, strict=True))
        self.records.update(later.records)
        self.texts.update(later.texts)
        self.folded.update(later.folded)
        self.keys.update(later.keys)
        self.causes.update(later.causes)
