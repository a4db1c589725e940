"""The account: what the clients logged, what the export says, and whether both agree to the last message."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DLQ_PREFIX = "DLQ."


@dataclass(slots=True)
class ClientAccount:
    """What the workers' logs come to. A *line* is one line of the input, sent as one message."""

    sent: set[int]
    succeeded: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    attempts: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    held_by_the_killed: set[int] = field(default_factory=set)
    succeeded_by_mode: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    #: Handled once more after a success whose acknowledgement the broker had not confirmed when it was killed: allowed.
    repeated: set[int] = field(default_factory=set)
    #: Given to somebody after an acknowledgement was confirmed: never allowed.
    after_confirmed: list[str] = field(default_factory=list)
    #: A message whose delivery count was lower than one already seen: never allowed.
    counts_fell: list[str] = field(default_factory=list)


def read_logs(logs: Iterable[Path]) -> list[dict[str, Any]]:
    """All entries of all workers in the order of time. The last line of a killed worker may be cut short; it does not count."""
    entries = []
    for log in logs:
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                entries.append(json.loads(line))
    return sorted(entries, key=lambda entry: int(entry["at_ns"]))


def client_account(sent: set[int], entries: list[dict[str, Any]]) -> ClientAccount:
    account = ClientAccount(sent)
    highest: dict[int, int] = {}
    for entry in entries:
        line, what = entry["line"], entry["what"]
        if what in ("given", "held"):
            account.attempts += 1
            if line in account.confirmed:
                account.after_confirmed.append(f"line {line}")
            if entry["delivery"] < highest.get(line, 0):
                account.counts_fell.append(f"line {line}: {highest[line]}, then {entry['delivery']}")
            highest[line] = max(highest.get(line, 0), entry["delivery"])
        if what == "held":
            account.held_by_the_killed.add(line)
        elif what == "failed":
            account.failures[entry["error"]] += 1
        elif what == "handled":
            if line in account.succeeded:
                account.repeated.add(line)
            account.succeeded.add(line)
            account.succeeded_by_mode[entry["mode"]].add(line)
        elif what == "confirmed":
            account.confirmed.add(line)
    return account


@dataclass(slots=True)
class ExportAccount:
    """The same from the export alone, over the queues that were sent to."""

    sent: int = 0
    succeeded: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    still_here: int = 0
    #: In dead-letter queues.
    dead_letters_here: int = 0
    failed_attempts: int = 0

    @property
    def balances(self) -> bool:
        return self.sent == self.succeeded + self.dead_lettered + self.expired + self.dropped + self.still_here


def export_account(dump: Path) -> ExportAccount:
    import pyarrow.parquet as parquet

    account = ExportAccount()
    for row in parquet.read_table(dump / "deliveries_by_minute").to_pylist():
        if row["queue"].startswith(DLQ_PREFIX):
            continue
        account.sent += row["sent"] + row["moved_in"]
        account.succeeded += row["succeeded"]
        account.dead_lettered += row["dead_lettered"]
        account.expired += row["expired"]
        account.dropped += row["dropped"] + row["purged"] + row["moved_out"]
        account.failed_attempts += row["failed"]
    for row in parquet.read_table(dump / "queues").to_pylist():
        here = row["ready"] + row["scheduled"] + row["parked"]
        if row["queue"].startswith(DLQ_PREFIX):
            account.dead_letters_here += here
        else:
            account.still_here += here
    return account


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict: what must be equal, and whether it is."""

    what: str
    found: str
    holds: bool


def verdict(clients: ClientAccount, dead: set[int], export: ExportAccount) -> list[Check]:
    """Every promise the demo makes, checked. ``dead``: the lines that lie in dead-letter queues, as peeked."""
    lost = clients.sent - clients.succeeded - dead
    both = clients.succeeded & dead
    stuck = clients.held_by_the_killed - clients.succeeded - dead
    sent, succeeded = len(clients.sent), len(clients.succeeded)
    return [
        Check("sent = succeeded + dead-lettered", f"{sent} = {succeeded} + {len(dead)}", sent == succeeded + len(dead)),
        Check("nothing lost", _some(lost), not lost),
        Check("nothing both succeeded and dead-lettered", _some(both), not both),
        Check("nothing that the killed consumer held got stuck", _some(stuck), not stuck),
        Check("nothing given again after a confirmed acknowledgement", _some(clients.after_confirmed), not clients.after_confirmed),
        Check("no delivery count ever fell", _some(clients.counts_fell), not clients.counts_fell),
        Check(
            "the export alone balances",
            f"{export.sent} = {export.succeeded} + {export.dead_lettered} + {export.expired} + {export.dropped} + {export.still_here}",
            export.balances,
        ),
        Check(
            "the export says what the clients counted",
            f"sent {export.sent}, succeeded {export.succeeded}, dead-lettered {export.dead_lettered}",
            (export.sent, export.succeeded, export.dead_lettered, export.dead_letters_here) == (sent, succeeded, len(dead), len(dead)),
        ),
    ]


def _some(found: Iterable[Any]) -> str:
    items = [str(each) for each in found]
    return "none" if not items else f"{len(items)}: {', '.join(items[:5])}{' …' if len(items) > 5 else ''}"
