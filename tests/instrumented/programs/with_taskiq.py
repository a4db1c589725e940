"""``taskiq worker with_taskiq:broker``."""

import taskiq_aio_pika
from booking import QUEUE, URL, book, fail_once, note
from taskiq import SimpleRetryMiddleware
from taskiq_aio_pika import AioPikaBroker

if hasattr(taskiq_aio_pika, "Queue"):
    queues = [taskiq_aio_pika.Queue(name=QUEUE, durable=True)]
    broker = AioPikaBroker(URL, exchange=taskiq_aio_pika.Exchange(name=QUEUE), task_queues=queues)
else:  # before 0.6
    broker = AioPikaBroker(URL, queue_name=QUEUE, exchange_name=QUEUE, declare_queues_kwargs={"durable": True})
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))


@broker.task(task_name="shop.book")
async def book_order(number: int, kind: str):
    book(number, kind)


@broker.task(task_name="shop.retried", retry_on_error=True)
async def retried():
    note("tried")
    raise KeyError("never")


@broker.task(task_name="shop.recovered", retry_on_error=True)
async def recovered():
    fail_once()
