"""How many dead letters there are in which queue, by their fault and why they are there, whether in memory or on disk.

They are counted as they come and go, so that no row is read for it. What is known of a fault that was folded is how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from homing.journal.contract import DEATH_BITS, DEATHS, OTHER_FAULT, SENT_BACK

from ..core.fault import Dead, FaultGroup
from ..core.queue import Queue

_WHY: Final = DEATH_BITS | SENT_BACK


class DeadLetterCounts:
    """``groups``: those that there are, by their numbers."""

    def __init__(self, groups: Mapping[int, FaultGroup]) -> None:
        self._groups = groups
        #: As FaultGroup.dead, of those that were folded.
        self._folded: Counter[tuple[Queue, int]] = Counter()

    # -- they come and go --------------------------------------------------------------------------------------------

    def came(self, queue: Queue, causes: Iterable[int]) -> None:
        """Of messages in this queue, or how many of each; those that are no dead letter's are passed over."""
        self._change(queue, causes, 1)

    def left(self, queue: Queue, causes: Iterable[int]) -> None:
        self._change(queue, causes, -1)

    def _change(self, queue: Queue, causes: Iterable[int], sign: int) -> None:
        for cause, number in Counter(causes).items():
            if cause & DEATH_BITS:
                self.count(queue, cause, sign * number)

    def count(self, queue: Queue, cause: int, number: int) -> None:
        """So many more, or fewer."""
        queue.dead += number
        group, key = self._groups.get(cause >> 4), (queue, cause & _WHY)
        counts = self._folded if group is None else self._of(group)
        counts[key] = counts.get(key, 0) + number
        if not counts[key]:
            del counts[key]

    def fold(self, group: FaultGroup) -> None:
        """It is not told apart any more."""
        self._folded.update(group.dead)

    def forget(self, queue: Queue) -> None:
        """It is gone, and what was in it."""
        if queue.dead:
            for counts in (self._folded, *[group.dead for group in self._groups.values()]):
                for key in [each for each in counts if each[0] is queue]:
                    del counts[key]

    # -- what there is -----------------------------------------------------------------------------------------------

    def of(self, group: FaultGroup) -> list[Dead]:
        """Those that died of it, by queue and reason."""
        return [_dead(group.fault_id, group.queue, *key, number) for key, number in self._of(group).items()]

    def number(self, group: FaultGroup) -> int:
        """How many these are."""
        return sum(self._of(group).values())

    def within(self, queues: Collection[Queue]) -> Iterator[Dead]:
        """Those in these."""
        known = [(each.fault_id, each.queue, each.dead) for each in self._groups.values()]
        for fault_id, source, counts in (*known, (OTHER_FAULT, "", self._folded)):
            for key, number in counts.items():
                if key[0] in queues:
                    yield _dead(fault_id, source, *key, number)

    def _of(self, group: FaultGroup) -> dict[tuple[Queue, int], int]:
        return group.dead if group.queue else self._folded


def _dead(fault_id: int, source: str, queue: Queue, why: int, number: int) -> Dead:
    death = why & DEATH_BITS
    reason = DEATHS[death] if death < len(DEATHS) else ""
    return Dead(queue, fault_id << 4 | why, fault_id, source or None, reason, bool(why & SENT_BACK), number)
