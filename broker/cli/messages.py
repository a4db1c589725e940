"""``homing receive``."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..core.settings.units import counted
from ..words.amounts import clock
from ..words.deaths import Death, deaths_of, hops_in
from . import pipe
from .completion import queue_argument
from .output import DEFAULT_URL, ExitCode, Json, Url, Yes, body_json, body_text, confirm, escape, note, print_json, stdout
from .times import duration

if TYPE_CHECKING:
    import homing

#: How many messages a receiving session holds before it settles them; well below 1.5 × prefetch, the limit.
SETTLE_EVERY: Final = 500
MAX_PREFETCH: Final = 1000
#: How many wait for their acknowledgement until the pipe that they were written to has been read.
MOST_IN_A_PIPE: Final = 10_000
#: The longest that one waits for that while others may come, well below the consumer timeout of 30 minutes.
LONGEST_MS: Final = 60_000
_A_MOMENT_S: Final = 0.5


class AckModeName(StrEnum):
    """The five session modes, as typed on the command line."""

    AUTO = "auto"
    CLIENT = "client"
    DUPS_OK = "dups-ok"
    TRANSACTED = "transacted"
    INDIVIDUAL = "individual"


#: In these nothing can wait for an end.
ACKNOWLEDGED_WHEN_GIVEN: Final = (AckModeName.AUTO, AckModeName.DUPS_OK)


Timeout = Annotated[
    int, typer.Option("--timeout", "-t", parser=duration, metavar="DURATION", help="How long to wait for the next.", show_default="1s")
]
Where = Annotated[str | None, typer.Option("--where", "-s", help="A selector holds: \"region = 'eu'\".")]
#: What it was called before.
Selector = Annotated[str | None, typer.Option("--selector", hidden=True)]
Fail = Annotated[str | None, typer.Option("--fail", metavar="REASON", help="Fail them, with this reason, to see what follows.")]


def receive(
    queue: Annotated[str, queue_argument("A queue, an address, or address::queue.")],
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="At most this many; 0 is all there are.")] = 1,
    ack_mode: Annotated[AckModeName, typer.Option("--ack-mode", "-a", help="When they are acknowledged.")] = AckModeName.INDIVIDUAL,
    timeout: Timeout = 1000,
    where: Where = None,
    selector: Selector = None,
    fail: Fail = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Receive messages and acknowledge them: they are gone from the queue. With [bold]--json[/], one JSON object a line.

    Into a pipe they are acknowledged when its reader has read them all; when it leaves before, as head does, all go back.

    To take so many and no more, say --count N.
    """
    from .client import made_by, talk

    if fail is not None and ack_mode is not AckModeName.INDIVIDUAL:
        raise typer.BadParameter("--fail works with --ack-mode individual, the default")

    async def conversation(connection: homing.Connection) -> tuple[int, int | None]:
        async with made_by(connection, queue, of_queues=True):
            return await _receive_all(connection, queue, count, ack_mode, timeout, where or selector, fail, as_json)

    dead = talk(url, lambda connection: _dead_in(connection, queue)) if fail is None else 0
    if dead and sys.stdin.isatty():
        confirm(f"{queue} has {counted(dead, 'dead letter')}, and what is received is gone (homing peek only looks)", yes)
    received, given_back = talk(url, conversation)
    if given_back is not None:
        pipe.leave()
        note(f"the reader of the pipe has gone: {given_back:,} of {counted(received, 'message')} given back; --count N takes N")
        raise typer.Exit(ExitCode.FAILED)
    if dead and received:
        note(f"taken away for good: {counted(received, 'message')} of {queue}, which has dead letters; homing peek only looks at them")
    if not as_json and received < max(count, 1):
        note(f"{received:,} came; nothing more within the timeout" if received else f"nothing came from {queue} within the timeout")


async def _dead_in(connection: homing.Connection, queue: str) -> int:
    """How many dead letters are in the queue; 0 also where whoever asks is not told."""
    import homing

    try:
        return int((await connection.call("queue", queue=queue))["dead"])
    except homing.HomingError:
        return 0


