"""How many of some things will go well, of which others like them went well or not."""

from __future__ import annotations

import math
from typing import Final

#: Of the normal distribution: a share lies within the bounds in nine of ten cases.
_Z2: Final = 1.6449**2


def likely(well: float, tried: float) -> tuple[float, float]:
    """The share that goes well, at least and at most (Wilson's interval, 90 %). ``tried``: 1 at least."""
    middle = (well + _Z2 / 2) / (tried + _Z2)
    around = math.sqrt(_Z2 * (well * (tried - well) / tried + _Z2 / 4)) / (tried + _Z2)
    return middle - around, middle + around
