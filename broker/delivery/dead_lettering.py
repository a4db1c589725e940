"""The dead-letter office: where messages go that cannot be delivered. How they come back: by_hand.py.

A death is one step: out of one queue, into another, with its attempt, in one journal batch. Where the target is missing,
matches no queue or is full, the message is parked in its queue (parking.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from homing.journal.contract import Death, Outcome

from ..core import dead_letter
from ..core.amqp.vhost import split
from ..core.dead_letter import DELIVERY_LIMIT, EXPIRED, MAX_LENGTH, Target
from ..core.message import GONE, IN_COMMIT, PARKED, Hop, MessageReference, PropertyValue, lookup
from ..core.queue import Queue
from ..core.reserved import EVENTS
from ..core.routing import ANYCAST, PostOffice
from ..core.settings.address_settings import AddressSettings
from ..core.settings.in_force import SettingsInForce
from ..core.standing import Standing
from ..entries.enqueuing import Enqueuing
from ..entries.events import Events
from ..entries.from_disk import FromDisk
from ..entries.notes import Notes
from ..entries.ready_set import ReadySet
from ..entries.references import Moved, References
from ..entries.throttle import Throttle
from ..errors import Refused
from ..recording.journal_port import JournalPort
from ..steps import STEP
from ..topology.amqp.dead_letter_exchanges import DeadLetterExchanges, DeadLetterRoute, too_many_hops
from ..topology.explain import target_of, to_make
from ..topology.resources import Resources, makes_room, over_length, takes_nothing
from .parking import MOST_AT_AN_END, Parking

log = logging.getLogger("homing")

#: drop-head trims at most this many messages at one arrival.
_AT_AN_ARRIVAL: Final = 2
#: Stands among the names that a way depends on: which of several queues is next.
_ROUND_ROBIN: Final = "round-robin"
_NO_ADDRESS: Final = "it has no dead-letter-address (set one in address-settings)"


class Way(NamedTuple):
    """To an address, and there to these queues: [] where that is to be found out for each. ``shared``: see ``target_of``."""

    target: Target
    shared: str | None
    queues: list[Queue]


class DeadLetterWays:
    """Where dead letters go: queues, exchanges and settings have their say. Whatever is to take them is made."""

    def __init__(
        self,
        post_office: PostOffice,
        settings: SettingsInForce,
        throttle: Throttle,
        resources: Resources,
        exchanges: DeadLetterExchanges,
        notes: Notes,
        max_hops: int,
    ) -> None:
        self._post_office = post_office
        self._settings = settings
        self._throttle = throttle
        self._resources = resources
        self._exchanges = exchanges
        self._notes = notes
        self._max_hops = max_hops
        #: Where dead letters of a queue go that died for a reason, as bindings and settings stood then.
        self._ways: dict[tuple[Queue, str], tuple[AddressSettings, Way]] = {}
        self._ways_stand: tuple[int, Standing] | None = None

    def routes(
        self, queue: Queue, references: Sequence[MessageReference], reason: Death, now_ms: int, address: str | None
    ) -> list[DeadLetterRoute]:
        """Where they go, before anything of them changes. Whatever goes wrong in finding out, they are kept: parked, and tried again."""
        events = [reference for reference in references if reference.message.address == EVENTS]
        if events:
            others = [reference for reference in references if reference.message.address != EVENTS]
            dropped = DeadLetterRoute([(reference, []) for reference in events], [], "it takes events, which have no dead letters")
            return [dropped, *(self.routes(queue, others, reason, now_ms, address) if others else [])]
        try:
            if address:
                return self.to_target(queue, references, reason, now_ms, Way(self._named(queue, address, now_ms), None, []))
            if (way := self._remembered(queue, reason)) is not None:
                return self.to_target(queue, references, reason, now_ms, way)
            routes = self._exchanges.routes(queue, references, reason)
            return self._to_address(queue, references, reason, now_ms) if routes is None else routes
        except Exception:
            log.exception("dead-lettering-failed: queue %s: it could not be decided where its dead letters go; they are kept", queue.name)
            return [DeadLetterRoute([(reference, []) for reference in references], [], kept_for="it could not be decided where they go")]

    def _to_address(self, queue: Queue, references: Iterable[MessageReference], reason: Death, now_ms: int) -> list[DeadLetterRoute]:
        """To the dead-letter (or expiry) address of the settings."""
        target, shared = target_of(self._post_office, queue, reason)
        if target is None:
            moved: list[Moved] = [(reference, []) for reference in references]
            if reason in (EXPIRED, MAX_LENGTH) or queue.settings.without_dead_letter_address == "drop":
                return [DeadLetterRoute(moved, [], _NO_ADDRESS)]
            return [DeadLetterRoute(moved, [])]
        return self.to_target(queue, references, reason, now_ms, Way(target, shared, []), remember=True)

    def to_target(
        self,
        queue: Queue,
        references: Iterable[MessageReference],
        reason: Death,
        now_ms: int,
        way: Way,
        last: bool = False,
        remember: bool = False,
    ) -> list[DeadLetterRoute]:
        """``last``: however often they were dead-lettered before. ``remember``: the next go this way too, if they may."""
        target, shared, queues = way
        routes: list[DeadLetterRoute] = []
        hop: Hop | None = None
        asked: set[str] = set()
        for reference in references:
            hop = dead_letter.hop_like(hop, reference) if hop else dead_letter.hop(reference, reason, now_ms, shared)
            hops = [hop, *(reference.hops or ())]
            # The guard against loops: its way is as long as it may get, and it is parked where it is.
            too_often = reference.hops is not None and len(reference.hops) >= self._max_hops and not last
            loops = too_often or target.address == queue.address
            if not loops and (not queues or not shared_by_all(asked)):
                queues = self._willing(target, reference, hops, asked, now_ms)
            to = [] if loops else queues
            if not routes or routes[-1].queues != to:
                routes.append(DeadLetterRoute([], to, kept_for=too_many_hops(self._max_hops) if too_often else ""))
            routes[-1].moved.append((reference, hops))
        if remember and queues and shared_by_all(asked) and self._ways_stand == self._stand():
            self._ways[queue, reason] = queue.settings, Way(target, shared, queues)
        return routes

    def _named(self, queue: Queue, address: str, now_ms: int) -> Target:
        """The address that a rule names, in the queue's virtual host; made as a send to it would."""
        name = split(queue.address)[0] + address
        there = self._post_office.addresses.get(name)
        if (there is None or not there.queues) and self._settings.resolve(name).default_address_routing_type == ANYCAST:
            try:
                self._resources.make_queue_for(name, name, ANYCAST)
            except Refused as refusal:
                why = f"address {address}, which a rule names, cannot be made ({refusal.message}): {refusal.fix}"
                self._notes.no_way(queue, why, now_ms)
        return Target(name, None, queue.address)

    def _stand(self) -> tuple[int, Standing]:
        """Another one whenever bindings, queues or settings have changed."""
        return self._post_office.bindings_version, self._post_office.settings_stand

    def _remembered(self, queue: Queue, reason: Death) -> Way | None:
        """Where the last of its dead letters went for that reason, if the next go the same way: nothing that it depends on has changed."""
        if self._ways_stand != (stand := self._stand()):
            self._ways.clear()
            self._ways_stand = stand
        settings, way = self._ways.get((queue, reason), (None, None))
        return way if settings is queue.settings else None

    def _willing(self, target: Target, reference: MessageReference, hops: list[Hop], asked: set[str], now_ms: int) -> list[Queue]:
        try:
            return self._queues(target, reference, hops, asked)
        except Refused as refusal:
            # The names are made of others, which may have been as long as they can be; the message is kept where it is.
            self._notes.no_way(reference.queue, f"its dead-letter resources cannot be made ({refusal.message}): {refusal.fix}", now_ms)
            return []

    def _queues(self, target: Target, reference: MessageReference, hops: list[Hop], asked: set[str]) -> list[Queue]:
        """The queues that match; empty when none does. ``asked`` gets the names of what that depended on."""
        post_office = self._post_office
        if (name := to_make(self._post_office, target)) is not None:
            self._resources.make_dead_letter_queue(name, target, shared=target.source != reference.queue.address)
        address = post_office.addresses.get(target.address)
        if address is None or address.name == EVENTS:
            return []
        if address.is_round_robin:
            asked.add(_ROUND_ROBIN)
        said = lookup(reference.message, hops)

        def say(name: str) -> PropertyValue:
            asked.add(name)
            return said(name)

        self._throttle.spend(address.look_cost(reference.message.properties_size))
        return list(address.route(lambda: say))

    def target_of(self, queue: Queue) -> tuple[Target | None, str | None]:
        """Where the settings have its dead letters go: see ``target_of``."""
        return target_of(self._post_office, queue, DELIVERY_LIMIT)

    def why_parked(self, queue: Queue, reason: Death, queues: list[Queue]) -> str:
        """Why its dead letters find no place, in a sentence's end."""
        if queues:
            return f"{next((each.name for each in queues if takes_nothing(each)), queues[0].name)} is full"
        if (why := self._exchanges.why_nowhere(queue)) is not None:
            return why
        target, _ = target_of(self._post_office, queue, reason)
        if target is None:
            return _NO_ADDRESS
        return "it takes dead letters itself" if target.address == queue.address else f"no queue of address {target.address} takes them"


