"""``dramatiq with_dramatiq``."""

import dramatiq
from booking import QUEUE, URL, NoAmount, book, fail_once, note
from dramatiq.brokers.rabbitmq import RabbitmqBroker

dramatiq.set_broker(RabbitmqBroker(url=URL))


@dramatiq.actor(queue_name=QUEUE, max_retries=0)
def book_order(number, kind):
    book(number, kind)


@dramatiq.actor(queue_name=QUEUE, max_retries=2, min_backoff=1, max_backoff=2)
def retried():
    note("tried")
    raise KeyError("never")


@dramatiq.actor(queue_name=QUEUE, max_retries=2, throws=NoAmount)
def expected():
    raise NoAmount("as expected")


@dramatiq.actor(queue_name=QUEUE, max_retries=2, min_backoff=1, max_backoff=2)
def recovered():
    fail_once()
