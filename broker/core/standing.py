"""What was worked out from something holds as long as that stands: one look says so, and whoever changes it need not know who looked."""

from __future__ import annotations


class Standing:
    """Of one state of a thing; with the next state it falls, for good."""

    __slots__ = ("good",)

    def __init__(self) -> None:
        self.good = True

    def fall(self) -> Standing:
        """That of the state that follows."""
        self.good = False
        return Standing()
