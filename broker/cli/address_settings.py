"""``homing settings``: address settings changed while the broker runs, kept in the journal over broker.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from ..core.settings.units import counted
from .output import DEFAULT_URL, Json, Url, escape, print_json, stderr, stdout, wide
from .values import Settings, read_settings, settings_given, value_text

app = typer.Typer(help="Address settings while the broker runs: kept in the journal, over broker.yaml.", no_args_is_help=True)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: say which queues it would touch, and how.")]
_SECTION: Final = "address-settings"


@app.command("set")
def set_settings(
    pattern: Annotated[str | None, typer.Argument(help="A pattern of addresses, such as 'orders.#'. With --file none.")] = None,
    settings: Settings = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="YAML: patterns with their settings, as in broker.yaml.")] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Set settings of a pattern, at once and for good: the more specific pattern wins, and over the file's of the same pattern these do.

    A due time already given stays; delays and limits apply at the next failure, times to live to what arrives later.
    """
    from .client import call

    if (file is None) != (pattern is not None and bool(settings)):
        raise typer.BadParameter("give a pattern with settings, key=value, or --file")
    layers = _layers_in(file) if file is not None else {str(pattern): settings_given(settings)}
    _tell(call(url, "set-settings", layers=layers, dry_run=dry_run), as_json)


@app.command()
def unset(
    pattern: Annotated[str, typer.Argument(help="The pattern, as it was set.")],
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Which settings; all of the pattern without.")] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Take back what was set: what broker.yaml says holds again."""
    from .client import call

    _tell(call(url, "unset-settings", pattern=pattern, keys=keys or None, dry_run=dry_run), as_json)


@app.command("list")
def list_settings(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """What was set by command. [bold]homing explain[/] shows what holds for an address, and [bold]homing config export[/] all of it."""
    from .client import listing

    found = listing(url, "list-settings")
    if as_json:
        print_json({each["pattern"]: each["settings"] for each in found})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("pattern", "setting", "value"):
        table.add_column(heading)
    for each in found:
        for number, (key, value) in enumerate(each["settings"].items()):
            table.add_row(escape("" if number else each["pattern"]), key, escape(value_text(key, value)))
    wide.print(table)


def _tell(changed: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(changed)
        return
    for each in changed["touched"]:
        values = ((key, *(value_text(key, value) for value in pair)) for key, pair in each["changes"].items())
        stdout.print(f"  [bold]{escape(each['queue'])}[/]  " + ", ".join(escape(f"{key} {was} → {now}") for key, was, now in values))
    if changed["queues"] > len(changed["touched"]):
        stdout.print(f"  and {counted(changed['queues'] - len(changed['touched']), 'more queue')}")
    queues = counted(changed["queues"], "queue")
    stdout.print(f"nothing is changed; {queues} would be" if changed["dry_run"] else f"done; {queues} changed")
    for warning in changed["warnings"]:
        stderr.print(f"[yellow]warning[/]  {escape(warning)}")


def _layers_in(file: Path) -> dict[str, dict[str, Any]]:
    """Pattern -> {field name: value}: a mapping of patterns, or a broker.yaml with such a section."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        found = YAML(typ="safe").load(file.read_text())
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    layers = found.get(_SECTION, found) if isinstance(found, dict) else None
    if not isinstance(layers, dict) or not all(isinstance(each, dict) and each for each in layers.values()):
        raise typer.BadParameter(f"{file} is no mapping of patterns to settings, such as 'orders.#': {{redelivery-delay: 5s}}")
    return {str(pattern): read_settings(settings) for pattern, settings in layers.items()}
