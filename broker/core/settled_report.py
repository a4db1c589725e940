"""What is reported of a delivery that was acknowledged before it failed."""

from __future__ import annotations

from typing import NamedTuple

from .fault import FailureReport
from .message import Message, Trouble


class SettledReport(NamedTuple):
    """``message``: what failed; ``whole`` where the program has sent all of it along. ``again``: the program tries it again, by a message
    of its own; ``succeeded``: such a try has succeeded.
    ``before``: what its delivery was counted as when it was acknowledged, where it had failed before that.
    """

    report: FailureReport
    message: Message
    whole: bool = False
    again: bool = False
    succeeded: bool = False
    before: Trouble | None = None
