"""``homing settings``: address settings changed while the broker runs, kept in the journal over broker.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ..answers.administration import ChangedSettings, PreviewedSettings
from ..answers.parts import Properties
from ..core.settings.units import counted
from ..words.amounts import clock, span
from ..words.settings import value_text
from .output import DEFAULT_URL, Json, Url, error_line, escape, print_json, stderr, stdout, unreadable
from .tables import Column, Listing, Wide, print_table
from .values import Settings, read_settings, settings_given

app = typer.Typer(help="Address settings while the broker runs: kept in the journal, over broker.yaml.", no_args_is_help=True)

Preview = Annotated[
    bool, typer.Option("--preview", help="Change nothing: say what the last day's failures would have got, from the journal's attempts.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: say which queues it would touch, and how.")]
_SECTION: Final = "address-settings"
#: Of a failure's class and text in a table.
_WIDEST: Final = 60


@app.command("set")
def set_settings(
    pattern: Annotated[str | None, typer.Argument(help="A pattern of addresses, such as 'orders.#'.")] = None,
    settings: Settings = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="YAML: settings of the pattern, or its rules; without a pattern several with their settings."),
    ] = None,
    dry_run: DryRun = False,
    preview: Preview = False,
    wide: Wide = False,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Set settings of a pattern, at once and for good: the more specific pattern wins, and over the file's of the same pattern these do.

    A due time already given stays; delays and limits apply at the next failure, times to live to what arrives later.
    """
    from .client import call

    if bool(settings) == (file is not None) or (file is None and pattern is None):
        raise typer.BadParameter("give a pattern with settings, key=value, or --file, with a pattern or without")
    layers = _layers_in(file, pattern) if file is not None else {str(pattern): settings_given(settings)}
    changed = call(url, "set-settings", layers=layers, dry_run=dry_run or preview)
    found = call(url, "preview-settings", layers=layers) if preview else None
    if as_json:
        print_json(changed if found is None else {**changed, "preview": found})
        return
    _show(changed)
    if found is not None:
        _show_preview(found, wide)


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

    changed = call(url, "unset-settings", pattern=pattern, keys=keys or None, dry_run=dry_run)
    if as_json:
        print_json(changed)
        return
    _show(changed)


@app.command("list")
def list_settings(wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """What was set by command. [bold]homing explain[/] shows what holds for an address, and [bold]homing config export[/] all of it."""
    from .client import listing

    found = listing(url, "list-settings")
    if as_json:
        print_json({each["pattern"]: each["settings"] for each in found})
        return
    rows = [
        (escape("" if number else each["pattern"]), key, escape(value_text(key, value)))
        for each in found
        for number, (key, value) in enumerate(each["settings"].items())
    ]
    print_table(Listing([Column("pattern"), Column("setting"), Column("value")], rows), wide)


def _show(changed: ChangedSettings) -> None:
    for each in changed["touched"]:
        values = ((key, *(value_text(key, value) for value in pair)) for key, pair in each["changes"].items())
        stdout.print(f"  [bold]{escape(each['queue'])}[/]  " + ", ".join(escape(f"{key} {was} → {now}") for key, was, now in values))
    if changed["queues"] > len(changed["touched"]):
        stdout.print(f"  and {counted(changed['queues'] - len(changed['touched']), 'more queue')}")
    queues = counted(changed["queues"], "queue")
    stdout.print(f"nothing is changed; {queues} would be" if changed["dry_run"] else f"done; {queues} changed")
    for warning in changed["warnings"]:
        stderr.print(f"[yellow]warning[/]  {escape(warning)}")


def _show_preview(found: PreviewedSettings, wide: bool) -> None:
    since = clock(found["since_ms"], date=True)
    stdout.print(f"\nOf {counted(found['failures'], 'failure')} since {since}{'' if found['whole'] else ', the latest ones'}:")
    ranks = {"fault": 2, "queue": 0, "error": 1, "failures": 0, "came of them": 0, "would have come": 0, "after": 3}
    rows = []
    for each in found["rows"]:
        then, now = _came(each["then"], each["rule_then"]), _came(each["now"], each["rule"])
        error = error_line(each["error_class"], each["text"], _WIDEST)
        wait = _wait(each["min_delay_ms"], each["max_delay_ms"])
        rows.append((each["fault"] or "–", escape(each["queue"]), error, f"{each['failures']:,}", escape(then), escape(now), wait))
    if rows:
        columns = [Column(heading, rank, number=heading == "failures") for heading, rank in ranks.items()]
        print_table(Listing(columns, rows), wide)
    if found["more_rows"]:
        stdout.print(f"  and {counted(found['more_rows'], 'more kind')}")
    if found["header_rules"]:
        names = escape(", ".join(found["header_rules"]))
        stdout.print(f"No header is on record: what asks for one ({names}) was taken to fit none.")


def _came(numbers: dict[str, int], rule: str | None) -> str:
    words = {"redeliver": "tried again", "dead-letter": "dead-lettered", "drop": "dropped"}
    counts = ", ".join(f"{number:,} {words[what]}" for what, number in numbers.items())
    return f"{counts} by {rule}" if rule else counts


def _wait(least_ms: int | None, most_ms: int | None) -> str:
    if least_ms is None or most_ms is None:
        return "–"
    return span(least_ms) if least_ms == most_ms else f"{span(least_ms)} – {span(most_ms)}"


def _layers_in(file: Path, pattern: str | None) -> dict[str, Properties]:
    """Pattern -> {field name: value}. Of one pattern: its settings, or a list, its rules. Of several: a mapping of them, or a broker.yaml
    with such a section.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        found = YAML(typ="safe").load(file.read_text())
    except OSError as error:
        raise unreadable(file, error) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise typer.BadParameter(f"{file}{where}, is not YAML: {error.problem or error.context}") from None
    except (UnicodeDecodeError, YAMLError, RecursionError) as error:
        raise typer.BadParameter(f"{file} is not YAML: {error}") from None
    if pattern is not None:
        found = {"rules": found} if isinstance(found, list) else found
        if not isinstance(found, dict) or not found:
            what = f"a list of rules for {pattern}, such as - {{error-type: TimeoutError, redelivery-delay: 30s}}"
            raise typer.BadParameter(f"{file} has neither {what}, nor settings of it, such as redelivery-delay: 5s")
        found = {pattern: found}
    layers = found.get(_SECTION, found) if isinstance(found, dict) else None
    if not isinstance(layers, dict) or not layers or not all(isinstance(each, dict) and each for each in layers.values()):
        raise typer.BadParameter(f"{file} is no mapping of patterns to settings, such as 'orders.#': {{redelivery-delay: 5s}}")
    return {str(pattern): read_settings(settings) for pattern, settings in layers.items()}
