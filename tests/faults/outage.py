"""A client through an outage of its broker: a real broker is killed, stays away for a while, and comes back. ``scripts/check-outage``.

The client sends and receives all the while. In the end everything that was confirmed has come, once, in order; what the client's
process takes has not grown by more than a little; and its log has two lines.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import homing
from homing.client.connection import ConnectionState
from tests.faults.hostile import memory_mib
from tests.process import Server

MAX_UNCONFIRMED = 1000
#: What the client's process may take more at the end of the outage than at its beginning.
MOST_GROWTH_MIB = 16.0


@dataclass
class Account:
    sent: int = 0
    confirmed: int = 0
    received: list[int] = field(default_factory=list)
    #: Number in the body -> ids of the messages that had it, and the same of those that came after the outage.
    ids: dict[int, set[int]] = field(default_factory=dict)
    ids_after: dict[int, set[int]] = field(default_factory=dict)
    #: Every number below this was confirmed before the broker was killed.
    confirmed_before: int = 0
    states: list[ConnectionState] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    growth_mib: float = 0.0
    most_unconfirmed: int = 0


class _Lines(logging.Handler):
    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account

    def emit(self, record: logging.LogRecord) -> None:
        self.account.log.append(record.getMessage())


async def through(server: Server, outage_s: float, around_s: float = 0.5) -> Account:
    """``around_s``: how long it runs before and after."""
    account, pid, stop = Account(), os.getpid(), asyncio.Event()
    log, lines = logging.getLogger("homing.client"), _Lines(account)
    log.addHandler(lines)
    try:
        async with homing.connect(server.url) as connection, connection.session() as session:
            connection.on_state.append(account.states.append)
            producer = session.producer("orders", max_unconfirmed=MAX_UNCONFIRMED)
            consumer = await session.consumer("orders").ready()

            async def send() -> None:
                # Tasks that wait for room are the program's; the client keeps max_unconfirmed messages.
                while not stop.is_set():
                    await producer.drain()
                    producer.send_nowait(str(account.sent).encode() + b" " * 1000)
                    account.sent += 1
                    await asyncio.sleep(0 if account.sent % 20 else 0.002)
                await producer.flush()
                account.confirmed = account.sent

            async def receive() -> None:
                while not sending.done() or len(set(account.received)) < account.sent:
                    message = await consumer.receive(timeout_ms=200)
                    if message is not None:
                        number = int(message.body)
                        account.received.append(number)
                        account.ids.setdefault(number, set()).add(message.message_id)
                        if ConnectionState.CONNECTED in account.states:
                            account.ids_after.setdefault(number, set()).add(message.message_id)

            sending, receiving = asyncio.create_task(send()), asyncio.create_task(receive())
            await asyncio.sleep(around_s)
            account.confirmed_before = account.sent - producer.unconfirmed
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(min(1.0, outage_s / 10))
            before = memory_mib(pid)
            end = asyncio.get_running_loop().time() + outage_s
            while asyncio.get_running_loop().time() < end:
                await asyncio.sleep(min(1.0, outage_s / 10))
                account.most_unconfirmed = max(account.most_unconfirmed, producer.unconfirmed)
            account.growth_mib = memory_mib(pid) - before
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(60):
                await connection.connected()
            await asyncio.sleep(around_s)
            stop.set()
            async with asyncio.timeout(60):
                await asyncio.gather(sending, receiving)
            connection.on_state.clear()
    finally:
        log.removeHandler(lines)
    return account


def judge(account: Account) -> list[str]:
    """What does not hold; empty: all does."""
    wrong = []
    if account.confirmed != account.sent or sorted(set(account.received)) != list(range(account.sent)):
        wrong.append(f"lost: {account.sent} sent, {len(set(account.received))} of them received")
    # One that was delivered and not yet stored when the broker was killed is sent again, and stored under another id: it was not confirmed.
    twice = [number for number, ids in account.ids.items() if len(ids) > 1 and number < account.confirmed_before]
    twice += [number for number, ids in account.ids_after.items() if len(ids) > 1]
    if twice:
        wrong.append(f"stored twice, under ids of their own: {len(twice)} messages, {twice[0]} the first of them")
    # What was acknowledged shortly before the kill may come again, the same message: nobody was told that it is gone.
    again = len(account.received) - len(set(account.received))
    if again > 2 * MAX_UNCONFIRMED:
        wrong.append(f"{again} messages came again")
    if account.states != [ConnectionState.RECONNECTING, ConnectionState.CONNECTED]:
        wrong.append(f"the program was told {[state.value for state in account.states]}")
    if len(account.log) != 2 or "lost" not in account.log[0] or "again after" not in account.log[1]:
        wrong.append(f"the log has {account.log}")
    if account.growth_mib > MOST_GROWTH_MIB:
        wrong.append(f"the client's process grew by {account.growth_mib:.1f} MiB")
    if account.most_unconfirmed > 2 * MAX_UNCONFIRMED:
        wrong.append(f"the client kept {account.most_unconfirmed} messages")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the broker is away")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        server.start()
        try:
            account = asyncio.run(through(server, seconds, around_s=3.0))
        finally:
            server.close()
    stored = sum(map(len, account.ids.values()))
    again = len(account.received) - stored
    print(f"{account.sent} sent, {account.confirmed} confirmed; {stored} messages received, {again} deliveries of those came again")
    print(f"{account.growth_mib:.1f} MiB grown")
    for line in account.log:
        print(line)
    wrong = judge(account)
    for sentence in wrong:
        print(f"does not hold: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
