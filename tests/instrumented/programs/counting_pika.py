import pika
from counting import QUEUE, URL, done

connection = pika.BlockingConnection(pika.URLParameters(URL))
channel = connection.channel()


def on_message(channel, method, properties, body):
    try:
        done()
    except Exception:
        channel.basic_reject(method.delivery_tag, requeue=False)
    else:
        channel.basic_ack(method.delivery_tag)


channel.basic_qos(prefetch_count=100)
channel.basic_consume(QUEUE, on_message)
channel.start_consuming()
