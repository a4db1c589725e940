"""What is shown once, or with ``--watch`` again and again, over one connection."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live

from .output import note, print_json, stdout
from .tables import print_table

if TYPE_CHECKING:
    import homing

T = TypeVar("T")
WATCH_S: Final = 2.0

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Again every 2 s, until Ctrl-C; with --json one document a line.")]


def show(
    url: str,
    ask: Callable[[homing.Connection], Awaitable[T]],
    draw: Callable[[T], RenderableType],
    *,
    as_json: bool,
    watch: bool,
    everything: bool = False,
) -> None:
    """What ``ask`` brings, as JSON or as ``draw`` draws it: on a terminal in one place, elsewhere one after the other. ``everything``: see
    tables.print_table."""
    from .client import left_out as said_of
    from .client import talk, talk_on

    in_place = watch and not as_json and not everything and stdout.is_terminal

    async def conversation(connection: homing.Connection) -> None:
        with Live(console=stdout, screen=True, auto_refresh=False) if in_place else nullcontext() as live:
            while True:
                found = await ask(connection)
                left_out = getattr(found, "left_out", "") or (said_of(found.get("left_out")) if isinstance(found, dict) else "")
                if as_json:
                    print_json(found, line=watch)
                elif live is None:
                    print_table(draw(found), everything)
                else:
                    live.update(Group(draw(found), f"[dim]{left_out}[/]"), refresh=True)
                if left_out and live is None:
                    note(left_out)
                sys.stdout.flush()
                if not watch:
                    return
                await asyncio.sleep(WATCH_S)

    try:
        (talk_on if watch else talk)(url, conversation)
    except KeyboardInterrupt:
        if not watch:
            raise
