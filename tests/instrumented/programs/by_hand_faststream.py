import asyncio

from with_faststream import app, broker

from homing.integrations.faststream import middleware

broker.add_middleware(middleware())

if __name__ == "__main__":
    asyncio.run(app.run())
