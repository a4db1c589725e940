"""The command ``homing``: what each word of it does stands in the file of its subject.

Every command starts light: what it needs is imported when it runs. Exit codes: ``output.ExitCode``.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape as without_markup
from typer.core import TyperGroup
from typer.main import get_command

from . import address_settings as cli_address_settings
from . import analyze as cli_analyze
from . import cluster as cli_cluster
from . import connections as cli_connections
from . import console as cli_console
from . import dead_letters as cli_dead
from . import doctor as cli_doctor
from . import edit as cli_edit
from . import events as cli_events
from . import explain as cli_explain
from . import faults as cli_faults
from . import health as cli_health
from . import history as cli_history
from . import instrument as cli_instrument
from . import journal as cli_journal
from . import messages as cli_messages
from . import one_message as cli_one_message
from . import policies as cli_policies
from . import queue_list as cli_queue_list
from . import queues as cli_queues
from . import redrives as cli_redrives
from . import retries as cli_retries
from . import sending as cli_sending
from . import settings as cli_settings
from . import simulate as cli_simulate
from . import status as cli_status
from . import tls as cli_tls
from . import users as cli_users
from . import vhosts as cli_virtual_hosts
from .examples import EXAMPLES
from .output import CommandError, ExitCode, Json, as_command_error, print_json, show_error, take_any_text

EPILOG = (
    "Exit codes: 0 done · 1 failed · 2 usage · 3 no broker · 4 not found · 5 configuration · 6 journal damaged or newer · "
    "7 a limit of --fail-if does not hold · 70 I/O error · 71 files gone · 72 another node leads · 73 log lost · 74 a node's copy damaged"
)

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
HELP_OPTIONS: Final = ["--help", "-h"]

app = typer.Typer(
    name="homing",
    help="Homing, the message broker for deliveries that [bold]fail[/]: they wait, come home, and can tell what happened.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_OPTIONS},
)

BROKER, MESSAGES, LOOKING, OFFLINE = "The broker", "Messages", "What is, and why", "The journal and what it shows"


def _version(wanted: bool) -> None:
    if wanted:
        from ..core import message
        from ..version import BUILD, commit

        compiled = (message.__file__ or "").endswith(".so")  # docs/compiled.md
        typer.echo(f"homing {BUILD.version}{' (compiled)' if compiled else ''}, commit {commit()[:12]}")
        raise typer.Exit


@app.callback()
def homing(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and its commit.")] = False,
) -> None:
    """Options before the command."""


@app.command(rich_help_panel=BROKER)
def serve(
    file: Annotated[Path | None, typer.Argument(help="The configuration file.", show_default="broker.yaml, if there is one")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="The same, by name.", show_default=False)] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Keep the journal here instead of the file's data-directory.")] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Let the file name listeners without TLS beyond loopback."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C. Prints one ready line with its ports and its pid."""
    if file is not None and config is not None:
        raise typer.BadParameter("give the configuration file once, by its place or with --config")
    loaded = cli_settings.load_config(file or config, data=data, insecure=insecure)
    from ..process.run import run_server

    raise typer.Exit(run_server(loaded, json_ready=as_json))


