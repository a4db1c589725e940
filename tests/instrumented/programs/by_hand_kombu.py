from booking import QUEUE, URL, book
from kombu import Connection, Queue
from kombu.mixins import ConsumerMixin

from homing.integrations.kombu import report


class Worker(ConsumerMixin):
    def __init__(self, connection):
        self.connection = connection

    def get_consumers(self, Consumer, channel):
        return [Consumer([Queue(QUEUE, routing_key=QUEUE)], callbacks=[self.on_task], prefetch_count=1)]

    def on_task(self, body, message):
        try:
            book(**body)
        except Exception as error:
            report(message, error)
            message.reject()
        else:
            message.ack()


with Connection(URL) as connection:
    Worker(connection).run()
