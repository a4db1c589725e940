import asyncio
import json

import aio_pika
from booking import QUEUE, URL, book

from homing.integrations.aio_pika import report


async def main():
    connection = await aio_pika.connect_robust(URL)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(QUEUE, durable=True)
        async with queue.iterator() as messages:
            async for message in messages:
                try:
                    async with message.process():
                        try:
                            book(**json.loads(message.body))
                        except Exception as error:
                            await report(message, error)
                            raise
                except Exception as error:
                    print(error)


asyncio.run(main())
