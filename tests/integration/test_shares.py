"""Limits of users and addresses, as their programs meet them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

import pika
import pika.exceptions
import pytest

import homing
from homing.broker.auth.passwords import hash_password
from tests.amqp_support import AMQP, connect
from tests.process import Server

LIMITS = {
    "max-connections": 2,
    "max-channels": 3,
    "max-queues": 2,
    "max-message-bytes": "10KiB",
    "max-unconfirmed-bytes": "64KiB",
    "max-logins-per-minute": 12,
}


@pytest.mark.timeout(240)
async def test_a_user_has_what_the_limits_leave(start_server: Callable[..., Server]) -> None:
    users = {name: hash_password("secret") for name in ("ann", "bob")}
    server = start_server({**AMQP, "users": users, "user-limits": {"ann": LIMITS}, "peer-limits": {"127.0.0.0/8": {"max-connections": 3}}})

    async with AsyncExitStack() as stack:

        async def enter(user: str) -> homing.Connection:
            return await stack.enter_async_context(homing.connect(server.url, user=user, password="secret", reconnect=False))

        anns = await enter("ann")
        await enter("ann")
        with pytest.raises(homing.ConnectError, match="user ann may have 2 connections"):
            await enter("ann")
        await enter("bob")
        with pytest.raises(homing.ConnectError, match=r"127\.0\.0\.1 may have 3 connections"):
            await enter("bob")
        session = await stack.enter_async_context(anns.session())
        producer = session.producer("one")
        with pytest.raises(homing.HomingError, match="10240"):
            await producer.send(b"x" * 20_000)
        for _ in range(100):
            await producer.send(b"x" * 9000)
        await session.producer("two").send(b"x")
        with pytest.raises(homing.HomingError, match="user ann may have 2 queues"):
            await anns.call("create-queue", queue="three")
        await anns.call("delete-queue", queue="two")
        await anns.call("create-queue", queue="three")

    credentials = pika.PlainCredentials("ann", "secret")
    with connect(server, credentials=credentials) as rabbit:
        for _ in range(3):
            rabbit.channel()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="user ann may have 3 channels") as closed:
            rabbit.channel()
        assert closed.value.reply_code == 530

    async def come_and_go() -> None:
        for _ in range(100):
            async with homing.connect(server.url, user="ann", password="secret", reconnect=False):
                pass

    with pytest.raises(homing.ConnectError, match="user ann may log in 12 times a minute"):
        await come_and_go()
