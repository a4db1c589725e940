"""What was promised by a place in the record, and whether a journal that was opened after a power cut there keeps it.

An operation is asked for (*begun*) and then, perhaps, *confirmed*. After a cut, a confirmed one must be there whole, one that
was only begun may be there or not, but never by half. A message is known by its *key*, the beginning of its body up to ``|``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Fact(NamedTuple):
    """One message as the opened journal shows it."""

    key: str
    queue: str
    delivery_count: int


@dataclass(frozen=True)
class Operation:
    """Everything in it happens together. JSON lists and maps, as they stand in the record."""

    number: int
    #: Keys that it brings into the journal.
    sends: list[str] = field(default_factory=list)
    #: Keys that it takes out.
    acks: list[str] = field(default_factory=list)
    #: key -> the least delivery count that the disk must remember from now on.
    counts: dict[str, int] = field(default_factory=dict)
    #: Keys that it moves to a dead-letter queue.
    dead: list[str] = field(default_factory=list)
    #: The id under which its outcome can be asked for.
    transaction: str | None = None
    #: The highest message id or sequence in use: none up to it may be handed out again.
    highest_id: int = 0


class Account:
    """The claims up to one place. ``apply`` them in order, then ``judge`` what was found."""

    def __init__(self) -> None:
        self.begun: dict[int, Operation] = {}
        self.confirmed: set[int] = set()
        self._creator: dict[str, Operation] = {}
        self._removers: defaultdict[str, list[Operation]] = defaultdict(list)

    def apply(self, claim: dict[str, Any]) -> None:
        if "done" in claim:
            self.confirmed.add(claim["done"])
            return
        operation = Operation(claim["begin"], **{name: value for name, value in claim.items() if name != "begin"})
        self.begun[operation.number] = operation
        for key in operation.sends:
            self._creator[key] = operation
        for key in operation.acks:
            self._removers[key].append(operation)

    def judge(self, facts: Iterable[Fact], transactions: Iterable[str], next_id: int) -> list[str]:
        """One sentence for each broken promise."""
        found: dict[str, Fact] = {}
        problems = []
        for fact in facts:
            if fact.key in found:
                problems.append(f"{fact.key} is there twice: in {found[fact.key].queue} and in {fact.queue}")
            if fact.key not in self._creator:
                problems.append(f"{fact.key} in {fact.queue} was never sent")
            found[fact.key] = fact
        known = set(transactions)
        for operation in self.begun.values():
            problems += self._whole(operation, found, known)
            if operation.number in self.confirmed:
                problems += self._kept(operation, found)
            if operation.highest_id >= next_id:
                problems.append(f"id {operation.highest_id} was in use, and {next_id} would be the next one handed out")
        return problems

    def _kept(self, operation: Operation, found: dict[str, Fact]) -> Iterable[str]:
        """Counts and moves that were confirmed, of messages that are still there."""
        for key, count in operation.counts.items():
            fact = found.get(key)
            # Each queue counts for itself.
            if fact and not fact.queue.startswith("DLQ") and fact.delivery_count < count:
                yield f"{key} had {count} deliveries that were known to be on disk, and has {fact.delivery_count}"
        for key in operation.dead:
            fact = found.get(key)
            if fact and not fact.queue.startswith("DLQ"):
                yield f"{key} was dead-lettered for certain, and is in {fact.queue}"
            if fact is None and not self._removers[key]:
                yield f"{key} was dead-lettered for certain, and is gone"

    def _whole(self, operation: Operation, found: dict[str, Fact], transactions: set[str]) -> Iterable[str]:
        """All of it or nothing; all of it once confirmed."""
        for_it, against_it = self._signs(operation, found)
        if operation.transaction is not None:
            known = operation.transaction in transactions
            (for_it if known else against_it).append(f"its outcome is {'known' if known else 'not known'}")
        if operation.number in self.confirmed:
            for sign in against_it:
                yield f"operation {operation.number} was confirmed, but {sign}"
        elif for_it and against_it:
            yield f"operation {operation.number} is there by half: {for_it[0]}, but {against_it[0]}"

    def _signs(self, operation: Operation, found: dict[str, Fact]) -> tuple[list[str], list[str]]:
        """What says that the operation happened, and what says that it did not; what others may have done says nothing."""
        for_it, against_it = [], []
        for key in operation.sends:
            if key in found:
                for_it.append(f"{key} is there")
            elif not self._removers[key]:
                against_it.append(f"{key} is not there")
        for key in operation.acks:
            if key in found:
                against_it.append(f"{key} is still there")
            elif self._removers[key] == [operation] and self._creator[key].number in self.confirmed:
                for_it.append(f"{key} is gone")
        return for_it, against_it
