"""``homing send``: bodies from the command line, or a file or a pipe line by line, each sent when it is there."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from homing.journal import json_text

from ..answers import parts
from ..core.settings.units import counted
from ..properties import RESERVED
from ..words.amounts import span
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, escape, note, print_json, progress_bar, stderr, stdout, unreadable
from .times import duration
from .values import property_given

if TYPE_CHECKING:
    import homing

_A_MOMENT_S: Final = 0.5
_CHUNK: Final = 1 << 16
#: Of a line: as the largest message that any broker may take.
_LONGEST: Final = 128 << 20

Ttl = Annotated[int | None, typer.Option("--ttl", parser=duration, metavar="DURATION", help="Expires after this: 250ms, 5s, 2h.")]
Delay = Annotated[int | None, typer.Option("--delay", parser=duration, metavar="DURATION", help="Delivered no earlier than in this.")]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property", "-p", metavar="NAME=TEXT", help='A property; NAME:=JSON for a number, a boolean, or bytes: {"base64": …}. Repeatable.'
    ),
]


def send(
    address: Annotated[str, typer.Argument(help="Where to send; with auto-create, as shipped, it need not exist.")],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="One message a line, all before its line feed the body; - is stdin, as it comes."),
    ] = None,
    body: Annotated[str | None, typer.Option("--body", "-b", help="The body, as text.")] = None,
    json_lines: Annotated[
        bool,
        typer.Option("--json-lines", help="Each line is a message as peek --json, receive --json and dead export write it."),
    ] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Send everything this many times; of stdin each line.")] = 1,
    property_: Properties = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=9, help="9 goes first.", show_default="4")] = None,
    ttl: Ttl = None,
    delay: Delay = None,
    durable: Annotated[bool, typer.Option("--durable/--non-durable", help="Survives a crash, or lives in memory only.")] = True,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Send messages; returns when the broker has confirmed every one of them. With [bold]--json[/] a line for each line of the file that is
    confirmed, and one for all."""
    from .client import made_by, talk

    if (file is None) == (body is None) or (json_lines and file is None):
        raise typer.BadParameter("give either --file, with --json-lines or without, or --body")
    options: parts.Properties = {"priority": priority, "ttl_ms": ttl, "delay_ms": delay}
    options = {"durable": durable} | {name: value for name, value in options.items() if value is not None}
    if ttl is not None and delay is not None and ttl <= delay:
        stderr.print(
            f"[yellow]warning[/]  --ttl {span(ttl)} ends before --delay {span(delay)} does: nobody gets it, and it leaves no dead letter"
        )
    if property_:
        options["properties"] = dict(map(property_given, property_))

    async def conversation(connection: homing.Connection) -> int:
        async with made_by(connection, address):
            return await _send_all(connection, address, _Source(file, body, count, json_lines), options, as_json and file is not None)

    sent = talk(url, conversation)
    if as_json:
        print_json({"address": address, "sent": sent}, line=file is not None)
    else:
        stdout.print(f"sent [bold]{counted(sent, 'message')}[/] to [bold]{escape(address)}[/], confirmed")


async def _send_all(connection: homing.Connection, address: str, source: _Source, options: parts.Properties, each_is_told: bool) -> int:
    import homing

    sent = 0
    async with connection.session(homing.AckMode.AUTO) as session:
        producer = session.producer(address)
        with progress_bar() as progress, _Confirmations(producer, address, each_is_told) as confirmations:
            task = progress.add_task(f"sending to {escape(address)}", total=source.total)
            async for number, own in source.messages(confirmations.failed):
                confirmations.add(number, producer.send_nowait(**{**own, **options, **_both("properties", own, options)}))
                await producer.drain()
                sent += 1
                if not sent % 100:
                    progress.update(task, completed=sent)
                    await asyncio.sleep(0)
            await confirmations.end()
            await producer.flush()
    return sent


def _both(name: str, own: parts.Properties, options: parts.Properties) -> parts.Properties:
    """A line's own properties, with those of the command on top."""
    return {name: {**own[name], **options.get(name, {})}} if name in own else {}


