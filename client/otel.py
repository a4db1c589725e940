"""Spans of OpenTelemetry for what a connection sends, is delivered and settles; needs the extra ``otel``.

::

    from homing.client.otel import Tracing

    async with homing.connect(url, tracing=Tracing()) as connection: ...

Names and attributes are those of the semantic conventions for messaging. A message carries where it came from in its property
``traceparent``, which the broker keeps as it is: every attempt, in whatever queue, belongs to the trace of the send unless the program is
in one of its own, and links to the send and to the attempt before, where that was made by the same ``Tracing``.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from time import time_ns
from typing import Any, Final, cast

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link as SpanLink
from opentelemetry.trace import Span, SpanContext, SpanKind, TracerProvider

from homing.broker.protocols.native.codec import AckType

from .consumer import Consumer
from .errors import HomingError
from .listener import Handler, Listener, is_coroutine_function
from .message import ACKNOWLEDGED, Message, State
from .options import ProducerOptions
from .outbox import Confirmation, Outbox
from .parts import Parts
from .producer import Body, Producer
from .settlement import Settlement
from .subscription import Subscription
from .validation import PropertyValue
from .wire import Wire

_CARRIED: Final = "traceparent"
#: Messages whose last attempt is remembered, until they succeed.
_MOST_REMEMBERED: Final = 10_000

Properties = Mapping[str, PropertyValue] | None


class Tracing:
    """Makes spans by ``provider``, which is OpenTelemetry's global one unless it is given. May serve any number of connections."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("homing", tracer_provider=provider)
        self._attempts: OrderedDict[int, SpanContext] = OrderedDict()

    def parts(self, host: str, port: int) -> Parts:
        spans = _Spans(self._tracer, self._attempts, {"messaging.system": "homing", "server.address": host, "server.port": port})
        return Parts(partial(_Producer, spans), partial(_Consumer, spans), partial(_Settlement, spans))


class _Spans:
    """Of one connection. ``attempts``: message_id -> the last attempt of a message that did not succeed yet."""

    def __init__(self, tracer: trace.Tracer, attempts: OrderedDict[int, SpanContext], attributes: dict[str, str | int]) -> None:
        self._tracer = tracer
        self._attempts = attempts
        self._attributes = attributes

    @contextmanager
    def send(self, address: str, body: Body, properties: Properties) -> Iterator[Properties]:
        """Yields the properties to be sent. What carries a trace already keeps it, and is linked to."""
        origin = _origin(properties)
        attributes = {**self._of("send", "send", address), "messaging.message.body.size": len(body)}
        with self._tracer.start_as_current_span(
            f"send {address}", kind=SpanKind.PRODUCER, attributes=attributes, links=_links(origin), record_exception=False
        ) as span:
            carrier: dict[str, Any] = dict(properties or {})
            if _CARRIED not in carrier:
                propagate.inject(carrier)
            with _recording_error(span):
                yield carrier

    @contextmanager
    def deliver(self, operation: str, queue: str, message: Message, settlement: _Settlement, began_ns: int) -> Iterator[None]:
        """``operation``: receive or process; a span from ``began_ns`` to the end of the block."""
        context = _context_of(message.properties)
        before = self._attempts.get(message.message_id)
        span = self._tracer.start_span(
            f"{operation} {queue}",
            None if trace.get_current_span().get_span_context().is_valid else context,
            kind=SpanKind.CONSUMER if operation == "process" else SpanKind.CLIENT,
            attributes={
                **self._of(operation, operation, queue),
                "messaging.message.id": str(message.message_id),
                "messaging.message.body.size": len(message.body),
                "homing.message.delivery_count": message.delivery_count,
            },
            links=_links(_origin(message.properties), before),
            start_time=began_ns,
        )
        self._attempts[message.message_id] = span.get_span_context()
        if len(self._attempts) > _MOST_REMEMBERED:
            self._attempts.popitem(last=False)
        settlement.delivered[message] = queue, trace.set_span_in_context(span, context)
        with trace.use_span(span, end_on_exit=True, record_exception=False), _recording_error(span):
            yield

    def settle(self, operation: str, queue: str, message: Message, context: Context) -> None:
        """A moment: the settlement leaves with this turn of the loop."""
        attributes = {**self._of(operation, "settle", queue), "messaging.message.id": str(message.message_id)}
        self._tracer.start_span(f"{operation} {queue}", context, kind=SpanKind.CLIENT, attributes=attributes).end()
        if operation == "ack":
            self._attempts.pop(message.message_id, None)

    def _of(self, name: str, kind: str, destination: str) -> dict[str, str | int]:
        return {
            **self._attributes,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.destination.name": destination,
        }


