"""What is done with messages by hand, one at a time: deleted, or moved (transfer.py); and where one that died would go back to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from homing.journal.contract import HopRecord

from ..auth.access import Access, Who, at_target, needs, queue_place
from ..core.dead_letter import DELETED
from ..core.message import MessageReference
from ..core.queue import Queue
from ..core.rights import Place, Right
from ..core.routing import PostOffice
from ..entries.by_number import ByNumber
from ..entries.references import References, expires_when_moved
from ..errors import Refused
from ..steps import Steps
from ..topology.resources import Resources
from .transfer import RoomLeft, Transfer

#: Asked before a queue, by name and address, is sent to. Raises Refused.
Check = Callable[[str, str], None]


def _at_all(references: Sequence[MessageReference]) -> Iterable[Place]:
    return dict.fromkeys(queue_place(each.queue) for each in references)


def _at_one(entry: MessageReference) -> Iterable[Place]:
    return (queue_place(entry.queue),)


class ByHand:
    def __init__(
        self,
        access: Access,
        post_office: PostOffice,
        resources: Resources,
        references: References,
        by_number: ByNumber,
        transfer: Transfer,
        now_ms: Callable[[], int],
    ) -> None:
        self.access = access
        self._post_office = post_office
        self._resources = resources
        self._references = references
        self._by_number = by_number
        self._transfer = transfer
        self._now_ms = now_ms

    # -- where to ----------------------------------------------------------------------------------------------------

    def home_of(self, queue: Queue, hops: Sequence[HopRecord] | None, sent: int, check: Check) -> Queue | None:
        """Where one of ``queue`` with these hops, after so many others, is sent back to: the queue of its first death, made again where it
        is gone, or where it is. None: that is gone, and may not be made. Raises Refused."""
        if not hops:
            return queue
        first = hops[-1][1]
        check(first["queue"], first["address"])
        target = self._post_office.queues.get(first["queue"])
        if target is not None:
            return target
        try:
            return self._resources.make_queue_for(first["queue"], first["address"], first["routing_type"])
        except Refused as refusal:
            why = f"after {sent} messages: queue {first['queue']} is gone and cannot be made again ({refusal.message})"
            raise Refused(refusal.code, why, f"{refusal.fix}, then redrive what is left") from None

    def in_the_way(self, target: str, number: int, size: int) -> dict[str, int]:
        """What would keep so many messages, each of about this size, sent to the queue of this name from being dealt with there (codes:
        docs/protocol.md, 2.7), and how many of them."""
        queue = self._post_office.queues.get(target)
        if queue is None:
            return {"queue-gone" if self._resources.may_make_queues(target) else "no-such-address": number}
        codes = {
            "queue-paused": number * queue.paused,
            "no-consumer": number * (not queue.consumers),
            "queue-full": number - RoomLeft(queue).most(number, size),
            "policy": number * (expires_when_moved(queue, 0) is not None),
        }
        return {code: kept for code, kept in codes.items() if kept}

    # -- one message -------------------------------------------------------------------------------------------------

    @needs((Right.MANAGE, _at_all), audited=True, action="delete-message")
    def delete(self, who: Who, references: Sequence[MessageReference]) -> Steps[bool]:
        """From all these queues; whether it could be: see ByNumber.act_on."""
        for entry in references:
            if not (yield from self._by_number.act_on(entry, lambda each: self._references.leave(each, "purged", self._now_ms(), DELETED))):
                return False
        return True

    @needs((Right.CONSUME, _at_one), (Right.SEND, at_target), audited=True, action="move-message")
    def move(self, who: Who, entry: MessageReference, target: Queue) -> Steps[bool]:
        """Into another queue, failed count at 0; whether it could be. Raises Refused where that has no room."""
        return self._by_number.act_on(entry, lambda reference: self._transfer.put(reference, target))
