"""What a check is, and where it finds its broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.amqp_support import AMQP, amqp_port
from tests.process import Server

HERE: Final = Path(__file__).parent
#: A build that fetches everything, or a program that plays, must end within this.
MOST_S: Final = 600.0
#: What comes of A, B, C … where a consumer gives back each delivery as it comes, and three at once (window); redelivered ones with a dash.
ORDER: Final = dict.fromkeys(("nack", "reject", "recover", "transaction"), "A A' A' A'") | {"window": "A B C A' B' C'"}
IN_ORDER: Final = "what was given back, by nack, reject, recover, in a transaction and three at once, came before the next"
#: What is left of ten with a prefetch of 2 for each of two consumers, and for their channel.
PREFETCH: Final = {"each": 6, "channel": 8}
SHARED: Final = "a prefetch was each consumer's, and where it said so the channel's"


class Failed(Exception):
    """The other side saw something else than it should."""


class Unavailable(Exception):
    """What the check needs is not here; says what enables it."""


class Place:
    """A folder of a check's own, and a broker in it once one is asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @cached_property
    def server(self) -> Server:
        return Server(self.directory / "broker", AMQP).start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{amqp_port(self.server)}/"

    def close(self) -> None:
        if "server" in self.__dict__:
            self.server.close()


@dataclass(frozen=True)
class Check:
    """``play`` says in one line what it saw. Raises Failed or Unavailable."""

    name: str
    play: Callable[[Place], str]


CHECKS: Final[list[Check]] = []


def check(play: Callable[[Place], str]) -> Callable[[Place], str]:
    """Enters ``play`` under its own name."""
    CHECKS.append(Check(play.__name__.replace("_", "-"), play))
    return play


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name}; enable: install it")
    return found


def run(command: list[str], directory: Path, what: str) -> str:
    """Its standard output. Raises Failed with the end of what it said."""
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MOST_S, check=False)
    if done.returncode:
        raise Failed(f"{what} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def python_with(directory: Path, name: str, *packages: str) -> Path:
    """A Python of its own that has them. Raises Unavailable."""
    run([sys.executable, "-m", "venv", name], directory, "venv")
    python = directory / name / "bin" / "python"
    try:
        run([str(python), "-m", "pip", "-q", "install", *packages], directory, "pip")
    except Failed as error:
        raise Unavailable(f"{' and '.join(packages)} cannot be had ({error}); enable: reach a package index") from None
    return python


def said(text: str) -> Any:
    """The last line of a program's output, as JSON."""
    return json.loads(text.strip().splitlines()[-1])


def expect(seen: Any, wanted: Any) -> None:
    if seen != wanted:
        raise Failed(f"saw {json.dumps(seen)}, not {json.dumps(wanted)}")
