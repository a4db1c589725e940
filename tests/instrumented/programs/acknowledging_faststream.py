"""Handlers of each acknowledgement policy, and such that say themselves what becomes of their message. What comes again succeeds."""

import asyncio

from booking import QUEUE, URL, note, said
from faststream import AckPolicy, FastStream
from faststream.exceptions import AckMessage, NackMessage, RejectMessage
from faststream.rabbit import RabbitBroker, RabbitMessage, RabbitQueue

broker = RabbitBroker(URL)
app = FastStream(broker)


def fail(name: str) -> None:
    if said(f"tried {name}"):
        note(f"done {name}")
    else:
        note(f"tried {name}")
        raise KeyError(name)


def subscribe(name: str, handle, policy=AckPolicy.REJECT_ON_ERROR) -> None:
    broker.subscriber(RabbitQueue(f"{QUEUE}.{name}", durable=True), ack_policy=policy)(handle)


def raising(exception):
    def handle_it(name: str):
        try:
            fail(name)
        except KeyError as error:
            raise exception() from error

    return handle_it


async def by_hand(name: str, message: RabbitMessage):
    try:
        fail(name)
    except KeyError:
        await message.reject()


def without_a_cause(name: str):
    raise RejectMessage()


for each in (AckPolicy.ACK_FIRST, AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR):
    subscribe(each.name, fail, each)
for exception in (AckMessage, NackMessage, RejectMessage):
    subscribe(exception.__name__, raising(exception))
subscribe("MANUAL", by_hand, AckPolicy.MANUAL)
subscribe("bare", without_a_cause)

if __name__ == "__main__":
    asyncio.run(app.run())