class _Confirmations:
    """Says why the broker holds everything back for longer than a moment, and, where that is wanted, what it has confirmed, in order.

    ``failed`` is done when a message is refused: nothing more is to be read then.
    """

    def __init__(self, producer: homing.Producer, address: str, wanted: bool) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._producer = producer
        self._address = address
        self._wanted = wanted
        self._open: deque[tuple[int, homing.Confirmation]] = deque()
        self._more = asyncio.Event()
        self._ended = False

    def __enter__(self) -> _Confirmations:
        self._watch = asyncio.create_task(self._why_it_waits())
        self._teller = asyncio.create_task(self._tell())
        return self

    def __exit__(self, *_: object) -> None:
        each: asyncio.Future[None]
        for each in (self._watch, self._teller, self.failed):
            # What went wrong was raised by who waited for it, or something else was before.
            if not each.cancel() and not each.cancelled():
                each.exception()

    def add(self, number: int, confirmation: homing.Confirmation) -> None:
        if self._wanted:
            self._open.append((number, confirmation))
            self._more.set()

    async def end(self) -> None:
        """Once all is told. Raises the first refusal."""
        self._ended = True
        self._more.set()
        await self._teller

    async def _tell(self) -> None:
        try:
            while self._open or not self._ended:
                await self._more.wait()
                while self._open:
                    number, confirmation = self._open[0]
                    await confirmation
                    self._open.popleft()
                    print_json({"line": number, "address": self._address, "confirmed": True}, line=True)
                stdout.file.flush()
                if not self._ended:
                    self._more.clear()
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            raise

    async def _why_it_waits(self) -> None:
        waits = False
        while not (waits and self._producer.blocked_reason):
            waits = self._producer.blocked_reason is not None
            await asyncio.sleep(_A_MOMENT_S)
        note(f"not sent yet: {self._producer.blocked_reason}")


class _Source:
    """``messages``: the number of each one's line, and what ``send_nowait`` takes of it."""

    def __init__(self, file: Path | None, body: str | None, count: int, json_lines: bool) -> None:
        self._file = file
        self._body = (body or "").encode()
        self._count = count
        self._json_lines = json_lines
        #: How many there are; None: that shows.
        self.total = count if file is None else None

    async def messages(self, failed: asyncio.Future[None]) -> AsyncIterator[tuple[int, parts.Properties]]:
        if self._file is None:
            for number in range(1, self._count + 1):
                yield number, {"body": self._body}
            return
        piped = str(self._file) == "-"
        for _ in range(1 if piped else self._count):
            with _opened(self._file) as descriptor:
                number = 0
                async for line in _lines(descriptor, failed):
                    number += 1
                    if line.strip():
                        message = _message(line, number) if self._json_lines else {"body": line}
                        for _ in range(self._count if piped else 1):
                            yield number, message


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    if str(file) == "-":
        yield 0
        return
    try:
        with file.open("rb") as opened:
            yield opened.fileno()
    except OSError as error:
        raise unreadable(file, error, "name a readable file, or - for standard input") from None


async def _lines(descriptor: int, failed: asyncio.Future[None]) -> AsyncIterator[bytes]:
    """What is before each line feed, as soon as that is there; of anything else nothing is taken off."""
    begun: list[bytes] = []
    size = 0
    while chunk := await _read(descriptor, failed):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > _LONGEST:
            raise CommandError(
                ExitCode.FAILED, f"a line is longer than {_LONGEST >> 20} MiB", "a message is one line", code="line-too-long"
            )
        if others:
            yield b"".join(begun)
            for line in others[:-1]:
                yield line
            begun, size = [others[-1]], len(others[-1])
    if size:
        yield b"".join(begun)


async def _read(descriptor: int, failed: asyncio.Future[None]) -> bytes:
    """What there is, waited for beside the loop. Raises what ``failed`` does."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        return os.read(descriptor, _CHUNK)  # a file: it is always readable
    waiting: asyncio.Future[Any] = asyncio.ensure_future(readable.wait())
    try:
        await asyncio.wait([waiting, failed], return_when=asyncio.FIRST_COMPLETED)
        if failed.done():
            failed.result()
        return os.read(descriptor, _CHUNK)
    finally:
        waiting.cancel()
        loop.remove_reader(descriptor)


def _message(line: bytes, number: int) -> parts.Properties:
    """As ``peek --json`` and its like write one; what the broker had added to it is left out."""
    try:
        said = json.loads(line)
        body = said["body"]
        body = body.encode() if isinstance(body, str) else json_text.read_back(body)
        kept = {name: value for name, value in (said.get("properties") or {}).items() if not name.startswith(RESERVED)}
        properties = {name: json_text.read_back(value) if isinstance(value, dict) else value for name, value in kept.items()}
        found: parts.Properties = {"body": body, "properties": properties, "priority": min(int(said.get("priority", 4)), 9)}
    except (ValueError, KeyError, TypeError, AttributeError):
        found = {}
    if not isinstance(found.get("body"), bytes):
        what = f"line {number} is no message as peek --json writes one"
        raise CommandError(ExitCode.USAGE, what, 'an object with "body", and "properties" where it has some', code="no-message")
    return found