async def _receive_all(
    connection: homing.Connection,
    queue: str,
    count: int,
    ack_mode: AckModeName,
    timeout_ms: int,
    selector: str | None,
    fail: str | None,
    as_json: bool,
) -> tuple[int, int | None]:
    """How many came, and how many of them went back because the reader of the pipe had gone; None where it had not."""
    import homing

    piped = pipe.is_pipe()
    # Into a pipe one is asked for at a time: what its reader will not take is not taken from others either.
    prefetch = 0 if piped else min(count or MAX_PREFETCH, MAX_PREFETCH)
    received, broken = 0, False
    async with connection.session(homing.AckMode[ack_mode.name]) as session:
        consumer = session.consumer(queue, prefetch=prefetch, selector=selector)
        held = _Held(session, ack_mode, fail, piped)
        try:
            while not count or received < count:
                message = await held.while_waiting(consumer, timeout_ms)
                if message is None:
                    break
                received += 1
                (death,) = await deaths_of(connection, [hops_in(message.properties)])
                held.add(message)
                if piped:
                    await pipe.write(partial(_show, message, death, as_json))
                else:
                    _show(message, death, as_json)
                if held.due:
                    await held.settle()
            await held.settle()
        except BrokenPipeError:
            # Not by leaving the session with an error: that would count as a failure of the last one.
            broken = True
    return received, len(held.messages) if broken else None


class _Held:
    """What was shown and is not settled yet; into a pipe that waits until its reader has read it."""

    def __init__(self, session: homing.Session, ack_mode: AckModeName, fail: str | None, piped: bool) -> None:
        self.messages: list[homing.Message] = []
        self._session = session
        self._ack_mode = ack_mode
        self._fail = fail
        self._piped = piped
        self._most = MOST_IN_A_PIPE if piped else 1 if ack_mode is AckModeName.INDIVIDUAL else SETTLE_EVERY
        self._since = 0.0

    def add(self, message: homing.Message) -> None:
        if self._ack_mode in ACKNOWLEDGED_WHEN_GIVEN:
            return
        if not self.messages:
            self._since = time.monotonic()
        self.messages.append(message)

    @property
    def due(self) -> bool:
        return len(self.messages) >= self._most or time.monotonic() - self._since >= LONGEST_MS / 1000

    async def while_waiting(self, consumer: homing.Consumer, timeout_ms: int) -> homing.Message | None:
        """The next message; what is held does not wait for it any longer than it may."""
        patience_ms = min(timeout_ms, LONGEST_MS) if self.messages else timeout_ms
        message = await consumer.receive(timeout_ms=patience_ms)
        if message is None and patience_ms < timeout_ms:
            await self.settle()
            message = await consumer.receive(timeout_ms=timeout_ms - patience_ms)
        return message

    async def settle(self) -> None:
        """Raises BrokenPipeError where the reader has left, and nothing is settled."""
        if self._piped:
            await pipe.read_by_the_other_side()
        if self._ack_mode is AckModeName.CLIENT:
            await self._session.acknowledge()
        elif self._ack_mode is AckModeName.TRANSACTED:
            await self._session.commit()
        elif self._ack_mode is AckModeName.INDIVIDUAL:
            for message in self.messages:
                await (message.acknowledge() if self._fail is None else message.nack(reason=self._fail))
        self.messages.clear()


def _show(message: homing.Message, death: Death | None, as_json: bool) -> None:
    """Printed and flushed before it is acknowledged."""
    if as_json:
        print_json(
            {
                "message_id": message.message_id,
                "address": message.address,
                "delivery_count": message.delivery_count,
                "redelivered": message.redelivered,
                "priority": message.priority,
                "sent_at_ms": message.sent_at_ms,
                "properties": message.properties or {},
                "body": body_json(message.body),
                **({"dead_letter": death.shown()} if death is not None else {}),
            },
            line=True,
        )
    else:
        again = f"  [yellow]delivery {message.delivery_count}[/]" if message.redelivered else ""
        stdout.print(f"[bold cyan]{message.message_id}[/]  {escape(message.address)}  [dim]{clock(message.sent_at_ms)}[/]{again}")
        if death is not None:
            stdout.print(f"  {escape(death.sentence())}", style="red")
        # What the broker added says the line above.
        properties = message.properties if death is None else message.copy_for_send()["properties"]
        for name, value in (properties or {}).items():
            stdout.print(f"  [dim]{escape(name)}[/] {escape(str(value))}")
        stdout.print(body_text(message.body), markup=False)
    sys.stdout.flush()