class DeadLetterOffice:
    def __init__(
        self,
        journal: JournalPort,
        references: References,
        enqueuing: Enqueuing,
        from_disk: FromDisk,
        ready: ReadySet,
        throttle: Throttle,
        events: Events,
        ways: DeadLetterWays,
        parking: Parking,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._references = references
        self._enqueuing = enqueuing
        self._from_disk = from_disk
        self._ready = ready
        self._throttle = throttle
        self._events = events
        self._notes = events.notes
        self._ways = ways
        self.parking = parking
        self._now_ms = now_ms
        #: Queues of which more is to go than was for one step.
        self.untrimmed: dict[Queue, None] = {}

    def dead_letter(self, reference: MessageReference, reason: Death) -> None:
        """Ends a queue entry: to its dead-letter (or expiry) address, parked, or removed where that is meant."""
        self.dead_letter_all(reference.queue, (reference,), reason, self._now_ms())

    def expire(self, reference: MessageReference) -> None:
        """Its time is over."""
        self.dead_letter(reference, EXPIRED)

    def retry_parked(self) -> None:
        """Every parked message tries again to leave, a step a turn."""
        self.parking.try_all(self.dead_letter)

    def go_on_with_parked(self) -> None:
        """Once a turn, where there is room in queues that were waited for, or bindings have changed: see Parking."""
        self.parking.go_on(self.dead_letter)

    def dead_letter_all(
        self,
        queue: Queue,
        references: Sequence[MessageReference],
        reason: Death,
        now_ms: int,
        may_wait: bool = True,
        address: str | None = None,
    ) -> None:
        """Ends entries of one queue, all for one reason, as ``dead_letter`` does one.

        Those for several queues each that are more than this turn has room for (throttle.py) are parked until a later one has;
        ``may_wait`` False: they go now.
        ``address``: where a rule sends them; what finds no place there goes where the queue's dead letters go.
        """
        parked = {reference for reference in references if reference.where is PARKED and reference.park_reason == reason}
        routes = self._ways.routes(queue, references, reason, now_ms, address)
        for reference in references:
            if reference.where is not IN_COMMIT:
                queue.withdraw(reference, IN_COMMIT)
        for moved, queues, removed_for, kept_for in routes:
            if removed_for:
                for reference, _ in moved:
                    self._drop(reference, reason, removed_for)
                continue
            waits = may_wait and not address and len(queues) > 1 and (most := self._throttle.portion(len(queues))) < len(moved)
            number = self._expected(moved[:most] if waits else moved, queues)
            left = [reference for reference, _ in moved[number:]]
            if address and left:
                why = f"address {address}, which a rule names, has no queue with room; dead letters go where others go"
                self._notes.no_way(queue, why, now_ms)
                self.dead_letter_all(queue, left, reason, now_ms)
            elif left:
                if passing := [each for each in left if not each.durable]:
                    self._references.keep_failed(passing)
                fresh = self.parking.park(queue, left, reason, parked, queues)
                if waits:
                    self.parking.try_in_line(self.dead_letter)
                elif fresh:
                    self._events.parked(queue, fresh, kept_for or self._ways.why_parked(queue, reason, queues))
            if number:
                self._move_together(queue, queues, moved[:number], reason, now_ms)

    def _move_together(self, queue: Queue, queues: list[Queue], going: list[Moved], reason: Death, now_ms: int) -> None:
        """From one queue into these, which expect them."""
        self._events.dead_lettering(queue, queues, len(going), reason, now_ms)
        outcome: Outcome = "expired" if reason == EXPIRED else "dead-lettered"
        arrived = self._references.move(queue, queues, going, outcome, now_ms, reason)
        queue.dead_lettering += 1

        def on_disk() -> None:
            self._enqueuing.arrived(arrived)
            for target in queues:
                if target.settings.overflow == "drop-head":
                    self.trim(target)
            queue.dead_lettering -= 1

        self._journal.when_safe(on_disk)

    def move_out(self, queue: Queue, outcome: Outcome) -> bool:
        """The queue ends: what is parked in it goes where the address settings have dead letters go, whatever its exchange. Whether none
        is left; else the queue stays."""
        parked, now_ms = list(islice(queue.parked.values(), MOST_AT_AN_END)), self._now_ms()
        target, shared = self._ways.target_of(queue)
        if target is not None and target.address != queue.address:
            for reason in dict.fromkeys(each.park_reason for each in parked if each.park_reason):
                those = [each for each in parked if each.park_reason == reason]
                for moved, queues, *_ in self._ways.to_target(queue, those, reason, now_ms, Way(target, shared, []), last=True):
                    if number := self._expected(moved, queues):
                        for reference, _ in moved[:number]:
                            queue.withdraw(reference, IN_COMMIT)
                        self._move_together(queue, queues, moved[:number], reason, now_ms)
        if not queue.parked:
            return True
        self.parking.stay(queue, outcome, more=not any(reference.where is PARKED for reference in parked))
        return False

    def drop_all(self, queue: Queue, references: Sequence[MessageReference], rule: str, now_ms: int) -> None:
        """A rule of this name removes them."""
        for reference in references:
            queue.withdraw(reference, GONE)
        self._references.leave_all(queue, references, "dropped", now_ms, rule)
        self._notes.removed(queue, len(references), f"rule {rule}", now_ms)

    def _expected(self, moved: list[Moved], queues: list[Queue]) -> int:
        """How many find room, the first of them; the queues expect these."""
        limited = [queue for queue in queues if queue.settings.limited]
        if not limited:
            size = sum([reference.message.size for reference, _ in moved])
            for queue in queues:
                queue.expect(len(moved), size)
            return len(moved) if queues else 0
        number = 0
        while number < len(moved) and not any(map(takes_nothing, limited)):
            for queue in queues:
                queue.expect(1, moved[number][0].message.size)
            number += 1
        return number

    def trim_when_safe(self, queues: Iterable[Queue]) -> None:
        """Keeps length limits of queues whose new messages become pending only once they are on disk."""
        for queue in queues:
            if queue.settings.overflow == "drop-head":
                self._journal.when_safe(partial(self.trim, queue))

    def trim(self, queue: Queue) -> None:
        """drop-head, at an arrival: what is too much goes, oldest of the lowest priority first."""
        self._trim(queue, _AT_AN_ARRIVAL)

    def trim_later(self, queue: Queue) -> None:
        """A limit may have been made smaller."""
        if queue.settings.overflow == "drop-head":
            self.untrimmed[queue] = None
            self._ready.mark(queue)

    def _trim(self, queue: Queue, most: int) -> int:
        """How many went. What is left goes in the next turns, whether more arrives or not."""
        if queue.settings.overflow != "drop-head":
            return 0
        gone: list[MessageReference] = []
        while over_length(queue) and makes_room(queue):
            if len(gone) == most:
                self.trim_later(queue)
                break
            oldest = queue.pending.oldest_of_lowest_priority()
            if oldest is None:
                self._fetch_oldest(queue)
                break
            queue.withdraw(oldest, IN_COMMIT)
            gone.append(oldest)
        if gone:
            self.dead_letter_all(queue, gone, MAX_LENGTH, self._now_ms())
        return len(gone)

    def _fetch_oldest(self, queue: Queue) -> None:
        """What is to go next is only on disk; the queue is marked ready, and so looked at again, when it is here."""
        lowest = next((priority for priority, count in enumerate(queue.pending.on_disk) if count), None)
        if lowest is not None:
            self.untrimmed[queue] = None
            self._from_disk.fetch(queue, lowest)

    def go_on(self) -> None:
        """Another step of what is too much, of all queues together: once a turn, where there is any."""
        queues, self.untrimmed = self.untrimmed, {}
        most = STEP
        while queues and most > 0:
            queue, _ = queues.popitem()
            most -= 1 + self._trim(queue, most)
        if queues:
            # Their turn comes before that of those that had it now.
            self.untrimmed |= queues
            self._ready.wake()

    def _drop(self, reference: MessageReference, reason: Death, why: str) -> None:
        queue, now_ms = reference.queue, self._now_ms()
        self._references.leave(reference, "expired" if reason == EXPIRED else "dropped", now_ms, reason)
        if reason not in (EXPIRED, MAX_LENGTH):
            self._notes.removed(queue, 1, f"{why} ({reason})", now_ms)


def shared_by_all(asked: set[str]) -> bool:
    """Whether a way that depended on these is the same for all that die so in the queue."""
    return asked <= dead_letter.SAID_BY_THE_DEATH
