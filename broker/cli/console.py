"""``homing console``: the pages over what failed, a process beside the broker."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .output import DEFAULT_URL, CommandError, ExitCode, Json, print_json, stdout

#: What the extra ``console`` brings.
_EXTRA = ("jinja2", "markupsafe")


def console(
    host: Annotated[str, typer.Option("--host", help="Where to listen; of this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="And at which port; 0 takes a free one.")] = 15_672,
    tls_host: Annotated[str, typer.Option("--tls-host", help="Where to listen with TLS, where there is a certificate.")] = "127.0.0.1",
    tls_port: Annotated[int, typer.Option("--tls-port", min=0, max=65_535, help="And at which port; 0 takes a free one.")] = 15_671,
    certificate: Annotated[str | None, typer.Option("--certificate", help="Of this console, in PEM; new ones are taken up.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Its key, in PEM.", show_default="the same file")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only show: nothing can be done by the pages or the API.")] = False,
    child: Annotated[int, typer.Option("--child", hidden=True)] = 0,
    urls: Annotated[
        list[str] | None,
        typer.Option(
            "--url", envvar="HOMING_URL", help="The broker; again for each to choose from.", show_envvar=True, show_default=DEFAULT_URL
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Serve pages over what failed until SIGTERM or Ctrl-C: what is wrong now, faults, dead letters, a message's life, redrives.

    It is a client of the broker, with the rights of whoever logs in; where the broker has no users that is guest, password guest.
    """
    try:
        from ..console.serving import Options, Secured, end_with_parent, run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _EXTRA:
            raise
        raise CommandError(
            ExitCode.FAILED, f"this needs {error.name}, which is not installed", "pip install 'homing[console]'", code="no-console"
        ) from None

    brokers = urls or [DEFAULT_URL]

    def ready(places: list[str]) -> None:
        url = ", ".join(brokers)
        if as_json:
            found = dict(zip(("console", "console-tls"), places, strict=False))
            print_json({"ready": True, **found, "broker": url, "pid": os.getpid()}, line=True)
        else:
            stdout.print(f"homing console ready {' '.join(places)} broker={url} pid={os.getpid()}", markup=False)
        # A pipe would keep it.
        sys.stdout.flush()

    if child:
        end_with_parent(memory_limit_bytes=child)
    run(
        Options(brokers, host, port, read_only, Secured(tls_host, tls_port, certificate, key or certificate) if certificate else None),
        ready,
    )
