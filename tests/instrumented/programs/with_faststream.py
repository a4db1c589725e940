"""``faststream run with_faststream:app``."""

from booking import QUEUE, URL, book
from faststream import FastStream
from faststream.rabbit import RabbitBroker, RabbitQueue

broker = RabbitBroker(URL)
app = FastStream(broker)


@broker.subscriber(RabbitQueue(QUEUE, durable=True))
def book_order(number: int, kind: str):
    book(number, kind)
