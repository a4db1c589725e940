"""What the commands show on a terminal of messages whose senders and consumers mean harm."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import homing
from tests.process import ROOT, Server
from tests.unit.test_safe_text import ACTS, HOSTILE

#: Colours are the command's own, and so is how a progress bar goes back to where it began.
STYLES = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A)|\r")
EVIL = "".join(HOSTILE)
#: All commands in one process: a start takes half a second.
PROGRAM = """
import os, shlex, sys
from homing.broker.cli.main import app
for command in sys.stdin:
    print("$", command, end="", flush=True)
    try:
        app(shlex.split(command), prog_name="homing", standalone_mode=False)
    except Exception as error:
        from homing.broker.cli.output import as_command_error, show_error
        show_error(as_command_error(error))
"""


class Evil(Exception):
    pass


Evil.__module__ = EVIL


async def misbehave(url: str) -> int:
    """Sends, fails until it is dead, and leaves one waiting; the dead one's number."""
    async with homing.connect(url) as connection, connection.session(homing.AckMode.INDIVIDUAL) as session:
        producer, consumer = session.producer("evil"), session.consumer("evil", prefetch=1)
        await producer.send(EVIL.encode(), properties={EVIL: EVIL, "[bold]": b"\x1b"})
        message = await consumer.receive(timeout_ms=20_000)
        assert message is not None
        await message.nack(reason=EVIL, error=Evil(EVIL), retryable=False)
        await producer.send(EVIL.encode(), properties={EVIL: EVIL})
        await consumer.close()
    return message.message_id


def on_a_terminal(url: str, commands: list[str], directory: Path, columns: int = 120) -> str:
    controller, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOMING_URL": url, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    environment.pop("NO_COLOR", None)
    program = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=terminal, stderr=terminal, cwd=directory, env=environment) as process:
        os.close(terminal)
        assert process.stdin is not None
        process.stdin.write("\n".join(commands).encode())
        process.stdin.close()
        shown = b""
        while True:
            try:
                more = os.read(controller, 65_536)
            except OSError:  # the other side is closed
                break
            if not more:
                break
            shown += more
    os.close(controller)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


async def test_no_command_shows_anything_that_acts(start_server: Callable[..., Server], tmp_path: Path) -> None:
    server = start_server()
    dead = await misbehave(server.url)
    commands = [
        "queues",
        "queues --json",
        "peek evil",
        "peek evil --json",
        f"history {dead} --body",
        f"history {dead} --json",
        f"why {dead}",
        "consumers",
        "connections",
        "settings set 'evil.\x1b[2J.#' message-ttl=1h",
        "settings list",
        "config export",
        "explain evil",
        "receive evil --timeout 20s --fail '\x1b[2J'",
        "receive evil --timeout 20s --json",
        "receive DLQ.evil --timeout 20s",
        "receive 'no such \x1b[2J\u202e queue::x'",
        "send '[/] \x1b[2J' --body x",
        f"history {dead} --data data --body",
        "journal check --data data",
    ]
    shown = on_a_terminal(server.url, commands, server.directory)
    parts = re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]
    assert len(parts) == len(commands)
    for command, part in zip(commands, parts, strict=True):
        plain = STYLES.sub("", part.partition("\n")[2])
        assert plain.strip(), command
        assert not ACTS.search(plain), (command, ACTS.findall(plain))
    everything = STYLES.sub("", shown)
    assert everything.count("\\x1b[2J") >= 6
    assert "\x1b[1m" in shown
    assert not ACTS.search(server.log_path.read_text())


async def test_tables_fit_the_terminal(server: Server) -> None:
    """Whatever stands in them, a row is a line."""
    long = f"orders.{'of.the.north.' * 8}end"
    tables = ["queues", "connections", "consumers", "dead", "faults", "retrying", "redrives", "due", "events", "explain few"]
    async with homing.connect(server.url) as connection, connection.session(homing.AckMode.INDIVIDUAL) as session:
        consumer = session.consumer(long, prefetch=1)
        await session.producer(long).send(b"x")
        message = await consumer.receive(timeout_ms=20_000)
        assert message is not None
        await message.nack(reason="no stock of what was asked for, nor of anything like it " * 3, retryable=False)
        await session.producer("few").send(b"x", delay_ms=3_600_000)
        await connection.call("set-policy", name="p", pattern="^few", definition={"message-ttl": 7_200_000})
        shown = await asyncio.to_thread(on_a_terminal, server.url, [*tables, "policy list", "vhost list"], server.directory, 80)
    lines = [line for line in STYLES.sub("", shown).splitlines() if not line.startswith("warning  ")]  # a sentence, no row
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert long[:20] in shown
    assert long not in shown
    assert shown.count("--wide also shows: ") >= 3


async def test_a_client_id_that_acts_is_refused(server: Server) -> None:
    with pytest.raises(homing.ConnectError, match="printable"):
        async with homing.connect(server.url, client_id="\x1b[2J"):
            pass
