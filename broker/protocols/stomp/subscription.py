"""What one SUBSCRIBE stands for: a consumer, or one of each queue that it names or that its pattern matches."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ...core.amqp.origin import last_way
from ...core.consumer import Consumer, SharedWindow
from ...core.message import MessageReference
from .codec import header_line
from .destinations import Destination, told_of_way
from .message_mapping import message_frames

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
#: Ids of settled deliveries that are not worth a look.
_FEW_IDS: Final = 100

#: Deliveries of one consumer that an ACK or a NACK names, the latest last.
Named = tuple[Consumer, list[MessageReference]]


class Part:
    """One consumer of a subscription."""

    def __init__(self, whole: Subscription, consumer: Consumer, destination: str | None) -> None:
        """``destination``: as its messages say it; None: each says how it came, through an exchange."""
        self.whole = whole
        self.consumer = consumer
        version, auto = whole.version, whole.mode == AUTO
        self.bound = destination is None
        self._lines = header_line("subscription", whole.name, version)
        if destination is not None:
            self._lines += header_line("destination", destination, version)
        #: Before STOMP 1.2 deliveries are named by the number of their message.
        self._keeps_ids = version != "1.2" and not auto
        self._number = consumer.number if version == "1.2" and not auto else None
        #: Number of the message -> tag of the delivery.
        self.tags: dict[int, int] = {}
        #: Every tag up to this one was named by a cumulative ACK or NACK, and need not be looked for again.
        self.named_up_to = 0

    def frames(self, references: list[MessageReference]) -> bytes:
        """These deliveries, one MESSAGE each."""
        if self._keeps_ids:
            if len(self.tags) > 2 * len(self.consumer.unsettled) + _FEW_IDS:
                self.tags = {message: tag for message, tag in self.tags.items() if tag in self.consumer.unsettled}
            self.tags.update([(reference.message.message_id, reference.tag) for reference in references])
        if self.whole.order is not None:
            self.whole.order.update([((self, reference.tag), None) for reference in references])
        return message_frames(self._lines, references, self.whole.version, self._number, self._told if self.bound else None)

    def _told(self, reference: MessageReference) -> str:
        return told_of_way(last_way(reference), self.whole.topics)

    def named(self, tags: list[int]) -> list[Named]:
        """What acknowledgements of these deliveries are about: they alone, or with all before. What is not held any more is left out."""
        if self.whole.mode != CLIENT:
            return self.held(tags)
        last = max(tags)
        if self.whole.order is not None:
            return self.whole.up_to(self, last)
        unsettled, span = self.consumer.unsettled, range(self.named_up_to + 1, last + 1)
        self.named_up_to = max(self.named_up_to, last)
        return self.held([*span] if len(span) <= 2 * len(unsettled) else [each for each in unsettled if each in span])

    def held(self, tags: list[int]) -> list[Named]:
        unsettled = self.consumer.unsettled
        references = [reference for tag in tags if (reference := unsettled.get(tag)) is not None]
        return [(self.consumer, references)] if references else []


class Subscription:
    """``text``: its destination, as the client wrote it; ``wanted``: what that names. Where that may be several queues, ``prefetch`` is for
    all of them together; 0: no limit.
    """

    def __init__(
        self, name: str, text: str, mode: str, version: str, wanted: tuple[Destination, ...], prefetch: int, topics: str | None
    ) -> None:
        self.name, self.text, self.mode, self.version, self.topics = name, text, mode, version, topics
        self.patterns = [each for each in wanted if each.pattern]
        self.is_one = len(wanted) == 1 and not self.patterns
        #: By the destination of each.
        self.parts: dict[str, Part] = {}
        self.window: SharedWindow | None = None
        #: Deliveries of all parts in the order in which they went out, where an acknowledgement is of all before it.
        self.order: OrderedDict[tuple[Part, int], None] | None = None
        if not self.is_one and mode != AUTO:
            self.window = SharedWindow()
            self.window.limit = prefetch
            self.order = OrderedDict() if mode == CLIENT else None

    def add(self, destination: str, consumer: Consumer, told: str | None) -> Part:
        """``told``: the destination as messages say it (Part)."""
        part = self.parts[destination] = Part(self, consumer, told)
        consumer.holds_nothing = self.mode == AUTO
        if self.window is not None:
            self.window.join(consumer)
        return part

    def remove(self, part: Part) -> None:
        self.parts = {destination: each for destination, each in self.parts.items() if each is not part}
        if self.window is not None:
            self.window.leave(part.consumer)

    def up_to(self, last: Part, tag: int) -> list[Named]:
        """What went out up to this delivery, and is held."""
        if self.order is None or (last, tag) not in self.order:
            return []
        tags: dict[Part, list[int]] = {}
        found: tuple[Part, int] | None = None
        while found != (last, tag):
            found, _ = self.order.popitem(last=False)
            tags.setdefault(found[0], []).append(found[1])
        return [named for part, those in tags.items() for named in part.held(those)]

    def rolled_back(self) -> None:
        """What was named in a transaction may be named again."""
        if self.order is not None:
            self.order = OrderedDict(((part, tag), None) for part in self.parts.values() for tag in part.consumer.unsettled)
