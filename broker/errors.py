"""Refusals: what the broker says when it will not do something. The connection survives them."""

from __future__ import annotations


class Refused(Exception):
    """A refused operation: a stable kebab-case ``code``, one sentence, and ``fix``, what to do about it."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
