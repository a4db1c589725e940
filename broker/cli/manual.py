"""What is installed beside the command and made from its help: the manual page, and completion for bash, zsh and fish.

``python -m homing.broker.cli.manual share`` writes the files of ``share/`` anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer
from rich.text import Text
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from .main import EPILOG, command_tree
from .output import DEFAULT_URL

_COMPLETION: Final = {
    "bash": "bash-completion/completions/homing",
    "zsh": "zsh/site-functions/_homing",
    "fish": "fish/vendor_completions.d/homing.fish",
}


def files() -> dict[str, str]:
    """Path below ``share`` -> content."""
    found = {"man/man1/homing.1": manual_page()}
    for shell, path in _COMPLETION.items():
        found[path] = get_completion_script(prog_name="homing", complete_var="_HOMING_COMPLETE", shell=shell) + "\n"
    return found


def manual_page() -> str:
    tree = command_tree()
    root = typer.Context(tree, info_name="homing")
    title = _plain(tree.help).partition(":")[0].removeprefix("Homing, ")
    lines = ['.TH HOMING 1 "" "Homing" "User Commands"', ".SH NAME", f"homing \\- {_text(title)}"]
    lines += [
        ".SH SYNOPSIS",
        ".B homing",
        "\\fICOMMAND\\fR [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...",
        ".SH DESCRIPTION",
        _text(_plain(tree.help)),
    ]
    lines += [*_options(tree, root), ".SH COMMANDS"]
    for command, context in _leaves(tree, root):
        lines += [f'.SS "{_text(" ".join([context.command_path, *command.collect_usage_pieces(context)]))}"']
        for number, paragraph in enumerate(_plain(command.help).split("\n\n")):
            lines += [".PP"] * bool(number) + [_text(" ".join(paragraph.split()))]
        lines += _options(command, context)
        lines += [".PP", ".RS", ".nf", *(_text(_plain(line)) for line in (command.epilog or "").splitlines() if line), ".fi", ".RE"]
    lines += [".SH ENVIRONMENT", ".TP", ".B HOMING_URL", _text(f"The broker to talk to, where there is no --url: {DEFAULT_URL}")]
    lines += [".SH EXIT STATUS", _text(EPILOG.partition(": ")[2]), ".SH SEE ALSO", "docs/operations.md, docs/settings.md"]
    return "\n".join(lines) + "\n"


def _leaves(command: Any, context: typer.Context) -> Iterator[tuple[Any, typer.Context]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield command, context
        return
    for name, each in commands.items():
        if each.hidden:
            continue
        yield from _leaves(each, typer.Context(each, info_name=name, parent=context))


def _options(command: Any, context: typer.Context) -> Iterator[str]:
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and not ({"--help", "--json"} & set(param.opts) and context.parent):
            yield from (".TP", f".B {_text(record[0].strip())}", _text(_plain(record[1])))


def _plain(markup: str | None) -> str:
    return Text.from_markup(markup or "").plain.strip()


def _text(text: str) -> str:
    """For troff: what it would read as its own is escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> None:
    for path, content in files().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


if __name__ == "__main__":
    main()
