"""Client of the Homing message broker: typed, asyncio, with a blocking facade in ``homing.client.blocking``.

::

    async with homing.connect("homing://127.0.0.1:7171") as connection:
        async with connection.session(AckMode.INDIVIDUAL) as session:
            await session.producer("orders").send(b"hello")
            message = await session.consumer("orders").receive(timeout_ms=1000)
            await message.acknowledge()

docs/client.md is the guide.
"""

from .browser import Browser
from .connection import Connection, ConnectionState, connect
from .consumer import Consumer
from .errors import (
    CallError,
    CloseIncomplete,
    ConnectError,
    ConnectionLost,
    ConsumerError,
    HomingError,
    SendError,
    SettleError,
    TransactionError,
    UsageError,
)
from .listener import Listener
from .message import Message
from .modes import AckMode
from .outbox import Confirmation
from .policy import RedeliveryPolicy
from .producer import Producer
from .reconnect import ReconnectPolicy
from .session import Session

__all__ = [
    "AckMode",
    "Browser",
    "CallError",
    "CloseIncomplete",
    "Confirmation",
    "ConnectError",
    "Connection",
    "ConnectionLost",
    "ConnectionState",
    "Consumer",
    "ConsumerError",
    "HomingError",
    "Listener",
    "Message",
    "Producer",
    "ReconnectPolicy",
    "RedeliveryPolicy",
    "SendError",
    "Session",
    "SettleError",
    "TransactionError",
    "UsageError",
    "connect",
]
