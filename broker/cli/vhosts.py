"""``homing vhost``: AMQP's virtual hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core.settings.units import counted
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, Yes, confirm, escape, print_json, stdout
from .tables import Column, Listing, Wide, print_table

app = typer.Typer(help="AMQP's virtual hosts: names apart from all others.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The virtual host, as AMQP clients name it.")]


@app.command()
def add(name: Name, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Make a virtual host. One that is there already is no error."""
    from .client import call

    made = call(url, "add-vhost", name=name)
    if as_json:
        print_json(made)
    else:
        stdout.print(f"[bold]{escape(name)}[/] is there; elsewhere its queues are called [bold]{escape(made['prefix'])}NAME[/]")


@app.command("list")
def list_all(wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """All virtual hosts with what is in them."""
    from .client import listing

    found = listing(url, "vhosts")
    if as_json:
        print_json(found)
        return
    keys = ("queues", "messages", "connections")
    rows = [(f"[bold]{escape(each['name'])}[/]", *(f"{each[key]:,}" for key in keys)) for each in found]
    print_table(Listing([Column("virtual host"), *(Column(key, number=True) for key in keys)], rows), wide)


@app.command()
def delete(name: Name, yes: Yes = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Delete a virtual host with every queue, message, exchange and policy in it, and close its connections."""
    from .client import call, listing

    found = next((each for each in listing(url, "vhosts") if each["name"] == name), None)
    if found is None:
        raise CommandError(ExitCode.NOT_FOUND, f"vhost {name} not found", "homing vhost list shows all", code="no-such-virtual-host")
    what = f"{counted(found['queues'], 'queue')} with {counted(found['messages'], 'message')}"
    confirm(f"The virtual host {name} goes for good, and with it {what}", yes)
    gone = call(url, "delete-vhost", name=name)
    if as_json:
        print_json(gone)
    else:
        queues, messages = counted(gone["queues"], "queue"), counted(gone["messages"], "message")
        stdout.print(f"[bold]{escape(name)}[/] is gone, and with it {queues} and {messages}")