class _Producer(Producer):
    def __init__(self, spans: _Spans, outbox: Outbox, options: ProducerOptions) -> None:
        super().__init__(outbox, options)
        self._spans = spans

    async def send(self, body: Body, properties: Properties = None, *rest: Any, **others: Any) -> None:
        with self._spans.send(self.address, body, properties) as carrying:
            await super().send(body, carrying, *rest, **others)

    def send_nowait(self, body: Body, properties: Properties = None, *rest: Any, **others: Any) -> Confirmation:
        """Its span ends when the message is handed over: nobody may ever ask for the confirm."""
        with self._spans.send(self.address, body, properties) as carrying:
            return super().send_nowait(body, carrying, *rest, **others)


class _Consumer(Consumer):
    def __init__(self, spans: _Spans, subscription: Subscription, *others: Any) -> None:
        super().__init__(subscription, *others)
        self._spans = spans
        self._settlement = cast(_Settlement, subscription.settlement)

    async def receive(self, timeout_ms: int | None = None) -> Message | None:
        began_ns = time_ns()
        message = await super().receive(timeout_ms)
        if message is not None:
            with self._spans.deliver("receive", self.queue or self.source, message, self._settlement, began_ns):
                pass
            if message._state is ACKNOWLEDGED:
                self._settlement.settled([message], "ack")  # AUTO did so before
        return message

    async def listen(self, handler: Handler, concurrency: int = 1) -> Listener:
        return await super().listen(self._traced(handler), concurrency)

    def _traced(self, handler: Handler) -> Handler:
        """A coroutine function stays one: the listener treats others otherwise."""

        def process(message: Message) -> Any:
            with ExitStack() as stack:
                spans, queue = self._spans, self.queue or self.source
                stack.enter_context(spans.deliver("process", queue, message, self._settlement, time_ns()))
                result = handler(message)
                return _finished(result, stack.pop_all()) if inspect.isawaitable(result) else result

        async def process_async(message: Message) -> Any:
            result = process(message)
            return await result if inspect.isawaitable(result) else result

        return process_async if is_coroutine_function(handler) else process


async def _finished(result: Awaitable[Any], stack: ExitStack) -> Any:
    with stack:
        return await result


class _Settlement(Settlement):
    def __init__(self, spans: _Spans, *parts: Any) -> None:
        super().__init__(*parts)
        self._spans = spans
        #: What was delivered and is not settled: its queue, and the delivery.
        self.delivered: dict[Message, tuple[str, Context]] = {}

    def settled(self, messages: Iterable[Message], operation: str) -> None:
        for message in messages:
            if (found := self.delivered.pop(message, None)) is not None:
                self._spans.settle(operation, found[0], message, found[1])

    def settle(self, message: Message) -> None:
        super().settle(message)
        self.settled([message], "ack")

    def acknowledge(self, messages: Iterable[Message]) -> None:
        messages = list(messages)
        super().acknowledge(messages)
        self.settled([message for message in messages if message._state is ACKNOWLEDGED], "ack")

    async def acknowledge_confirmed(self, messages: Iterable[Message]) -> None:
        messages = list(messages)
        try:
            await super().acknowledge_confirmed(messages)
        finally:
            self.settled([message for message in messages if message._state is ACKNOWLEDGED], "ack")

    def give_back(self, messages: Iterable[Message], ack_type: AckType, failure: dict[str, Any] | None) -> None:
        messages = list(messages)
        super().give_back(messages, ack_type, failure)
        self.settled(messages, "release" if failure is None else "nack")

    def take_for_commit(self, wire: Wire, transaction: int) -> list[Message]:
        messages = super().take_for_commit(wire, transaction)
        self.settled(messages, "ack")
        return messages

    def void(self, state: State) -> None:
        super().void(state)
        self.delivered.clear()


@contextmanager
def _recording_error(span: Span) -> Iterator[None]:
    """Records what ends the block, by the code of an error of ours."""
    try:
        yield
    except Exception as error:
        span.set_attribute("error.type", error.code if isinstance(error, HomingError) else type(error).__qualname__)
        span.record_exception(error)
        raise


def _context_of(properties: Properties) -> Context:
    """What a message carries; properties of others may be of any type."""
    return propagate.extract({name: value for name, value in (properties or {}).items() if isinstance(value, str)}, Context())


def _origin(properties: Properties) -> SpanContext:
    return trace.get_current_span(_context_of(properties)).get_span_context()


def _links(*contexts: SpanContext | None) -> list[SpanLink]:
    return [SpanLink(context) for context in contexts if context is not None and context.is_valid]