app.command(rich_help_panel=BROKER)(cli_settings.reload)
app.command(rich_help_panel=BROKER)(cli_health.health)
app.command(rich_help_panel=BROKER)(cli_console.console)
app.command(rich_help_panel=BROKER)(cli_doctor.doctor)
app.command(rich_help_panel=BROKER, context_settings=cli_instrument.TAKES_A_COMMAND)(cli_instrument.instrument)
app.command(rich_help_panel=MESSAGES)(cli_sending.send)
app.command(rich_help_panel=MESSAGES)(cli_messages.receive)
app.command(rich_help_panel=MESSAGES)(cli_queues.peek)
app.command(rich_help_panel=MESSAGES)(cli_redrives.redrive)
app.command(rich_help_panel=MESSAGES)(cli_edit.edit)
app.command(rich_help_panel=MESSAGES)(cli_retries.retry)
app.command(rich_help_panel=MESSAGES)(cli_one_message.move)
app.command(rich_help_panel=MESSAGES)(cli_one_message.delete)
app.command(rich_help_panel=LOOKING)(cli_queue_list.queues)
app.command(rich_help_panel=LOOKING)(cli_connections.consumers)
app.command(rich_help_panel=LOOKING)(cli_connections.connections)
app.command(rich_help_panel=LOOKING)(cli_status.status)
# What it was called before 0.3.
app.command("statistics", hidden=True)(cli_status.status)
app.command(rich_help_panel=LOOKING)(cli_events.events)
app.command(rich_help_panel=LOOKING)(cli_one_message.why)
app.command(rich_help_panel=LOOKING)(cli_history.history)
app.command(rich_help_panel=LOOKING)(cli_explain.explain)
app.command(rich_help_panel=LOOKING)(cli_retries.retrying)
app.command(rich_help_panel=LOOKING)(cli_retries.due)
app.add_typer(cli_dead.app, name="dead", rich_help_panel=LOOKING)
app.add_typer(cli_redrives.app, name="redrives", rich_help_panel=MESSAGES)
app.add_typer(cli_faults.app, name="faults", rich_help_panel=LOOKING)
app.add_typer(cli_policies.app, name="policy", rich_help_panel=LOOKING)
app.add_typer(cli_queues.app, name="queue", rich_help_panel=BROKER)
app.add_typer(cli_connections.app, name="connection", rich_help_panel=BROKER)
app.add_typer(cli_virtual_hosts.app, name="vhost", rich_help_panel=BROKER)
app.add_typer(cli_address_settings.app, name="settings", rich_help_panel=BROKER)
app.add_typer(cli_settings.config_app, name="config", rich_help_panel=BROKER)
app.add_typer(cli_users.app, name="user", rich_help_panel=BROKER)
app.add_typer(cli_cluster.app, name="cluster", rich_help_panel=BROKER)
app.add_typer(cli_tls.app, name="tls", rich_help_panel=BROKER)
app.add_typer(cli_journal.app, name="journal", rich_help_panel=OFFLINE)
app.command(rich_help_panel=OFFLINE)(cli_analyze.analyze)
app.command(rich_help_panel=OFFLINE)(cli_simulate.simulate)


@functools.cache
def command_tree() -> TyperGroup:
    """All commands, with their examples. Flags have no type to be shown in help."""
    tree = get_command(app)
    assert isinstance(tree, TyperGroup)
    waiting: list[tuple[str, Any]] = [("", tree)]
    while waiting:
        words, command = waiting.pop()
        waiting += [(f"{words} {name}".strip(), each) for name, each in getattr(command, "commands", {}).items()]
        if words in EXAMPLES:
            command.epilog = "\n\n".join(f"[dim]{without_markup(line)}[/]" for line in EXAMPLES[words])
        for param in command.get_params(typer.Context(command, help_option_names=HELP_OPTIONS)):
            if getattr(param, "is_flag", False):
                param.metavar = ""
    return tree


def main() -> None:
    """Entry point. Failures that were reckoned with end in a sentence and an exit code, never in a traceback."""
    take_any_text()
    try:
        code = command_tree()(prog_name="homing", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:
        # Who reads the output has left, as `head` does, and is not to be told so when the rest of it is flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.FAILED)
    except Exception as error:
        command_error = as_command_error(error) or _not_shown(error)
        if command_error is None:
            raise
        if "--json" in sys.argv[1:]:
            shown: CommandError = command_error
            what = {"code": shown.code, "message": shown.message, "fix": shown.fix, "exit_code": int(shown.exit_code)}
            print_json(what, to=sys.stderr)
        elif command_error.message:  # a group of commands by itself has shown its help
            show_error(command_error)
        sys.exit(command_error.exit_code)


def _not_shown(error: Exception) -> CommandError | None:
    """Standard output is a file, and its disk is full. What is buffered goes nowhere, or the interpreter would fail on it in the end."""
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _NO_ROOM:
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    said = f"what there is to show cannot be written: {error.strerror}"
    return CommandError(ExitCode.FAILED, said, "make room, or write it elsewhere", code="not-written")


__all__ = ["app", "main", "print_json"]
