"""``faststream run with_faststream:app``, or as a program."""

import asyncio

from booking import QUEUE, URL, book
from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

broker = RabbitBroker(URL)
app = FastStream(broker)


@broker.subscriber(RabbitQueue(QUEUE, durable=True), channel=Channel(prefetch_count=1))
def book_order(number: int, kind: str):
    book(number, kind)


if __name__ == "__main__":
    asyncio.run(app.run())
