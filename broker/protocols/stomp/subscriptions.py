"""What one STOMP connection consumes: its subscriptions, what each holds, and how that is settled."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from ...broker import Broker
from ...connection import Connection
from ...core.consumer import Consumer, ConsumerOptions
from ...core.message import MessageReference
from ...errors import Refused
from ..output import Output
from .browser import Browser
from .codec import Headers, header_line
from .declaring import declare, declares
from .destinations import EXCHANGE, TEMPORARY, TOPIC, Destination, read_destination, read_destinations
from .message_mapping import LONGEST_NAME, flag, number
from .patterns import Watch
from .subscription import AUTO, CLIENT, INDIVIDUAL, Named, Part, Subscription

log = logging.getLogger("homing")

_NOTHING: Final[Headers] = {}
_MODES: Final = (AUTO, CLIENT, INDIVIDUAL)
#: As many as come.
_NO_LIMIT: Final = 1 << 30
#: As the clients of each broker say how many may be on their way to them.
_PREFETCH: Final = ("activemq.prefetchSize", "prefetch-count")
#: What a durable subscription to a topic is called; ActiveMQ takes the misspelt one, too.
_DURABLE: Final = ("durable-subscriber-name", "durable-subscription-name", "activemq.subscriptionName", "activemq.subcriptionName")
_MOST_WAITING: Final = "activemq.maximumPendingMessageLimit"
_MOST_PRIORITY: Final = (1 << 31) - 1
_MOST_BROWSERS: Final = 100
_MOST_TEMPORARY: Final = 1000
#: What the acknowledgement of a delivery names: the subscription and its tag, both our numbers; before STOMP 1.2 its message.
_IDS: Final = re.compile(rb"(?:[0-9]{1,19}-[0-9]{1,19}\0)+")
_MESSAGES: Final = re.compile(rb"(?:[0-9]{1,19}\0)+")
#: Queues that a pattern stands for; those made later are left out.
_MOST_MATCHED: Final = 1000
#: Subscriptions of one connection that look at everything that is made.
_MOST_WATCHES: Final = 20


class Subscriptions:
    def __init__(self, broker: Broker, connection: Connection, version: str, prefix: str, topics: str | None) -> None:
        """``prefix``: of names in the connection's virtual host; ``topics``: the exchange that has them (read_destination)."""
        self._broker = broker
        self._connection = connection
        self._version = version
        self._prefix = prefix
        self._topics = topics
        #: By the client's id; those it has ended are gone from here.
        self._by_id: dict[str, Subscription] = {}
        self._browsers: dict[str, Browser] = {}
        self._watches: dict[str, Watch] = {}
        #: By the broker's number, as long as anything of theirs is held.
        self._by_number: dict[int, Part] = {}
        self._last = 0
        self._acknowledged: dict[Consumer, dict[int, MessageReference]] = {}
        #: The client's name for a temporary queue -> the queue's.
        self._temporary: dict[str, str] = {}

    def temporary(self, name: str) -> str:
        """The queue of the connection's own that it calls so. Raises Refused."""
        queue = self._temporary.get(name)
        if queue is None:
            if len(name) > LONGEST_NAME or len(self._temporary) >= _MOST_TEMPORARY:
                raise Refused(
                    "too-many-queues", f"a connection has at most {_MOST_TEMPORARY} temporary queues, with short names", "use one again"
                )
            queue = self._temporary[name] = self._broker.declared_queues.make_reply_queue(self._connection).name
        return queue

    def hear_answers(self, name: str) -> None:
        """What comes to that temporary queue is its own, also without a subscription, as with RabbitMQ. Raises Refused."""
        text = f"/temp-queue/{name}"
        if not any(each.text == text for each in self._by_id.values()):
            self.subscribe({"id": text, "destination": text})

    def subscribe(self, headers: Headers) -> None:
        """Raises Refused."""
        subscription, text = self._new_id(headers), headers.get("destination", "")
        mode = headers.get("ack", AUTO)
        if mode not in _MODES:
            raise Refused("invalid-header", f"ack: {mode[:32]!r} is no way to acknowledge", f"use {', '.join(_MODES)}")
        wanted = read_destinations(text, headers.get("subscription-type"), patterns=True, topics=self._topics)
        options = self._options(headers)
        prefetch = options.prefetch
        if prefetch is None:
            prefetch = self._broker.in_force.of(self._prefix + wanted[0].name).consumer_prefetch
        prefetch %= _NO_LIMIT
        made = Subscription(subscription, text, mode, self._version, wanted, prefetch, self._topics)
        if made.patterns and len(self._watches) >= _MOST_WATCHES:
            raise Refused(
                "too-many-subscriptions", f"{_MOST_WATCHES} have wildcards", "name several destinations in one, separated by commas"
            )
        if options.durable is not None and (not made.is_one or wanted[0].kind == EXCHANGE):
            raise Refused("not-supported", "a durable subscription is to one topic", "use one for each; of an exchange, durable:true")
        if made.window is not None:
            options = options._replace(prefetch=_NO_LIMIT)
        self._by_id[subscription] = made
        for each in wanted:
            if not each.pattern:
                self._join(made, each, options, headers)
        if made.patterns:
            self._watch(made, options)

    def _watch(self, subscription: Subscription, options: ConsumerOptions) -> None:
        """What its patterns match is consumed, also what is made later."""

        def found(destination: Destination) -> None:
            if destination.text in subscription.parts:
                return
            try:
                if len(subscription.parts) >= _MOST_MATCHED:
                    raise Refused("too-many-consumers", f"a pattern is for at most {_MOST_MATCHED} destinations", "write a narrower one")
                self._join(subscription, destination, options)
            except Refused as refusal:
                log.info("pattern-left-out: STOMP connection %s does not get %s: %s", self._connection.name, destination.text, refusal)

        watch = self._watches[subscription.name] = Watch(self._broker, self._prefix, subscription.patterns, found)
        watch.begin()

    def _join(self, subscription: Subscription, destination: Destination, options: ConsumerOptions, headers: Headers = _NOTHING) -> None:
        """``headers``: what may declare the queue. Raises Refused."""
        self._last += 1
        text: str | None = subscription.text if subscription.is_one else destination.text
        if destination.kind == TEMPORARY:
            name = self.temporary(destination.name)
        elif destination.kind == TOPIC:
            name = self._prefix + destination.name
        elif declares(destination, headers):
            name = declare(self._broker, self._connection, destination, subscription.name, headers).name
            text = None if destination.kind == EXCHANGE else text
        else:
            name = self._prefix + destination.name
        make = self._broker.subscriptions.subscribe_topic if destination.kind == TOPIC else self._broker.subscriptions.subscribe
        consumer = make(self._connection, self._last, name, options)
        self._by_number[consumer.number] = subscription.add(destination.text, consumer, text)

    def browse(self, headers: Headers, output: Output) -> Browser:
        """Raises Refused."""
        subscription, text = self._new_id(headers), headers.get("destination", "")
        destination = read_destination(text, headers.get("subscription-type"))
        if destination.kind == EXCHANGE:
            raise Refused("not-supported", "a browser is of a queue", "name one that is bound to the exchange")
        name = self._prefix + destination.name
        selector = self._broker.resources.read_selector(headers.get("selector"))
        lines = header_line("subscription", subscription, self._version) + header_line("destination", text, self._version)
        browser = self._browsers[subscription] = Browser(self._broker, self._connection, name, selector, lines, self._version, output)
        return browser

    def _new_id(self, headers: Headers) -> str:
        """Raises Refused."""
        text = headers.get("destination", "")
        subscription = headers.get("id", text if self._version == "1.0" else "")
        if len(subscription) > LONGEST_NAME:
            raise Refused("invalid-header", f"id is longer than {LONGEST_NAME} characters", "use a shorter one")
        if not subscription:
            raise Refused("missing-header", "SUBSCRIBE needs the header id", "give each subscription an id of its own")
        if subscription in self._by_id or subscription in self._browsers:
            raise Refused("subscription-exists", f"there is a subscription {subscription[:80]!r}", "give each one an id of its own")
        if len(self._browsers) >= _MOST_BROWSERS:
            raise Refused("too-many-subscriptions", f"{_MOST_BROWSERS} browsers are open here", "end them with UNSUBSCRIBE")
        return subscription

    def _options(self, headers: Headers) -> ConsumerOptions:
        """Raises Refused."""
        return ConsumerOptions(
            selector=headers.get("selector"),
            priority=number(headers, "activemq.priority", number(headers, "x-priority", 0, _MOST_PRIORITY, -_MOST_PRIORITY), 255),
            waits=flag(headers, "activemq.exclusive", False),
            durable=self._durable(headers),
            most_waiting=_most_waiting(headers),
            prefetch=_prefetch(headers),
        )

    def _durable(self, headers: Headers) -> str | None:
        """The queue of a durable subscription; None: it is none. Raises Refused."""
        name = next((headers[each] for each in _DURABLE if each in headers), None)
        if name is None:
            return None
        if not self._connection.client.client_id:
            raise Refused("missing-header", "a durable subscription needs client-id in CONNECT", "name the program there, always the same")
        return f"{self._prefix}{self._connection.client.client_id}.{name}"

    def unsubscribe(self, headers: Headers) -> None:
        """What was delivered stays with the client, which may settle it. Raises Refused."""
        subscription = headers.get("id", headers.get("destination", "") if self._version == "1.0" else "")
        if (browser := self._browsers.pop(subscription, None)) is not None:
            browser.over = True
            return
        ended, durable = self._by_id.pop(subscription, None), self._durable(headers)
        if durable is not None:
            self._broker.removal.end_subscription(self._connection, durable)
        elif ended is None:
            raise Refused("no-such-subscription", f"there is no subscription {subscription[:80]!r}", "name the id of one that is open")
        if ended is None:
            return
        if (watch := self._watches.pop(subscription, None)) is not None:
            watch.end()
        for part in ended.parts.values():
            if part.consumer.open:
                self._broker.consumers.unsubscribe(self._connection, part.consumer, keep_delivered=True)
            self._settled(part.consumer)
        self._broker.removal.consumers_gone([part.consumer.queue for part in ended.parts.values()])
        for queue in [part.consumer.queue for part in ended.parts.values() if part.bound] if flag(headers, "durable", False) else ():
            if self._broker.post_office.queues.get(queue.name) is queue:
                self._broker.removal.delete(self._connection, queue)

    def cancelled(self, consumer: Consumer) -> bool:
        """Its queue is gone; whether what it is part of goes on."""
        part = self._by_number.get(consumer.number)
        if part is None or not part.whole.patterns:
            return False
        part.whole.remove(part)
        self._settled(consumer)
        return True

    def close(self) -> None:
        """The connection has ended."""
        for watch in self._watches.values():
            watch.end()
        self._watches.clear()

    def of(self, consumer: Consumer) -> Part | None:
        return self._by_number.get(consumer.number)

    # -- settling ----------------------------------------------------------------------------------------------------

    def named(self, headers: Headers, said: list[bytes] | None = None) -> list[Named]:
        """What an ACK or NACK is about, but for what is settled already. ``said``: several that are alike but for what they name. Raises
        Refused.
        """
        header = "id" if self._version == "1.2" else "message-id"
        said = [headers.get(header, "").encode()] if said is None else said
        by_header = self._by_ack if header == "id" else self._by_message
        return [found for part, tags in by_header(headers, said) if part.whole.mode != AUTO for found in part.named(tags)]

    def _by_ack(self, headers: Headers, said: list[bytes]) -> list[tuple[Part, list[int]]]:
        numbers = _numbers(_IDS, "id", said)
        firsts, tags = numbers[::2], numbers[1::2]
        found = []
        for first in dict.fromkeys(firsts):
            part = self._by_number.get(first)
            own = [tag for number, tag in zip(firsts, tags, strict=True) if number == first]
            if first > self._last or (part is not None and max(own) >= part.consumer.next_tag):
                raise _unknown("id", said)
            if part is not None:
                found.append((part, own))
        return found

    def _by_message(self, headers: Headers, said: list[bytes]) -> list[tuple[Part, list[int]]]:
        """STOMP 1.0 need not say of which subscription, 1.1 does."""
        subscription, numbers = headers.get("subscription"), _numbers(_MESSAGES, "message-id", said)
        if subscription is None and self._version == "1.1":
            raise Refused("missing-header", "an acknowledgement needs the header subscription", "name the subscription of the message")
        named = self._by_id.get(subscription) if subscription is not None else None
        found = []
        # Without a name, or of one that has ended: whichever it was.
        for each in (self._by_number if named is None else named.parts).values():
            if tags := [tag for number in numbers if (tag := each.tags.get(number)) is not None]:
                found.append((each, tags))
                numbers = [number for number in numbers if number not in each.tags]
        return found

    def acknowledge(self, named: list[Named]) -> None:
        """Together with others of this turn (``finish``)."""
        for consumer, references in named:
            self._acknowledged.setdefault(consumer, {}).update([(reference.tag, reference) for reference in references])

    def finish(self) -> None:
        acknowledged, self._acknowledged = self._acknowledged, {}
        for consumer, references in acknowledged.items():
            self._broker.settlement.acknowledge(consumer, list(references.values()))
            self._settled(consumer)

    def fail(self, named: Named, report: Any) -> None:
        """Several have failed because of one of them, nobody knows which: none of them is dead-lettered for that (semantics.md, 5)."""
        consumer, references = named
        self._broker.settlement.fail(consumer, references, None, "nack", report, apply_limit=len(references) == 1)
        self._settled(consumer)

    def rolled_back(self) -> None:
        """What was named in a transaction may be named again."""
        for part in self._by_number.values():
            part.named_up_to = 0
        for each in self._by_id.values():
            each.rolled_back()

    def _settled(self, consumer: Consumer) -> None:
        """Something of the consumer's was settled: a closed one may go, a shared window has room again."""
        part = self._by_number.get(consumer.number)
        if not consumer.open and not consumer.unsettled:
            self._by_number.pop(consumer.number, None)
            self._connection.retired.pop(consumer.number, None)
        if part is not None and part.whole.window is not None:
            self._broker.ready.offer_room(part.whole.window)

    def queues(self) -> list[Any]:
        """Those that are consumed."""
        return [part.consumer.queue for each in self._by_id.values() for part in each.parts.values()]


