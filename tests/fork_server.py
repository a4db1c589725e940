"""Starts of ``homing`` for tests, without the second of CPU time that each spends on importing.

A process that has imported everything forks for each. What comes of it is a process of its own, with its own number, files, environment and
end, that runs ``broker.cli.main`` as ``python -m homing`` does. Tests of the start itself, of what is imported when, and of faults put
under the process start Python.
"""

from __future__ import annotations

import ast
import atexit
import functools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

_ROOT: Final = Path(__file__).parent.parent
_REQUEST_BYTES: Final = 1 << 20
#: In the environment of what is started: by how many seconds its clock is ahead of this machine's.
AHEAD: Final = "HOMING_TEST_CLOCK_AHEAD_S"


class Forked:
    """As much of subprocess.Popen as tests use. ``stdout`` is the reading end of a pipe, where one was asked for."""

    def __init__(self, server: ForkServer, pid: int, stdout: IO[str] | None) -> None:
        self._server = server
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._file = os.pidfd_open(pid)
        self._ended = select.poll()
        self._ended.register(self._file, select.POLLIN)

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout_s: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._wait(timeout_s)
        if code is None:
            raise subprocess.TimeoutExpired("homing", timeout_s or 0)
        return code

    def _wait(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and self._ended.poll(None if timeout_s is None else timeout_s * 1000):
            self.returncode = os.waitstatus_to_exitcode(self._server.status(self.pid))
            os.close(self._file)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """The side of the tests; one for each process of pytest."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for each in (self._socket, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        # What is fixed when the console is made, but for its width.
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "NO_COLOR": "1", "COLUMNS": "120"}
        command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=_ROOT, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        #: One question at a time.
        self._asking = threading.Lock()

    def start(self, arguments: list[str], directory: Path | str, environment: dict[str, str], files: list[int]) -> int:
        """Runs a module there, the first of the ``arguments``; ``files``: its standard input, output and error. Returns its process id."""
        request = json.dumps({"arguments": arguments, "directory": str(directory), "environment": environment}).encode()
        with self._asking:
            socket.send_fds(self._socket, [request], files)
            return self._answer()

    def status(self, pid: int) -> int:
        """How the process ended, which it has, as os.waitpid says it."""
        with self._asking:
            self._socket.send(json.dumps({"ended": pid}).encode())
            return self._answer()

    def _answer(self) -> int:
        answer = self._socket.recv(64)
        assert answer, "the process that forks has ended; see its standard error"
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(30)


@functools.cache
def _fork_server() -> ForkServer:
    server = ForkServer()
    atexit.register(server.close)
    return server


def start(
    arguments: list[str],
    directory: Path,
    *,
    stdin: IO[Any] | int,
    stdout: IO[Any] | None,
    stderr: IO[Any],
    ahead_s: float = 0,
    module: str = "homing",
) -> Forked:
    """Starts ``homing``, or a ``module`` that runs it with a planted fault, with this process's environment. ``stdout`` None: a pipe.
    ``ahead_s``: of this machine's clock.
    """
    return _start([module, *arguments], directory, {**os.environ, AHEAD: str(ahead_s)}, stdin, stdout, stderr)


def run(
    arguments: list[str], directory: Path, environment: dict[str, str], stdin: str | None, timeout_s: float, scratch: Path
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with ``capture_output``; ``scratch`` is a directory for what is read and written."""
    names = [scratch / f"{time.monotonic_ns()}.{each}" for each in ("in", "out", "err")]
    names[0].write_text(stdin or "")
    with names[0].open() as given, names[1].open("w") as out, names[2].open("w") as err:
        process = _start(["homing", *arguments], directory, environment, given, out, err)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    said, complained = (name.read_text() for name in names[1:])
    for name in names:
        name.unlink()
    return subprocess.CompletedProcess(["homing", *arguments], code, said, complained)


def _start(
    arguments: list[str], directory: Path, environment: dict[str, str], stdin: IO[Any] | int, stdout: IO[Any] | None, stderr: IO[Any]
) -> Forked:
    reading = None
    if stdout is None:
        end, writing = os.pipe()
        reading = open(end)  # noqa: SIM115
    else:
        writing = os.dup(stdout.fileno())
    given = os.open(os.devnull, os.O_RDONLY) if isinstance(stdin, int) else os.dup(stdin.fileno())
    try:
        server = _fork_server()
        return Forked(server, server.start(arguments, directory, environment, [given, writing, stderr.fileno()]), reading)
    finally:
        os.close(writing)
        os.close(given)


# -- for a shell ---------------------------------------------------------------------------------------------------------

#: What the shell starts, which imports nothing. What it says of itself is read to its end; the files come with the first of it.
_COMMAND: Final = """#!{python} -ISs
import _socket, os, sys

if sys.argv[1:2] in (["serve"], ["instrument"]):
    os.execv({homing!r}, [{homing!r}, *sys.argv[1:]])
asked = _socket.socket(_socket.AF_UNIX)
asked.connect({place!r})
said = repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
sent = asked.sendmsg([said], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
while sent < len(said):
    sent += asked.send(said[sent:])
asked.shutdown(_socket.SHUT_WR)
os._exit(int(asked.recv(16) or 70))
"""


@contextmanager
def on_path(directory: Path) -> Iterator[str]:
    """A PATH whose ``homing`` is forked, for a shell. What serves or runs another program is not: a shell stops what it started.
    ``directory``: for files of its own."""
    folder = directory / "on-path"
    folder.mkdir()
    python = Path(sys.executable)
    place, command = str(folder / "asked"), folder / "homing"
    command.write_text(_COMMAND.format(python=python, homing=str(python.parent / "homing"), place=place))
    command.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        threading.Thread(target=_answer_shells, args=(listening, _fork_server()), daemon=True).start()
        try:
            yield os.pathsep.join([str(folder), str(python.parent), os.environ["PATH"]])
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _answer_shells(listening: socket.socket, server: ForkServer) -> None:
    with suppress(OSError):  # it is over
        while True:
            asked, _ = listening.accept()
            threading.Thread(target=_answer_shell, args=(asked, server), daemon=True).start()


def _answer_shell(asked: socket.socket, server: ForkServer) -> None:
    with asked:
        said, files, _, _ = socket.recv_fds(asked, _REQUEST_BYTES, 3)
        while more := asked.recv(_REQUEST_BYTES):
            said += more
        arguments, directory, environment = ast.literal_eval(said.decode())
        pid = server.start(["homing", *arguments], directory, environment, files)
        for file in files:
            os.close(file)
        code = Forked(server, pid, None).wait()
        asked.send(b"%d" % (code if code >= 0 else 128 - code))


# -- the process that forks ----------------------------------------------------------------------------------------------


def _import_everything() -> None:
    from homing import client  # noqa: F401
    from homing.broker.cli.main import command_tree
    from homing.broker.config import config
    from homing.broker.core.selector import compile_selector
    from homing.broker.process import run  # noqa: F401
    from tests import transitions

    transitions.watch()
    config.parse("data-directory: data\n", _ROOT / "broker.yaml")
    compile_selector("TRUE")
    command_tree()


def _serve(requests: socket.socket) -> list[str] | None:
    """Forks until nobody asks any more; in the child it returns with the module and its arguments."""
    from homing.broker.cli import output

    while True:
        data, files, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not data:
            return None
        request = json.loads(data)
        if "ended" in request:
            requests.send(str(os.waitpid(request["ended"], 0)[1]).encode())
            continue
        pid = os.fork()
        if not pid:
            requests.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            os.chdir(request["directory"])
            os.environ.clear()
            os.environ.update(request["environment"])
            time.tzset()
            if columns := os.environ.get("COLUMNS"):
                output.stdout.width = output.stderr.width = int(columns)
            arguments: list[str] = request["arguments"]
            return arguments
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())


def _set_clock(ahead_s: float) -> None:
    """As if the machine had another time."""
    from homing.broker.clock import BrokerClock

    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + ahead_s
    time.time_ns = lambda: wall_ns() + int(ahead_s * 1e9)
    # Its defaults were bound when it was imported.
    BrokerClock.__init__.__defaults__ = (0, time.time, time.monotonic)


def _main() -> None:
    _import_everything()
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        from homing.broker.cli.main import main

        if ahead_s := float(os.environ.get(AHEAD, 0)):
            _set_clock(ahead_s)
        sys.argv[:] = arguments
        sys.orig_argv[:] = [sys.executable, "-m", *arguments]
        try:
            main() if arguments[0] == "homing" else runpy.run_module(arguments[0], run_name="__main__")
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                raise
            sys.stdout.flush()
            sys.stderr.flush()
            # To take apart all that was imported would cost ten times what most commands do.
            os._exit(end.code or 0)


if __name__ == "__main__":
    _main()
