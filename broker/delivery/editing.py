"""Messages that take the place of others: copies with another body or other properties, sent back to be tried, the counts at 0.

The one comes and the other goes in one commit. A message itself never changes: what takes its place has a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from homing.journal.contract import EditRecord, ReferenceRecord

from ..auth.access import Access, Who, at_queue, needs, queue_place
from ..core.amqp.account import AmqpAccount
from ..core.edit import Edit, Edits
from ..core.message import AMQP_ORIGIN, Message, MessageReference, Properties, PropertyValue
from ..core.message_filter import Filter
from ..core.queue import Queue
from ..core.rights import Place, Right
from ..core.settings.in_force import SettingsInForce
from ..entries.choosing import Choosing
from ..entries.references import References
from ..errors import Refused
from ..properties import checked, measured
from ..recording.journal_port import JournalPort
from ..steps import Steps
from .by_hand import ByHand
from .transfer import Transfer, would_go_back

_MOST_PAGES: Final = 1 << 30


def _edited(done: dict[int, int | Refused]) -> int:
    """How many messages the audit says it was."""
    return sum(isinstance(each, int) for each in done.values())


class Copying:
    """``most_properties``: bytes that properties may take; ``largest``: body and properties of a message that can be delivered."""

    def __init__(self, amqp: AmqpAccount, most_properties: int, largest: int, now_ms: Callable[[], int]) -> None:
        self._amqp = amqp
        self._most_properties = most_properties
        self._largest = largest
        self._now_ms = now_ms

    def copy(self, original: Message, edit: Edit, expires: bool) -> Message:
        """``expires``: nothing has cleared its expiration."""
        body = original.body if edit.body is None else edit.body
        changes: dict[str, PropertyValue] = {**dict.fromkeys(edit.unset), **edit.set}
        checked(changes, self._most_properties)
        properties: Properties = {**(original.properties or {}), **edit.set}
        for name in edit.unset - edit.set.keys():
            properties.pop(name, None)
        origin = properties.get(AMQP_ORIGIN)
        if isinstance(origin, bytes):
            properties[AMQP_ORIGIN] = self._amqp.rewritten(origin, changes, expires)
        size, extra = measured(properties)
        if size > max(self._most_properties, original.properties_size):
            raise Refused("properties-too-large", f"the properties would hold {size} bytes", "put large data into the body")
        priority, durable, now_ms = original.priority, original.durable, self._now_ms()
        kept, producer = properties or None, original.producer
        copy = Message(0, original.address, body, kept, priority, durable, now_ms, producer=producer, properties_size=size, extra=extra)
        copy.kept = original.kept
        if copy.size > max(self._largest, original.size):
            why = f"it would take {copy.size} bytes, the largest that can be delivered has {self._largest}"
            raise Refused("message-too-large", why, "change less, or raise limits.max-frame-bytes and limits.max-message-bytes")
        return copy


def _edited_to(edits: Edits) -> Iterable[Place]:
    return () if edits.target is None else (queue_place(edits.target),)


class Editing:
    def __init__(
        self,
        access: Access,
        journal: JournalPort,
        settings: SettingsInForce,
        references: References,
        choosing: Choosing,
        hand: ByHand,
        transfer: Transfer,
        copying: Copying,
    ) -> None:
        self.access = access
        self._journal = journal
        self._settings = settings
        self._references = references
        self._choosing = choosing
        self._hand = hand
        self._transfer = transfer
        self._copying = copying

    @needs((Right.CONSUME, at_queue), (Right.SEND, _edited_to), audited=True, counts=_edited)
    def edit(self, who: Who, queue: Queue, edits: Edits) -> Steps[dict[int, int | Refused]]:
        """The number of what took each one's place, or why nothing did; what is not there is left out. The right to send is asked of each
        queue that something goes back to. Raises Refused also where a page could not be read.
        """
        done: dict[int, int | Refused] = {}
        check = partial(self.access.check_queue, who, Right.SEND, verb="edit")

        def act(reference: MessageReference) -> None:
            number = reference.message.message_id
            try:
                done[number] = self._replace(reference, edits, check)
            except Refused as refusal:
                if refusal.code == "access-refused":
                    raise
                done[number] = refusal.with_traceback(None)

        def take(record: ReferenceRecord) -> bool:
            number = record.message.message_id
            if number in done:
                return True
            if not self._choosing.in_place(queue, record, act):
                done[number] = Refused("message-held", f"message {number} is held by a consumer", "wait until it is settled")
            return True

        wanted = Filter(message_ids=tuple(edits.by_number))
        yield from self._choosing.choose(queue, wanted, 0, take, _MOST_PAGES)
        return done

    def signatures_of(self, message: Message) -> list[str]:
        """Its properties that sign what is sent to its address."""
        names = self._settings.resolve(message.address).signature_properties
        return [name for name in names if name in (message.properties or ())]

    def _replace(self, reference: MessageReference, edits: Edits, check: Callable[[str, str], None]) -> int:
        original = reference.message
        if not edits.signed and (named := self.signatures_of(original)):
            fix = "whoever checks it may refuse it: --yes (signed) edits it all the same"
            raise Refused("message-signed", f"message {original.message_id} carries {', '.join(named)}, a signature", fix)
        self._references.keep_failed((reference,))
        copy = self._copying.copy(original, edits.by_number[original.message_id], expires=not would_go_back(reference))
        target = edits.target or self._hand.home_of(reference.queue, reference.hops, 0, check)
        if target is None:
            raise Refused("no-such-address", "its queue is gone, and is not made again", "create the queue, or name another one")
        copy.message_id = self._journal.next_id()
        self._transfer.replace(reference, copy, target, edits.keep)
        if target.durable:
            self._journal.batch.edit(EditRecord(copy.message_id, original.message_id, target.queue_id, copy.sent_at_ms))
        return copy.message_id