def _prefetch(headers: Headers) -> int | None:
    """None: as the address settings say. Raises Refused."""
    if "consumer-window-size" in headers:
        # Artemis counts bytes: 0 is one at a time, -1 no limit.
        return {"0": 1, "-1": _NO_LIMIT}.get(headers["consumer-window-size"])
    for name in _PREFETCH:
        if name in headers:
            wanted = number(headers, name, 0, _NO_LIMIT)
            return wanted or (1 if name == _PREFETCH[0] else _NO_LIMIT)
    return None


def _most_waiting(headers: Headers) -> int | None:
    """How many may wait for a subscription to a topic: the oldest give way; None: any number. Raises Refused."""
    if headers.get(_MOST_WAITING, "-1") == "-1":
        return None
    return number(headers, _MOST_WAITING, 0, _NO_LIMIT)


def _numbers(form: re.Pattern[bytes], header: str, said: list[bytes]) -> list[int]:
    """Those of each that was said, one after the other. Raises Refused."""
    text = b"\0".join((*said, b""))
    if form.fullmatch(text) is None:
        raise _unknown(header, said)
    return [*map(int, text.replace(b"-", b"\0").split(b"\0")[:-1])]


def _unknown(header: str, said: list[bytes]) -> Refused:
    """``said``: of several the first is told."""
    what = f"{header}: {said[0].decode()[:80]!r} names nothing that was delivered"
    return Refused("unknown-delivery", what, "acknowledge with what MESSAGE said")
