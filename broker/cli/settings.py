"""What is configured: ``reload``, ``config check``, ``config from``, ``config export``."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..answers.administration import ChangedValue
from ..words.safe_text import safe
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, escape, print_json, stdout

if TYPE_CHECKING:
    from ..config.config import Config

config_app = typer.Typer(help="The configuration file.", no_args_is_help=True)

DEFAULT_FILE: Final = Path("broker.yaml")


def load_config(path: Path | None, *, data: Path | None = None, insecure: bool = False, only: Collection[str] = ()) -> Config:
    """The configuration in ``path``, or in ./broker.yaml, or without either the shipped defaults.

    ``data`` replaces its data directory; ``only``: sections, besides which nothing is read.
    """
    from ..config.config import default_config, load

    there = path is not None or DEFAULT_FILE.is_file()
    config = load(path or DEFAULT_FILE, insecure=insecure, only=only) if there else default_config(Path.cwd())
    return config.with_data(data) if data is not None else config


def data_directory(data: Path | None) -> Path:
    """Where the journal is: ``--data``, else what broker.yaml in this directory says, else its default."""
    return data if data is not None else load_config(None).data_directory


def reload(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Have the running broker read its configuration file again: all of it takes effect, or nothing (exit code 5)."""
    from ..config.source import shown
    from .client import call

    changed: list[ChangedValue] = call(url, "reload")["changed"]
    if as_json:
        print_json(changed)
        return
    if not changed:
        stdout.print("nothing changed")
    for each in changed:
        later = "  [yellow]after a restart[/]" if each["needs_restart"] else ""
        stdout.print(f"{escape(each['path'])}  {escape(shown(each['before']))} → [bold]{escape(shown(each['after']))}[/]{later}")


@config_app.command("check")
def config_check(file: Annotated[Path, typer.Argument(help="The file to check.")] = Path("broker.yaml"), as_json: Json = False) -> None:
    """Read a configuration as the broker would: errors end it, warnings are about what you may not mean.

    Also about what [bold]homing settings[/] has set in the journal of its data directory and contradicts the file.
    """
    from ..config.config import check, load, without_removing
    from ..process.start_notes import contradicted

    config = without_removing(load(file))
    warnings = check(config) + contradicted(config)
    if as_json:
        print_json({"file": str(file), "valid": True, "warnings": warnings})
        return
    for warning in warnings:
        stdout.print(f"[yellow]warning[/]  {escape(warning)}")
    stdout.print(f"[green]{escape(str(file))} is valid[/]")


@config_app.command("from")
def config_from(
    path: Annotated[Path, typer.Argument(help="An activemq.xml, a broker.xml, or a folder with one of them.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; standard output without.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Translate a configuration of ActiveMQ or Artemis into a broker.yaml.

    Behind each line stands the one that it came from. What could not be translated, and what is otherwise here, is listed with a sentence
    each, in the file as well. Exit code 7: not all could be translated.
    """
    from ..config.config import parse
    from ..from_activemq.reading import translate

    found, text = translate(path)
    if out is not None:
        try:
            with out.open("x") as file:
                file.write(text)
        except OSError as error:
            said = f"{out} cannot be written: {error.strerror}"
            raise CommandError(ExitCode.FAILED, said, "name a new file, or make room", code="not-written") from None
    if as_json:
        print_json({"missing": [each._asdict() for each in found.missing], "differs": [each._asdict() for each in found.differs]})
    elif out is None:
        print(text)
    else:
        for kind, notes in (("[red]not translated[/]", found.missing), ("[yellow]otherwise here[/]", found.differs)):
            for each in notes:
                stdout.print(f"{kind}  {escape(each.origin)}  {escape(each.what)}: {escape(each.said)}")
        stdout.print(f"[bold]{escape(str(out))}[/] is written; homing config check reads it")
    # A value that no broker takes is found now, in what is written.
    parse(text, source=str(out or "the translation"))
    if found.missing:
        raise typer.Exit(ExitCode.LIMIT)


@config_app.command("export")
def config_export(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Write what is in force in a running broker as a broker.yaml, with what [bold]homing settings[/] has set.

    Users are not in it. Queues, virtual hosts and policies that clients and commands made are in the journal, which keeps them.
    """
    from ruamel.yaml import YAML

    from ..config.export import as_file
    from .client import call

    in_force = call(url, "settings")
    found = as_file(in_force)
    if as_json:
        print_json(found)
        return
    if in_force["users"]:
        print(f"# Users are not exported: {safe(', '.join(in_force['users']))}. Add users: with their hashes.")
    writer = YAML()
    writer.width = 1_000
    writer.dump(found, sys.stdout)
