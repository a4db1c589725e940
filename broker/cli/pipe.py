"""Standard output as a pipe: what was written to it has not been read yet, and its reader may leave, as ``head`` does."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import stat
import struct
import sys
import termios
from collections.abc import Callable
from typing import Final

_LOOK_AGAIN_S: Final = 0.01
#: A reader that leaves in the middle has read more than it used: so long it has to leave.
_TO_LEAVE_S: Final = 0.1


def is_pipe() -> bool:
    return stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)


async def write(show: Callable[[], None]) -> None:
    """Runs ``show``, which prints, beside the loop: a reader that takes its time must not keep heartbeats from leaving.

    Raises BrokenPipeError when the reader has gone.
    """
    await asyncio.to_thread(show)


async def read_by_the_other_side() -> None:
    """Returns once the reader has read everything; raises BrokenPipeError when it leaves before that, or right after."""
    while _unread():
        _raise_if_broken()
        await asyncio.sleep(_LOOK_AGAIN_S)
    await asyncio.sleep(_TO_LEAVE_S)
    _raise_if_broken()


def leave() -> None:
    """What is still buffered goes nowhere, so that the interpreter does not fail on it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _unread() -> int:
    """Bytes that wait in the pipe."""
    (waiting,) = struct.unpack("i", fcntl.ioctl(sys.stdout.fileno(), termios.FIONREAD, b"\0" * 4))
    return int(waiting)


def _raise_if_broken() -> None:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if poll.poll(0):
        raise BrokenPipeError
