"""A process that writes a journal in steps whose outcome can be computed, and says which steps are on disk.

``python -m tests.faults.journal_child DIRECTORY STEPS BODY_BYTES [OPTION=VALUE …]``. Step n adds PER_STEP messages, settles some
of step n - 2, fails one of step n - 1, and sets the clock to n, so that the clock found on disk names the last step that is there.
Lines on standard output: ``opened N`` (steps found), ``done N`` (step N is on disk), ``closed``, ``failed CODE``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from homing.journal.contract import QueueStat
from homing.journal.errors import JournalError
from homing.journal.journal import Journal, JournalOptions
from tests.unit.journal_support import attempt, counted, keep_attempt, message, queue, reference, stored

#: So few that a step alone is packed (docs/decisions/0037-a-small-commit-is-one-row.md).
PER_STEP = 3
SETTLED_OF_STEP = 1
#: Steps that may be under way at once, so that batches overlap.
AHEAD = 3


def body(sequence: int, size: int) -> bytes:
    return (sequence.to_bytes(8, "big") * (size // 8 + 1))[:size]


def sequences_of(step: int) -> list[int]:
    return [step * 10 + place for place in range(PER_STEP)]


def expected(steps: int) -> dict[int, int]:
    """sequence -> failed, of every reference on disk after so many steps."""
    found: dict[int, int] = {}
    for step in range(1, steps + 1):
        found |= dict.fromkeys(sequences_of(step), 0)
        if step > 1:
            found[sequences_of(step - 1)[-1]] = step
        if step > 2:
            for sequence in sequences_of(step - 2)[:SETTLED_OF_STEP]:
                del found[sequence]
    return found


def append(journal: Journal, step: int, body_bytes: int) -> None:
    batch = journal.batch
    counts = batch.counts(1, 1)
    for sequence in sequences_of(step):
        batch.add(reference(sequence, of=message(sequence, body(sequence, body_bytes))))
        counts[QueueStat.SENT] += 1
    if step > 1:
        failed = sequences_of(step - 1)[-1]
        batch.change([failed], counted(failed=step))
        keep_attempt(batch, attempt(failed, failed, step))
    if step > 2:
        for sequence in sequences_of(step - 2)[:SETTLED_OF_STEP]:
            batch.delete_all((sequence,))
            counts[QueueStat.SUCCEEDED] += 1
    batch.clock(step)
    batch.after.append(lambda: say(f"done {step}"))


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write(directory: Path, steps: int, body_bytes: int, options: JournalOptions) -> int:
    try:
        journal, recovered = await Journal.open(directory, options, 0)
    except JournalError as error:
        say(f"failed {error.code}")
        return error.exit_code
    try:
        if not recovered.queues:
            journal.batch.queue(queue(1))
        say(f"opened {recovered.clock_ms}")
        for step in range(recovered.clock_ms + 1, recovered.clock_ms + 1 + steps):
            append(journal, step, body_bytes)
            for _ in range(AHEAD):
                await asyncio.sleep(0)
            if step % 2:
                await stored(journal)
            if step % 5 == 0:
                await journal.flush()
        await journal.flush()
        await journal.close()
        say("closed")
        return 0
    except JournalError as error:
        say(f"failed {error.code}")
        return error.exit_code
    finally:
        await journal.close()


def main() -> None:
    directory, steps, body_bytes, *options = sys.argv[1:]
    chosen = {name: int(value) for name, value in (option.split("=") for option in options)}
    sys.exit(asyncio.run(write(Path(directory), int(steps), int(body_bytes), JournalOptions(**{"disk_reserve_bytes": 0, **chosen}))))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
