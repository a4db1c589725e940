"""Says what so many deliveries took of the CPU of this process, the first tenth apart; with TEST_ENDS it ends at the last."""

import os
from pathlib import Path
from time import process_time

URL = os.environ["TEST_BROKER_URL"]
QUEUE = os.environ["TEST_QUEUE"]
COUNT = int(os.environ["TEST_COUNT"])
FAILS = os.environ.get("TEST_FAILS")
_done = 0
_began_s = 0.0


def done():
    global _done, _began_s
    _done += 1
    if _done == COUNT // 10:
        _began_s = process_time()
    elif _done == COUNT:
        Path(os.environ["TEST_NOTES"]).write_text(f"took {process_time() - _began_s}\n")
        if "TEST_ENDS" in os.environ:
            os._exit(0)
    if FAILS:
        raise KeyError(FAILS)
