"""Groups of commands whose ``list`` need not be said."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from typer.core import TyperGroup


class OrList(TyperGroup):
    """A group whose ``list`` need not be said: ``homing faults QUEUE`` is ``homing faults list QUEUE``.

    More words than ``list`` takes are meant for another command, whose name is misspelt. While a shell completes, nothing is left out.
    """

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        words = list(takewhile(lambda word: not word.startswith("-"), args))
        taken = sum(param.param_type_name == "argument" for param in self.commands["list"].params)
        named = bool(args) and args[0] in (*self.commands, "--help", "-h")
        if not named and len(words) <= taken and not (context.resilient_parsing and not args):
            args = ["list", *args]
        return super().parse_args(context, args)
