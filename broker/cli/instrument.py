"""``instrument``: a program of another library starts so that it reports why deliveries fail (``homing.integrations``)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from .output import CommandError, ExitCode

TAKES_A_COMMAND: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
#: Read by homing/integrations/report.py, which imports nothing of ours and is not imported here.
_VERSION_VARIABLE: Final = "HOMING_PROGRAM_VERSION"


def instrument(
    command: Annotated[list[str] | None, typer.Argument(help="The program and its arguments.", show_default=False)] = None,
    program_version: Annotated[
        str | None, typer.Option("--program-version", help="The release that failures are told with.", show_default=False)
    ] = None,
    print_path: Annotated[bool, typer.Option("--print-path", help="Print what belongs into PYTHONPATH, and start nothing.")] = False,
) -> None:
    """Start a Python program so that it reports why its deliveries fail, whatever environment it runs in: programs of pika, aio-pika,
    kombu, Celery, FastStream, Taskiq, dramatiq and stomp.py. Beside another broker it runs as without.
    """
    spec = find_spec("homing.integrations")
    assert spec is not None
    assert spec.origin is not None
    path = str(Path(spec.origin).resolve().parent / "path")
    if print_path:
        typer.echo(path)
        return
    if not command:
        raise typer.BadParameter("give the command that starts the program, or --print-path")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([path, before] if before else [path])
    if program_version is not None:
        os.environ[_VERSION_VARIABLE] = program_version
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise CommandError(
            ExitCode.FAILED, f"{command[0]} cannot be started: {error.strerror}", "give the command as a shell takes it"
        ) from None
