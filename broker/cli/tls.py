"""``tls self-signed``: a certificate for a first try, and how clients use it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import Json, escape, print_json, stdout

app = typer.Typer(help="Certificates.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps ``self-signed`` a word of its own."""


@app.command("self-signed")
def self_signed(
    hosts: Annotated[list[str], typer.Option("--host", help="A name or address that clients reach the broker by; may be given again.")],
    directory: Annotated[Path, typer.Option("--directory", help="Where the files go.")] = Path("tls"),
    as_json: Json = False,
) -> None:
    """Make a certificate for the broker, for a year, and one that clients know it by. For a first try, and for networks of your own."""
    from ..tls.self_signed import make

    made = make(directory, hosts)
    if as_json:
        print_json(
            {"ca": str(made.authority), "certificate": str(made.certificate), "key": str(made.key), "ends": made.ends.isoformat()},
        )
        return
    host = f"[{hosts[0]}]" if ":" in hosts[0] else hosts[0]
    lines = (
        f"Made {made.certificate} and {made.key} for the broker, {made.authority} for its clients: valid until {made.ends:%Y-%m-%d}.",
        "",
        "In broker.yaml:",
        f"  tls: {{certificate: {made.certificate}, key: {made.key}}}",
        "  native: {tls-host: 0.0.0.0}",
        "  amqp: {tls-host: 0.0.0.0}",
        "",
        f"Clients, with a copy of {made.authority.name}:",
        f"  homings://USER:PASSWORD@{host}:7173?cafile={made.authority.name}",
        f"  amqps://USER:PASSWORD@{host}:5671, and {made.authority.name} as the CA file",
    )
    for line in lines:
        stdout.print(escape(line), highlight=False)
