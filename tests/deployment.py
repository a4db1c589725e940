"""docs/deploy.md as a script for each of its two machines."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.process import ROOT

PAGE: Final = ROOT / "docs" / "deploy.md"
#: As a script says that the broker is to run on beside it.
_IN_BACKGROUND: Final = """
homing serve >ready 2>log & echo $! >pid
until grep -q 'homing ready' ready; do kill -0 $(cat pid) || { cat log; exit 1; }; sleep 0.1; done
"""


class Scripts(NamedTuple):
    """``install``: what both begin with."""

    install: str
    broker: str
    client: str


def scripts() -> Scripts:
    """What the page tells to type."""
    here, there = PAGE.read_text().split("\n## On another machine\n")
    install, *broker = _blocks(here)
    assert broker[-1] == "homing serve\n"
    return Scripts(install, "".join(broker[:-1]) + _IN_BACKGROUND, "".join(_blocks(there)))


def _blocks(text: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
