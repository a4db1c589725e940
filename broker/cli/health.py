"""``health``: whether a broker is ready, for containers and scripts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Annotated, Final

import typer

from .output import CommandError, ExitCode, Json, print_json, stdout

DEFAULT_HTTP: Final = "http://127.0.0.1:7172"
_TIMEOUT_S: Final = 5.0

HttpUrl = Annotated[str, typer.Option("--url", envvar="HOMING_HTTP_URL", help="The broker's HTTP port.", show_envvar=True)]


def health(url: HttpUrl = DEFAULT_HTTP, as_json: Json = False) -> None:
    """Whether the broker is ready; exit code 0 only where it is. A broker whose disk is full is ready: consumers must come to drain it."""
    if not url.startswith("http://"):
        raise CommandError(ExitCode.USAGE, f"{url} is not the address of an HTTP port", f"give one as {DEFAULT_HTTP}", code="invalid-url")
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/readyz", timeout=_TIMEOUT_S) as answer:
            said = json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            said = _read(refused, url)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)  # urllib's errors wrap the system's
        raise _nobody(url, getattr(reason, "strerror", None) or str(reason)) from error
    if as_json:
        print_json(said)
    elif said["degraded"]:
        stdout.print(f"{said['state']}, degraded: {', '.join(said['degraded'])}")
    else:
        stdout.print(said["state"])
    if said["state"] != "ready":
        raise typer.Exit(ExitCode.FAILED)


def _read(refused: urllib.error.HTTPError, url: str) -> dict[str, list[str] | str]:
    try:
        said: dict[str, list[str] | str] = json.load(refused)
    except ValueError as error:
        raise _nobody(url, f"HTTP {refused.code}") from error
    return said


def _nobody(url: str, why: str) -> CommandError:
    fix = "start the broker with a section http in broker.yaml, or name it with --url"
    return CommandError(ExitCode.NO_BROKER, f"no broker says how it is at {url} ({why})", fix, code="no-broker")
