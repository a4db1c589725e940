"""``celery -A with_celery worker``: acknowledged early, as Celery comes."""

from booking import QUEUE, URL, book, note
from celery import Celery

app = Celery("shop", broker=URL)
app.conf.update(task_default_queue=QUEUE, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task(name="shop.book")
def book_order(number, kind):
    book(number, kind)


@app.task(name="shop.retried", autoretry_for=(KeyError,), max_retries=2, default_retry_delay=0)
def retried():
    note("tried")
    raise KeyError("never")


def send(*task):
    book_order.apply_async(task)
