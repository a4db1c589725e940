"""``celery -A counting_celery worker -P solo``: all of it in one process."""

from celery import Celery
from counting import QUEUE, URL, done

app = Celery("counting", broker=URL)
app.conf.update(task_default_queue=QUEUE, task_ignore_result=True, worker_prefetch_multiplier=100)


@app.task(name="counting.done")
def count():
    done()
