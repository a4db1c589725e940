"""Programs of each library in an environment of its own, started by ``homing instrument``: the newest version of it, and the oldest that
``homing.integrations`` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.amqp_support import AMQP, amqp_url
from tests.instrumented.libraries import IN_SUITE, LIBRARIES, SETTINGS, Library, publisher, send
from tests.instrumented.story import Worker, play, play_tries
from tests.instrumented.table import PAGE, in_the_page, table, write
from tests.process import Server
from tests.system.check import CHECKS, Check, Failed, Place, Unavailable, check, run

QUEUE: Final = "story"
TRIES: Final = "tries"


def environment(directory: Path, python: str, packages: list[str]) -> str:
    """The ``python`` of a fresh environment. Raises Unavailable."""
    interpreter = _interpreter(python)
    run([interpreter, "-m", "venv", str(directory)], directory.parent, "venv")
    ours = directory / "bin" / "python"
    done = subprocess.run(
        [str(ours), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"{' '.join(packages)} cannot be installed: {done.stderr.strip().splitlines()[-1]}; enable: a network")
    return str(ours)


def _interpreter(name: str) -> str:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in (shutil.which(name), *sorted(pyenv.glob(f"{name.removeprefix('python')}.*/bin/python"))):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(found)
    raise Unavailable(f"no {name}; enable: install it, on the PATH or by pyenv")


def _story(name: str, library: Library, python: str, packages: list[str]) -> Callable[[Place], str]:
    def story(place: Place) -> str:
        ours = environment(place.directory / "environment", python, packages)
        server = Server(place.directory / "broker", {**AMQP, "address-settings": SETTINGS}).start()
        try:
            _played(name, ours, place, server)
        except AssertionError as error:
            raise Failed(str(error)) from error
        finally:
            server.close()
        tries = "" if library.ends is None else ", and its tries are one story"
        return f"{' '.join(packages)} on {python}: two faults with tracebacks, and what failed was sent back{tries}"

    return story


def _played(name: str, python: str, place: Place, server: Server) -> None:
    library, command = LIBRARIES[name], [python, "-W", "ignore", *LIBRARIES[name].command]
    worker = Worker(place.directory / "worker", amqp_url(server), QUEUE, command)
    publish, early = publisher(python, name, worker), library.acknowledges_early
    play(worker, server, QUEUE, publish, task=library.shown, by_command=True, acknowledges_early=early)
    if library.ends is not None:
        worker = Worker(place.directory / "tries", amqp_url(server), TRIES, command)
        play_tries(worker, server, TRIES, lambda task: send(python, name, worker, task), library.ends, library.last)


for _name, _library in LIBRARIES.items():
    _newest = f"python{sys.version_info.major}.{sys.version_info.minor}"
    CHECKS.append(Check(f"clients-{_name}-newest".replace("_", "-"), _story(_name, _library, _newest, _library.newest)))
    _oldest = f"python{_library.oldest_python}"
    CHECKS.append(Check(f"clients-{_name}-oldest".replace("_", "-"), _story(_name, _library, _oldest, _library.oldest)))


@check
def failures_table(place: Place) -> str:
    """All of them in one environment, that of the suite."""
    made = table(place.directory, {name: IN_SUITE.get(name) or each.command for name, each in LIBRARIES.items()}, sys.executable)
    if os.environ.get("HOMING_APPROVE"):
        write(made)
    if made != in_the_page():
        raise Failed("\n".join([f"{PAGE.name} has another table than what was seen (HOMING_APPROVE=1 writes it):", *made]))
    return f"what one sees of the failures of {len(LIBRARIES)} libraries' programs is as {PAGE.name} says"
