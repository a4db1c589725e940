"""What shells complete with, beyond the words of commands."""

from __future__ import annotations

from typing import Any

import typer


def _queue_names(context: typer.Context, incomplete: str) -> list[str]:
    from .client import queue_names

    return queue_names(context, incomplete)


def queue_argument(help_text: str) -> Any:
    """A queue's name, of the broker that the command would talk to."""
    return typer.Argument(help=help_text, autocompletion=_queue_names)
