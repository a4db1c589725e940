"""``taskiq worker with_taskiq:broker``."""

from booking import QUEUE, URL, book, note
from taskiq import SimpleRetryMiddleware
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

broker = AioPikaBroker(URL, exchange=Exchange(name=QUEUE), task_queues=[Queue(name=QUEUE, durable=True)])
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))


@broker.task(task_name="shop.book")
async def book_order(number: int, kind: str):
    book(number, kind)


@broker.task(task_name="shop.retried", retry_on_error=True)
async def retried():
    note("tried")
    raise KeyError("never")
