"""A message's trace: carried untouched wherever it goes, and made into spans by a client with the extra ``otel``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pytest

import homing
from homing import AckMode
from tests.amqp_support import AMQP, amqp_port
from tests.process import Server

otlp = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder", reason="no OpenTelemetry. enable: scripts/setup")

from google.protobuf.json_format import MessageToDict, MessageToJson  # noqa: E402
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from homing.client.otel import Tracing  # noqa: E402

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=t61rcWkgMzE"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    three = {"redelivery-delay": 0, "max-delivery-attempts": 3}
    # Of what AMQP declares the limit is one that names it.
    config = {**AMQP, "address-settings": {"#": three, "carried": three}}
    server = Server(tmp_path_factory.mktemp("tracing") / "broker", config).start()
    yield server
    server.close()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider)


async def test_what_a_message_carries_is_untouched_on_all_its_ways(server: Server) -> None:
    """Over AMQP and natively, through retries, a dead-letter queue and a redrive."""
    carried = {"traceparent": PARENT, "tracestate": STATE}
    amqp = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{amqp_port(server)}/")
    async with amqp, homing.connect(server.url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        channel = await amqp.channel()
        queue = await channel.declare_queue("carried", durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"of AMQP", headers=dict(carried), delivery_mode=2), "carried")
        await session.producer("carried").send(b"native", dict(carried))
        for again in (1, 2):
            consumer = session.consumer("carried", prefetch=2)
            for _ in range(6):
                message = await consumer.receive(20_000)
                assert message is not None
                assert {name: message.properties[name] for name in carried} == carried
                await message.nack()
            await consumer.close()
            dead = session.consumer("DLQ.carried")
            for _ in range(2):
                message = await dead.receive(20_000)
                assert message is not None
                assert {name: message.properties[name] for name in carried} == carried
                await message.release()
            await dead.close()
            assert (await connection.call("redrive", queue="DLQ.carried"))["messages"] == 2, f"redrive {again}"
        bodies: set[bytes] = set()
        async with asyncio.timeout(20):
            while len(bodies) < 2:
                incoming = await queue.get(fail=False)
                if incoming is not None:
                    assert {name: incoming.headers[name] for name in carried} == carried
                    bodies.add(incoming.body)
                    await incoming.ack()
        assert bodies == {b"of AMQP", b"native"}


@pytest.mark.plain
async def test_one_trace_through_three_attempts_a_dead_letter_queue_and_a_redrive(
    server: Server, tracing: Tracing, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    async with homing.connect(server.url, tracing=tracing) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        async with session.producer("traced") as producer:
            await producer.send(b"dies", {"region": "eu"})
        tried = asyncio.Event()

        async def fails(message: homing.Message) -> None:
            if message.delivery_count == 3:
                tried.set()
            raise LookupError("no such parcel")

        listener = await session.listen("traced", fails)
        await asyncio.wait_for(tried.wait(), 20)
        async with session.consumer("DLQ.traced") as dead:
            message = await dead.receive(20_000)
            assert message is not None
            assert message.properties["region"] == "eu"
            await message.release()
        await listener.stop()
        await connection.call("redrive", queue="DLQ.traced")
        message = await session.consumer("traced").receive(20_000)
        assert message is not None
        await message.acknowledge(confirm=True)
    finished = spans.get_finished_spans()
    file = tmp_path / "trace.json"
    file.write_text(MessageToJson(otlp.encode_spans(finished), indent=None))
    assert file.stat().st_size > 1000
    assert [span.name for span in finished] == [
        "send traced",
        *("process traced", "nack traced") * 3,
        *("receive DLQ.traced", "release DLQ.traced"),
        *("receive traced", "ack traced"),
    ]
    (send, *others) = finished
    assert {context_of(span).trace_id for span in finished} == {context_of(send).trace_id}
    attempts = [span for span in others if span.name.startswith(("process", "receive"))]
    # Each is below the send, and links to it and to the attempt before.
    before: list[ReadableSpan] = []
    for attempt in attempts:
        assert attempt.parent is not None
        assert attempt.parent.span_id == context_of(send).span_id
        assert [link.context.span_id for link in attempt.links] == [context_of(span).span_id for span in (send, *before)]
        before = [attempt]
    settled = [span for span in others if span not in attempts]
    assert [span.parent and span.parent.span_id for span in settled] == [context_of(span).span_id for span in attempts]
    assert [attributes(span)["error.type"] for span in attempts[:3]] == ["LookupError"] * 3
    assert [span.status.is_ok for span in attempts] == [False] * 3 + [True] * 2
    assert [attributes(span)["homing.message.delivery_count"] for span in attempts] == [1, 2, 3, 1, 4]
    host, port = server.ready["native"].split(":")
    common = {"messaging.system": "homing", "server.address": host, "server.port": int(port)}
    assert attributes(send) == {
        **common,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "traced",
        "messaging.message.body.size": 4,
    }
    nack = settled[0]
    assert attributes(nack).items() >= {**common, "messaging.operation.name": "nack", "messaging.operation.type": "settle"}.items()
    written = MessageToDict(otlp.encode_spans(finished))["resourceSpans"][0]["scopeSpans"][0]
    assert (written["scope"]["name"], len(written["spans"])) == ("homing", len(finished))


def context_of(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.plain
@pytest.mark.parametrize("mode", [AckMode.AUTO, AckMode.CLIENT, AckMode.TRANSACTED, AckMode.DUPS_OK])
async def test_every_mode_tells_of_what_it_settles(server: Server, tracing: Tracing, spans: InMemorySpanExporter, mode: AckMode) -> None:
    name = f"mode-{mode.name}"
    async with homing.connect(server.url, tracing=tracing) as connection, connection.session(mode) as session:
        session.producer(name).send_nowait(b"one")
        await session.producer(name).send(b"two", {"traceparent": PARENT})
        if mode is AckMode.TRANSACTED:
            await session.commit()
        consumer = session.consumer(name)
        messages = [await consumer.receive(20_000) for _ in range(2)]
        assert all(messages)
        if mode is AckMode.CLIENT:
            session.acknowledge()
        if mode is AckMode.TRANSACTED:
            await session.commit()
    finished = spans.get_finished_spans()
    assert sorted(span.name.split()[0] for span in finished) == ["ack"] * 2 + ["receive"] * 2 + ["send"] * 2
    # Who sent the second is in a trace of its own, and said so: that is kept.
    assert messages[1] is not None
    assert messages[1].properties["traceparent"] == PARENT
    given = [span for span in finished if f"{context_of(span).trace_id:032x}" == PARENT[3:35]]
    assert sorted(span.name.split()[0] for span in given) == ["ack", "receive"]
    sends = [span for span in finished if span.name.startswith("send")]
    assert [[f"{link.context.span_id:016x}" for link in span.links] for span in sends] == [[], [PARENT[36:52]]]


@pytest.mark.plain
async def test_a_plain_handler_that_returns_something_to_wait_for_is_within_its_span(
    server: Server, tracing: Tracing, spans: InMemorySpanExporter
) -> None:
    done = asyncio.Event()

    async def later() -> None:
        await asyncio.sleep(0)
        done.set()
        raise ValueError("too late")

    handlers: list[Callable[[homing.Message], Any]] = [lambda message: later(), lambda message: done.set()]
    async with homing.connect(server.url, tracing=tracing) as connection:
        for handler in handlers:
            done.clear()
            async with connection.session() as session:
                await session.producer("plain").send(b"x", {"traceparent": 7, "baggage": b"x"})
                listener = await session.listen("plain", handler)
                await asyncio.wait_for(done.wait(), 20)
                await listener.stop()
    processed = [span for span in spans.get_finished_spans() if span.name == "process plain"]
    assert attributes(processed[0])["error.type"] == "ValueError"
    assert processed[-1].status.is_ok


@pytest.mark.plain
async def test_a_refused_send_is_an_error_by_its_code(server: Server, tracing: Tracing, spans: InMemorySpanExporter) -> None:
    async with homing.connect(server.url, tracing=tracing) as connection, connection.session() as session:
        with pytest.raises(homing.SendError) as refused:
            await session.producer("a::b").send(b"x")
    (send,) = spans.get_finished_spans()
    assert attributes(send)["error.type"] == refused.value.code
