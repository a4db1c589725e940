"""``doctor``: of each consumer, what is known of its failures, and what would tell more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from ..answers.administration import Explained
from ..answers.inventory import Consumer
from ..answers.parts import Fields, Properties
from ..core.settings.units import counted
from .completion import queue_argument
from .connections import NO_LIMIT, product
from .explain import fate
from .output import DEFAULT_URL, Json, Url, escape, print_json, stdout

if TYPE_CHECKING:
    import homing

#: The bundled clients report each failure by themselves.
_OWN: Final = "homing-"
#: What those that ``homing instrument`` knows call themselves: pika and dramatiq; aio-pika, FastStream and Taskiq; kombu and Celery.
_KNOWN: Final = ("Pika Python Client Library", "aiormq", "py-amqp")
_CELERY: Final = "py-amqp"
_AT_ONCE: Final = "when it is given a message"
_AS_IT_SAYS: Final = "as its program says"
#: Queues over which Celery's workers talk with one another: nobody sets these up.
_CELERYS_OWN: Final = re.compile(r"\.celery\.pidbox$|^celeryev\.")
#: What was sent to its queue since the broker started.
_SENDS: Final = {
    None: "nothing was sent to it yet",
    "persistent": "all sends persistent",
    "transient": "no send persistent",
    "both": "some sends not persistent",
}


class _Words(NamedTuple):
    """How programs of a protocol do what would be better."""

    acknowledge: str
    reason: str
    persistent: str
    prefetch: str


_AMQP: Final = _Words(
    acknowledge="auto_ack or no_ack off",
    reason="report to the exchange homing.failure before the nack (docs/interoperability.md)",
    persistent="delivery_mode 2 (persistent)",
    prefetch="basic.qos",
)
_STOMP: Final = _Words(
    acknowledge="ack:client-individual",
    reason='send reason and error-type with each NACK, or start stomp.py with "homing instrument" (docs/interoperability.md)',
    persistent="persistent:true",
    prefetch="activemq.prefetchSize or prefetch-count",
)
_LOST: Final = "What it is given is gone, whether its work succeeds or not."
_REPORTED: Final = "Its failure is kept, and the message is gone: it was acknowledged before."
_DEAD: Final = "It is reported after its acknowledgement, and a dead letter of its queue."


def doctor(
    queue: Annotated[str | None, queue_argument("Only consumers of this queue.")] = None, url: Url = DEFAULT_URL, as_json: Json = False
) -> None:
    """Look at each consumer: with which library it works, how it acknowledges, whether what is sent to it is persistent, whether the
    broker is told why its deliveries fail, what becomes of a failure there, and what would be better.
    """
    from .client import seen, talk

    async def ask(connection: homing.Connection) -> list[Properties]:
        consumers = await seen(connection, "consumers", queue=queue)
        explained = {name: await connection.call("explain", address=name) for name in sorted({each["queue"] for each in consumers})}
        consumers.sort(key=lambda each: (each["queue"], each["consumer"]))
        return [_examined(each, explained[each["queue"]]) for each in consumers]

    found = talk(url, ask)
    if as_json:
        print_json(found)
        return
    if not found:
        stdout.print("No consumer is connected." if queue is None else f"No consumer of {escape(queue)} is connected.")
    for each in found:
        _print(each)


def _examined(consumer: Consumer, explained: Explained) -> Properties:
    """``explained``: what the broker answers to ``explain`` of its queue."""
    same = (
        "consumer",
        "connection",
        "protocol",
        "queue",
        "client",
        "product",
        "product_version",
        "instrumented",
        "host",
        "version",
        "reports",
        "sends",
    )
    known: Fields = consumer
    said = {name: known[name] for name in same}
    said["prefetch"] = None if consumer["prefetch"] >= NO_LIMIT else consumer["prefetch"]
    said["acknowledges"] = _acknowledges(consumer)
    attempts, ending = fate(explained)
    keeps = any(each["value"] for each in explained["settings"] if each["key"] == "keep-settled-failures")
    early = said["acknowledges"] != _AS_IT_SAYS
    said["always_fails"] = ending if not early else _LOST if not _reports(consumer) else _DEAD if keeps else _REPORTED
    return said | {"advice": list(_advice(consumer, attempts is None and not early, keeps))}


def _acknowledges(consumer: Consumer) -> str:
    if consumer["settled_when_given"]:
        return _AT_ONCE
    if consumer["reports"]["after_acknowledgement"]:
        return "before the work"
    return _AS_IT_SAYS


def _reports(consumer: Fields) -> bool:
    return bool((consumer["product"] or "").startswith(_OWN) or consumer["instrumented"] or any(consumer["reports"].values()))


def _advice(consumer: Consumer, endless: bool, keeps: bool) -> Iterator[str]:
    if _CELERYS_OWN.search(consumer["queue"]):
        return
    words = _STOMP if consumer["protocol"] == "stomp" else _AMQP
    library, instrumented = consumer["product"] or "", consumer["instrumented"] or ""
    keeping = f"keep-settled-failures: true for {consumer['queue']} makes a dead letter of what fails then."
    if consumer["settled_when_given"]:
        yield f"Let it acknowledge when the work is done ({words.acknowledge})."
    elif endless:
        yield f"Give the queue an end of attempts: x-delivery-limit, or max-delivery-attempts in settings for {consumer['queue']}."
    if not _reports(consumer):
        if library in _KNOWN:
            yield 'Nobody learns why its deliveries fail: start it with "homing instrument", or report to the exchange homing.failure.'
        else:
            yield f"Nobody learns why its deliveries fail: {words.reason}."
    if consumer["reports"]["after_acknowledgement"] or (consumer["settled_when_given"] and instrumented):
        if not keeps:
            yield f"It acknowledges before the work: {keeping}"
    elif instrumented.startswith("celery") and not keeps:
        yield f"Celery acknowledges a task before it runs, unless it has acks_late: {keeping}"
    elif library == _CELERY and not instrumented:
        yield "Celery acknowledges a task before it runs, unless it has acks_late: what fails then is seen only where it is instrumented."
    if consumer["sends"] in ("transient", "both") and consumer["queue_keeps"] == "persistent":
        yield f"Send with {words.persistent}: what is not, and has not failed yet, is gone when the broker is."
    if consumer["prefetch"] >= NO_LIMIT and not consumer["settled_when_given"]:
        yield (
            f"It takes all that the queue has: a prefetch ({words.prefetch}) leaves something to others, and less to give back when killed."
        )


def _print(each: Properties) -> None:
    client = each["client"] if each["client"] != each["product"] else None
    who = " on ".join(filter(None, (client, each["host"])))
    release = f", release {each['version']}" if each["version"] else ""
    stdout.print(f"[bold]{escape(each['queue'])}[/]  {escape(each['consumer'])}  {escape(who + release)}".rstrip())
    prefetch = "no prefetch" if each["prefetch"] is None else f"prefetch {each['prefetch']:,}"
    told = counted(sum(each["reports"].values()), "failure")
    told_by = f"by {escape(each['instrumented'])}, instrumented" if each["instrumented"] else "by its program"
    why = f"{told} told with a reason, {told_by}" if _reports(each) else "[yellow]failures come without a reason[/]"
    library = product(each) or "a library that does not say its name"
    stdout.print(f"  {library}; {prefetch}; acknowledges {each['acknowledges']}; {_SENDS[each['sends']]}; {why}")
    stdout.print(f"  [dim]What always fails:[/] {escape(each['always_fails'])}")
    for advice in each["advice"]:
        stdout.print(f"  [yellow]→[/] {escape(advice)}")
