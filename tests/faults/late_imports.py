"""A broker that says at its end which modules were loaded after it let the first client in.
``python -m tests.faults.late_imports serve …``
"""

from __future__ import annotations

import asyncio
import sys
from unittest.mock import patch

from homing.broker.cli.main import main
from homing.broker.config.config import Config
from homing.broker.process import preload, run, shutdown

_load, _until_stopped = preload.load, shutdown.until_stopped
_before: set[str] = set()


def _load_and_note(config: Config) -> None:
    _load(config)
    _before.update(sys.modules)


async def _stopped_and_shown(*arguments: object) -> int:
    stop, *_ = [each for each in arguments if isinstance(each, asyncio.Event)]
    await stop.wait()
    print("loaded late:", *sorted(sys.modules.keys() - _before), file=sys.stderr)
    return await _until_stopped(*arguments)  # type: ignore[arg-type]


if __name__ == "__main__":
    with patch.object(preload, "load", _load_and_note), patch.object(run, "until_stopped", _stopped_and_shown):
        main()
