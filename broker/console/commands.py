"""The command of ``homing`` that does what a page does, to copy."""

from __future__ import annotations

import shlex

from ..answers.parts import Properties
from ..words.filters import options_of
from ..words.redrives import meant
from .asked import Redrive


class Commands:
    """``options``: what each of them needs to find this broker; nothing where it is the usual one."""

    def __init__(self, options: str) -> None:
        self._options = options

    def say(self, *words: str, options: str = "") -> str:
        return " ".join(filter(None, ("homing", *map(shlex.quote, words), options, self._options)))

    def filtered(self, words: list[str], wanted: Properties) -> str:
        return self.say(*words, options=" ".join(options_of(wanted)))

    def redrive(self, redrive: Redrive, *more: str) -> str:
        return self.say("redrive", redrive.arguments["queue"], options=" ".join(filter(None, (meant(redrive.wanted), *more))))
