"""Groups of commands whose ``list`` need not be said."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class OrList(TyperGroup):
    """A group whose ``list`` need not be said: ``homing faults QUEUE`` is ``homing faults list QUEUE``."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = ["list", *args]
        return super().parse_args(context, args)
