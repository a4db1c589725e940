"""What a channel has handed out and nobody has settled yet, by the channel's tags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...core.consumer import Consumer
from ...core.message import MessageReference
from .errors import unknown_tag

#: An unacknowledged delivery: who holds it, under which of the consumer's own tags, and the channel's tag.
Unacked = tuple[Consumer, int, int]
#: Who holds it, and by how much its own tag is higher than the channel's: one for all that were handed out together.
Holder = tuple[Consumer, int]


class UnackedDeliveries:
    """There may be very many, so that each is no more than its place here."""

    __slots__ = ("holders", "next_tag", "oldest_tag")

    def __init__(self) -> None:
        #: By tag, in their order. For what runs for every message; everybody else calls what is below.
        self.holders: dict[int, Holder] = {}
        #: The next delivery's, and the lowest that may be here still.
        self.next_tag = self.oldest_tag = 1

    def add(self, consumer: Consumer, first: int, references: list[MessageReference]) -> None:
        """These were handed out under tags from ``first`` on."""
        behind, last = references[0].tag - first, first + len(references) - 1
        if references[-1].tag - last == behind:
            # A number that is there already is not kept twice.
            tags = range(first, last + 1) if behind else [reference.tag for reference in references]
            self.holders.update(dict.fromkeys(tags, (consumer, behind)))
            return
        # Some were taken back before they were handed out.
        for tag, reference in enumerate(references, first):
            self.holders[tag] = (consumer, reference.tag - tag)

    def pop(self, tag: int) -> Unacked | None:
        found = self.holders.pop(tag, None)
        return None if found is None else (found[0], tag + found[1], tag)

    def take(self, tags: Iterable[int]) -> list[Unacked]:
        """Those of these tags that are there, and are not any more."""
        pop = self.holders.pop
        return [(found[0], tag + found[1], tag) for tag in tags if (found := pop(tag, None)) is not None]

    def take_named(self, tag: int, multiple: bool) -> list[Unacked]:
        """The deliveries that an acknowledgement names; tag 0 with ``multiple`` is all of them. Raises AmqpError."""
        if not multiple:
            entry = self.pop(tag)
            if entry is None:
                raise unknown_tag(tag)
            return [entry]
        last = tag or self.next_tag - 1
        if tag and tag not in self:
            raise unknown_tag(tag)
        span = range(self.oldest_tag, last + 1)
        tags: Iterable[int] = span if len(span) <= 2 * len(self) else sorted(each for each in self if each <= last)
        taken = self.take(tags)
        self.oldest_tag = max(self.oldest_tag, last + 1)
        return taken

    def put_back(self, entries: Iterable[Unacked]) -> None:
        self.holders.update({tag: (consumer, own - tag) for consumer, own, tag in entries})
        self.holders = dict(sorted(self.holders.items()))

    def consumers(self) -> set[Consumer]:
        return {consumer for consumer, _ in self.holders.values()}

    def clear(self) -> None:
        self.holders.clear()

    def __iter__(self) -> Iterator[int]:
        return iter(self.holders)

    def __contains__(self, tag: object) -> bool:
        return tag in self.holders

    def __len__(self) -> int:
        return len(self.holders)
