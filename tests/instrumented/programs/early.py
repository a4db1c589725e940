"""``early.py LIBRARY``: a consumer whose deliveries are acknowledged when its callback raises."""

import asyncio
import os
import sys

URL = os.environ["TEST_BROKER_URL"]
QUEUE = os.environ["TEST_QUEUE"]
RATES = {}


def with_pika():
    import pika

    channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
    channel.basic_consume(QUEUE, lambda *_: RATES["GBP"], auto_ack=True)
    channel.start_consuming()


def with_pikas_loop():
    import pika

    channel = pika.BlockingConnection(pika.URLParameters(URL)).channel()
    for method, _, _ in channel.consume(QUEUE):
        channel.basic_ack(method.delivery_tag)
        print(RATES["GBP"])


def with_kombu():
    import kombu

    connection, queue = kombu.Connection(URL), kombu.Queue(QUEUE, no_declare=True)
    with connection.Consumer(queue, on_message=lambda _: RATES["GBP"], no_ack=True):
        connection.drain_events()


def with_aio_pika():
    import aio_pika

    async def main():
        async with await aio_pika.connect(URL) as connection:
            queue = await (await connection.channel()).get_queue(QUEUE)

            async def on_message(message):
                await message.ack()
                print(RATES["GBP"])

            await queue.consume(on_message)
            await asyncio.Future()

    asyncio.run(main())


globals()[f"with_{sys.argv[1]}"]()
