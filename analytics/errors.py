"""The one exception of this package."""

from __future__ import annotations


class AnalyticsError(Exception):
    """Something the person at the keyboard can fix. ``code`` is stable, ``message`` one sentence, ``fix`` says what to do."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(f"{message} {fix}")
        self.code = code
        self.message = message
        self.fix = fix
