import json

import pika
from booking import QUEUE, URL, book

from homing.integrations.pika import report

connection = pika.BlockingConnection(pika.URLParameters(URL))
channel = connection.channel()
channel.queue_declare(QUEUE, durable=True)


def on_message(channel, method, properties, body):
    try:
        book(**json.loads(body))
    except Exception as error:
        report(channel, method.delivery_tag, error)
        channel.basic_reject(method.delivery_tag, requeue=False)
    else:
        channel.basic_ack(method.delivery_tag)


channel.basic_qos(prefetch_count=1)
channel.basic_consume(QUEUE, on_message)
channel.start_consuming()
