import asyncio

import aio_pika
from counting import QUEUE, URL, done


async def main():
    connection = await aio_pika.connect_robust(URL)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.declare_queue(QUEUE, durable=True)

        async def on_message(message):
            async with message.process():
                done()

        await queue.consume(on_message)
        await asyncio.Future()


asyncio.run(main())
