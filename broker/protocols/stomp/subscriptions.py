"""What one STOMP connection consumes: its subscriptions, what each holds, and how that is settled."""

from __future__ import annotations

import re
from typing import Any, Final

from ...broker import Broker
from ...connection import Connection
from ...core.consumer import Consumer
from ...core.message import MessageReference
from ...errors import Refused
from ..failures import failure_of
from ..output import Output
from .browser import Browser
from .codec import Headers, header_line
from .destinations import TEMPORARY, TOPIC, Destination, read_destination
from .message_mapping import LONGEST_NAME, flag, message_frames, number

AUTO, CLIENT, INDIVIDUAL = "auto", "client", "client-individual"
_MODES: Final = (AUTO, CLIENT, INDIVIDUAL)
#: As many as come.
_NO_LIMIT: Final = 1 << 30
#: As the clients of each broker say how many may be on their way to them.
_PREFETCH: Final = ("activemq.prefetchSize", "prefetch-count")
#: What a durable subscription to a topic is called; ActiveMQ takes the misspelt one, too.
_DURABLE: Final = ("activemq.subscriptionName", "activemq.subcriptionName", "durable-subscription-name")
_MOST_WAITING: Final = "activemq.maximumPendingMessageLimit"
_MOST_BROWSERS: Final = 100
_MOST_TEMPORARY: Final = 1000
#: What the acknowledgement of a delivery names: the subscription and its tag, both our numbers; before STOMP 1.2 its message.
_IDS: Final = re.compile(rb"(?:[0-9]{1,19}-[0-9]{1,19}\0)+")
_MESSAGES: Final = re.compile(rb"(?:[0-9]{1,19}\0)+")
#: Ids of settled deliveries that are not worth a look.
_FEW_IDS: Final = 100

#: Deliveries of one consumer that an ACK or a NACK names, the latest last.
Named = tuple[Consumer, list[MessageReference]]


class Subscription:
    """``keeps_ids``: before STOMP 1.2 deliveries are named by the number of their message."""

    def __init__(self, consumer: Consumer, subscription: str, destination: str, mode: str, version: str) -> None:
        self.consumer = consumer
        self.mode = mode
        self.destination = destination
        self._version = version
        self._lines = header_line("subscription", subscription, version) + header_line("destination", destination, version)
        self._keeps_ids = version != "1.2" and mode != AUTO
        self._shows_ack = version == "1.2" and mode != AUTO
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
        return message_frames(self._lines, references, self._version, self.consumer.number if self._shows_ack else None)

    def named(self, tags: list[int]) -> list[MessageReference]:
        """What acknowledgements of these deliveries are about: they alone, or with all before. What is not held any more is left out."""
        unsettled, wanted = self.consumer.unsettled, tags
        if self.mode == CLIENT:
            last = max(tags)
            span = range(self.named_up_to + 1, last + 1)
            self.named_up_to = max(self.named_up_to, last)
            wanted = [*span] if len(span) <= 2 * len(unsettled) else [each for each in unsettled if each in span]
        return [reference for each in wanted if (reference := unsettled.get(each)) is not None]


