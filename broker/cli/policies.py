"""``homing policy set``, ``list`` and ``clear``: AMQP's policies. ``policy explain`` is ``homing explain``."""

from __future__ import annotations

import json
from typing import Annotated, Final

import typer

from .explain import explain
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, escape, print_json, stdout
from .tables import Column, Listing, Wide, print_table

app = typer.Typer(help="AMQP's policies, for queues and exchanges by their names.", no_args_is_help=True)
app.command("explain")(explain)

Name = Annotated[str, typer.Argument(help="The policy's name.")]
VirtualHost = Annotated[str, typer.Option("--vhost", "-p", help="The virtual host it holds in.")]

_EXAMPLE: Final = """'{"message-ttl": 60000}'"""


@app.command("set")
def set_policy(
    name: Name,
    pattern: Annotated[str, typer.Argument(help="A regular expression, searched for in names.")],
    definition: Annotated[str, typer.Argument(help=f"JSON, with RabbitMQ's keys, such as {_EXAMPLE}.")],
    apply_to: Annotated[str, typer.Option("--apply-to", help="queues, exchanges or all.")] = "all",
    priority: Annotated[int, typer.Option("--priority", help="Of all that match, the one of the highest priority holds.")] = 0,
    vhost: VirtualHost = "/",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Set a policy for queues and exchanges, those that are there included; one of the same name is replaced."""
    from ..core.amqp.policy import PolicyError, read_policy
    from .client import call

    try:
        read = json.loads(definition)
        read_policy(name, pattern, read, apply_to, priority)
    except PolicyError as error:
        raise CommandError(ExitCode.USAGE, error.message, error.fix, code="invalid-policy") from None
    except ValueError as error:
        raise CommandError(ExitCode.USAGE, f"the definition is no JSON: {error}", f"write {_EXAMPLE}", code="invalid-policy") from None
    found = call(url, "set-policy", name=name, pattern=pattern, definition=read, apply_to=apply_to, priority=priority, virtual_host=vhost)
    if as_json:
        print_json(found)
    else:
        stdout.print(f"[bold]{escape(name)}[/] holds for {escape(apply_to)} that match [bold]{escape(pattern)}[/]")


@app.command("list")
def list_policies(wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """All policies, those of broker.yaml included."""
    from .client import listing

    found = listing(url, "policies")
    if as_json:
        print_json(found)
        return
    ranks = {"virtual host": 2, "policy": 0, "pattern": 0, "apply to": 1, "priority": 3, "definition": 0, "from": 4}
    if any(each.get("slow") for each in found):
        ranks[""] = 0
    rows = []
    for each in found:
        shown = [each["virtual_host"], each["name"], each["pattern"], each["apply_to"], str(each["priority"])]
        slow = "[yellow]slow[/]" if each.get("slow") else ""
        rows.append([*map(escape, [*shown, json.dumps(each["definition"]), each["source"]]), slow][: len(ranks)])
    print_table(Listing([Column(heading, rank) for heading, rank in ranks.items()], rows), wide)


@app.command("clear")
def clear_policy(name: Name, vhost: VirtualHost = "/", url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Clear a policy: what it set is as it was without it, at once."""
    from .client import call

    gone = call(url, "clear-policy", name=name, virtual_host=vhost)
    if as_json:
        print_json(gone)
    else:
        stdout.print(f"[bold]{escape(name)}[/] is cleared")
