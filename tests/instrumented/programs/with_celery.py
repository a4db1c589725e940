"""``celery -A with_celery worker``: acknowledged early, as Celery comes."""

from booking import QUEUE, URL, NoAmount, book, fail_once, note
from celery import Celery
from celery.exceptions import Reject

app = Celery("shop", broker=URL)
app.conf.update(task_default_queue=QUEUE, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task(name="shop.book")
def book_order(number, kind):
    book(number, kind)


@app.task(name="shop.retried", autoretry_for=(KeyError,), max_retries=2, default_retry_delay=0)
def retried():
    note("tried")
    raise KeyError("never")


@app.task(name="shop.expected", throws=(NoAmount,))
def expected():
    raise NoAmount("as expected")


@app.task(name="shop.unfit", autoretry_for=(KeyError,))
def unfit():
    raise NoAmount("not one of these")


@app.task(name="shop.rejected", acks_late=True)
def rejected():
    raise Reject(NoAmount("by hand"), requeue=False)


@app.task(name="shop.recovered", autoretry_for=(KeyError,), max_retries=2, default_retry_delay=0)
def recovered():
    fail_once()