class Subscriptions:
    def __init__(self, broker: Broker, connection: Connection, version: str, prefix: str) -> None:
        """``prefix``: of names in the connection's virtual host."""
        self._broker = broker
        self._connection = connection
        self._version = version
        self._prefix = prefix
        #: By the client's id; those it has ended are gone from here.
        self._by_id: dict[str, Subscription] = {}
        self._browsers: dict[str, Browser] = {}
        #: By the broker's number, as long as anything of theirs is held.
        self._by_number: dict[int, Subscription] = {}
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
            queue = self._temporary[name] = self._broker.make_reply_queue(self._connection).name
        return queue

    def subscribe(self, headers: Headers) -> None:
        """Raises Refused."""
        subscription, text = self._new_id(headers), headers.get("destination", "")
        mode = headers.get("ack", AUTO)
        if mode not in _MODES:
            raise Refused("invalid-header", f"ack: {mode[:32]!r} is no way to acknowledge", f"use {', '.join(_MODES)}")
        consumer = self._consumer(read_destination(text, headers.get("subscription-type")), headers)
        self._by_id[subscription] = self._by_number[consumer.number] = Subscription(consumer, subscription, text, mode, self._version)

    def browse(self, headers: Headers, output: Output) -> Browser:
        """Raises Refused."""
        subscription, text = self._new_id(headers), headers.get("destination", "")
        name = self._prefix + read_destination(text, headers.get("subscription-type")).name
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

    def _consumer(self, destination: Destination, headers: Headers) -> Consumer:
        self._last += 1
        options: dict[str, Any] = {
            "selector": headers.get("selector"),
            "priority": number(headers, "activemq.priority", number(headers, "x-priority", 0, 255), 255),
            "waits": flag(headers, "activemq.exclusive", False),
        }
        if (prefetch := _prefetch(headers)) is not None:
            options["prefetch"] = prefetch
        if destination.kind == TOPIC:
            options |= {"durable": self._durable(headers), "most_waiting": _most_waiting(headers)}
            return self._broker.subscribe_topic(self._connection, self._last, self._prefix + destination.name, options)
        name = self.temporary(destination.name) if destination.kind == TEMPORARY else self._prefix + destination.name
        return self._broker.subscribe(self._connection, self._last, name, options)

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
            self._broker.end_subscription(self._connection, durable)
        elif ended is None:
            raise Refused("no-such-subscription", f"there is no subscription {subscription[:80]!r}", "name the id of one that is open")
        if ended is None:
            return
        consumer = ended.consumer
        if consumer.open:
            self._broker.unsubscribe(self._connection, consumer, keep_delivered=True)
        self._drop_if_over(consumer)
        self._broker.consumers_gone([consumer.queue])

    def of(self, consumer: Consumer) -> Subscription | None:
        return self._by_number.get(consumer.number)

    # -- settling ----------------------------------------------------------------------------------------------------

    def named(self, headers: Headers, said: list[bytes] | None = None) -> list[Named]:
        """What an ACK or NACK is about, but for what is settled already. ``said``: several that are alike but for what they name. Raises
        Refused.
        """
        header = "id" if self._version == "1.2" else "message-id"
        said = [headers.get(header, "").encode()] if said is None else said
        by_header = self._by_ack if header == "id" else self._by_message
        found = [(each.consumer, each.named(tags)) for each, tags in by_header(headers, said) if each.mode != AUTO]
        return [each for each in found if each[1]]

    def _by_ack(self, headers: Headers, said: list[bytes]) -> list[tuple[Subscription, list[int]]]:
        numbers = _numbers(_IDS, "id", said)
        firsts, tags = numbers[::2], numbers[1::2]
        found = []
        for first in dict.fromkeys(firsts):
            subscription = self._by_number.get(first)
            own = [tag for number, tag in zip(firsts, tags, strict=True) if number == first]
            if first > self._last or (subscription is not None and max(own) >= subscription.consumer.next_tag):
                raise _unknown("id", said)
            if subscription is not None:
                found.append((subscription, own))
        return found

    def _by_message(self, headers: Headers, said: list[bytes]) -> list[tuple[Subscription, list[int]]]:
        """STOMP 1.0 need not say of which subscription, 1.1 does."""
        subscription, numbers = headers.get("subscription"), _numbers(_MESSAGES, "message-id", said)
        if subscription is None and self._version == "1.1":
            raise Refused("missing-header", "an acknowledgement needs the header subscription", "name the subscription of the message")
        named = self._by_id.get(subscription) if subscription is not None else None
        found = []
        # Without a name, or of one that has ended: whichever it was.
        for each in self._by_number.values() if named is None else (named,):
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
            self._drop_if_over(consumer)

    def fail(self, named: Named, report: Any) -> None:
        """Several have failed because of one of them, nobody knows which: none of them is dead-lettered for that (semantics.md, 5)."""
        consumer, references = named
        self._broker.settlement.fail(consumer, references, failure_of(report), "nack", report, apply_limit=len(references) == 1)
        self._drop_if_over(consumer)

    def rolled_back(self) -> None:
        """What was named in a transaction may be named again."""
        for each in self._by_number.values():
            each.named_up_to = 0

    def _drop_if_over(self, consumer: Consumer) -> None:
        if not consumer.open and not consumer.unsettled:
            self._by_number.pop(consumer.number, None)
            self._connection.retired.pop(consumer.number, None)

    def queues(self) -> list[Any]:
        """Those that are consumed."""
        return [each.consumer.queue for each in self._by_id.values()]


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
