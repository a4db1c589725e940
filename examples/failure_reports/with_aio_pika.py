"""The same for aio-pika: ``async with reported(message): …`` instead of ``async with message.process(): …``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiormq
from aio_pika.abc import AbstractIncomingMessage

from examples.failure_reports.report import EXCHANGE, failure


@asynccontextmanager
async def reported(message: AbstractIncomingMessage) -> AsyncIterator[None]:
    try:
        yield
    except Exception as error:
        headers = {"delivery_tag": message.delivery_tag, **failure(error, retryable=not isinstance(error, ValueError))}
        await message.channel.basic_publish(b"", exchange=EXCHANGE, properties=aiormq.spec.Basic.Properties(headers=headers))
        await message.nack()
    else:
        await message.ack()
