"""``health``: whether a broker is ready, for containers and scripts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from ..answers.administration import Health
from .output import CommandError, ExitCode, Json, escape, print_json, stdout
from .status import waiting

if TYPE_CHECKING:
    import homing

DEFAULT_HTTP: Final = "http://127.0.0.1:7172"
_TIMEOUT_S: Final = 3.0

AnyUrl = Annotated[
    str,
    typer.Option(
        "--url", envvar=["HOMING_HTTP_URL", "HOMING_URL"], help="The broker's HTTP port; or, as elsewhere, homing://….", show_envvar=True
    ),
]


def health(url: AnyUrl = DEFAULT_HTTP, as_json: Json = False) -> None:
    """Whether the broker is ready; exit code 0 only where it is. A broker whose disk is full, or whose producers wait for another limit,
    is ready and says so: consumers must come to drain it.
    """
    if url.startswith(("homing://", "homings://")):
        said = _natively(url)
    elif url.startswith("http://"):
        said = _over_http(url)
    else:
        fix = f"give one as {DEFAULT_HTTP}, or as homing://127.0.0.1:7171"
        raise CommandError(ExitCode.USAGE, f"{url} is no address of a broker", fix, code="invalid-url")
    if as_json:
        print_json(said)
    else:
        stdout.print(f"{said['state']}, degraded: {', '.join(said['degraded'])}" if said["degraded"] else said["state"])
        if said["state"] == "standby":
            cluster = said["cluster"]
            stdout.print(f"  {escape(cluster['leader'] or 'nobody')} leads; {cluster['behind']} entries behind")
        for each in said["producers_wait"] or ():
            stdout.print(f"  {waiting(each)}")
    if said["state"] not in ("ready", "leading", "standby"):
        raise typer.Exit(ExitCode.FAILED)


def _natively(url: str) -> Health:
    """Who is let in is served. More is told to whom it may be: None where it may not."""
    from homing import HomingError

    from .client import talk

    async def conversation(connection: homing.Connection) -> Health:
        try:
            found = await connection.call("statistics")
        except HomingError as error:
            if error.code != "access-refused":
                raise
            return {"state": "ready", "degraded": [], "producers_wait": None}
        disk = found["disk"]
        degraded = ["disk"] if disk["low"] or disk["waits_ms"] > 5000 else []
        return {"state": "ready", "degraded": degraded, "producers_wait": found["producers_wait"]}

    return talk(url, conversation)


def _over_http(url: str) -> Health:
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/readyz", timeout=_TIMEOUT_S) as answer:
            return _read(answer, url)
    except urllib.error.HTTPError as refused:
        with refused:
            return _read(refused, url)
    except OSError as error:
        reason = getattr(error, "reason", error)  # urllib's errors wrap the system's
        raise _nobody(url, getattr(reason, "strerror", None) or str(reason)) from error


def _read(answer: Any, url: str) -> Health:
    try:
        said = json.load(answer)
    except ValueError as error:
        raise _nobody(url, f"HTTP {answer.status}, and no answer of a broker's") from error
    if not isinstance(said, dict) or "state" not in said:
        raise _nobody(url, "what answers there is no broker")
    return cast(Health, {"degraded": [], "producers_wait": [], **said})


def _nobody(url: str, why: str) -> CommandError:
    fix = "start the broker with a section http in broker.yaml, or name it with --url, HOMING_HTTP_URL or HOMING_URL"
    return CommandError(ExitCode.NO_BROKER, f"no broker says how it is at {url} ({why})", fix, code="no-broker")
