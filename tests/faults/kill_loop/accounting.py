"""Does the export tell the same story as the clients? Sums over its tables against what the clients' logs allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset

from tests.faults.kill_loop.checker import Kind, Rules, Violation, ghosts
from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN, Snapshot
from tests.faults.kill_loop.history import History

_CAME: Final = ("sent", "moved_in")
_WENT: Final = ("succeeded", "dead_lettered", "expired", "dropped", "purged", "moved_out")
#: Redrive jobs that have ended and are kept.
_KEPT_JOBS: Final = 100
Columns = dict[str, int]


@dataclass(frozen=True, slots=True)
class Range:
    """What the clients' logs leave possible: unknown outcomes count for nothing at the least and for one at the most."""

    least: int
    most: int

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Account:
    """``exported`` beside ``counted``, by the words of the equation; ``by_queue``: the export's columns and what is still here."""

    exported: Columns
    counted: dict[str, Range]
    by_queue: dict[str, Columns]
    #: queue -> what its consumers acknowledged of durable messages, all together
    by_consumer: dict[str, int]
    #: What redrive jobs say that they sent, without or with what was not durable; None where there were more of them than are kept.
    sent_by_jobs: Range | None = None

    def violations(self) -> Iterator[Violation]:
        for queue, columns in self.by_queue.items():
            came, went = sum(columns[name] for name in _CAME), sum(columns[name] for name in _WENT)
            if came != went + columns["here"]:
                yield Violation(Kind.BALANCE, f"{queue}: {came} came, {went} went and {columns['here']} are there ({columns})")
            if columns["succeeded"] != self.by_consumer.get(queue, 0):
                text = f"{queue}: {columns['succeeded']} succeeded, and {self.by_consumer.get(queue, 0)} by its consumers"
                yield Violation(Kind.BALANCE, text)
        for word, range_ in self.counted.items():
            if self.exported[word] not in range_:
                yield Violation(Kind.BALANCE, f"{word}: the export has {self.exported[word]}, the clients counted {range_}")
        if self.sent_by_jobs is not None and self.exported["redriven"] not in self.sent_by_jobs:
            text = f"{self.exported['redriven']} were redriven, and {self.sent_by_jobs} by jobs"
            yield Violation(Kind.BALANCE, text)
        first = self.exported
        if first["sent"] + first["moved_in"] != sum(first[name] for name in (*_WENT, "here")):
            yield Violation(Kind.BALANCE, f"sent is not the sum of the ways to end: {first}")


def account(export: Path, history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Account:
    """The last snapshot is the journal after everything has settled and all have stopped."""
    return account_of(export, history, rules, lambda each: _counted(each, snapshots, rules))


def account_of(export: Path, history: History, rules: Rules, count: Callable[[History], dict[str, Range]]) -> Account:
    """The export's own sums beside what was counted. A death that was followed by a redrive is counted as none, by neither. What is not
    durable counts from when it was written for good, which nobody tells.
    """
    durable = history.of_durable()
    least, most = count(durable), count(history)
    counted = {word: Range(least[word].least, most[word].most) for word in most}
    others = [life for entry, life in history.lives.items() if entry not in durable.lives]
    by_queue = _by_queue(export)
    exported = dict.fromkeys((*_CAME, *_WENT, "here", "in_dead_letter_queues", "moved_in_dead_letters", "redriven"), 0)
    edited_dead = sum(
        row["outcome"] == "edited" and row["queue"].startswith(rules.dead_letter_prefix)
        for row in table(export, "messages", ["queue", "outcome"])
    )
    for queue, columns in by_queue.items():
        if not queue.startswith(rules.ours):
            continue
        dead = queue.startswith(rules.dead_letter_prefix)
        for name, value in columns.items():
            if not dead:
                exported[name] += value
        if dead:
            exported["in_dead_letter_queues"] += columns["here"]
            exported["moved_in_dead_letters"] += columns["moved_in"]
            exported["redriven"] += columns["moved_out"]
    exported["redriven"] -= edited_dead
    for word in ("dead_lettered", "moved_in", "moved_in_dead_letters"):
        exported[word] -= exported["redriven"]
    jobs = [job["sent"] for job in table(export, "redrives", ["sent"])]
    sent = Range(sum(jobs) - sum(len(life.blows) // rules.max_attempts for life in others), sum(jobs))
    return Account(exported, counted, by_queue, _by_consumer(export), sent if len(jobs) < _KEPT_JOBS else None)


def _by_queue(export: Path) -> dict[str, Columns]:
    """Of durable messages; what was kept later counts as sent."""
    found: dict[str, Columns] = {}

    def row(queue: str) -> Columns:
        return found.setdefault(queue, dict.fromkeys((*_CAME, *_WENT, "here"), 0))

    names = (*_CAME, *_WENT)
    for minute in table(export, "deliveries_by_minute", ["queue", *names, *(f"transient_{name}" for name in names), "kept"]):
        for name in names:
            row(minute["queue"])[name] += minute[name] - minute[f"transient_{name}"]
        row(minute["queue"])["sent"] += minute["kept"]
    for message in table(export, "messages", ["queue", "state"]):
        row(message["queue"])["here"] += message["state"] != "settled"
    return found


def _by_consumer(export: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in table(export, "deliveries_by_consumer", ["queue", "succeeded"]):
        found[row["queue"]] = found.get(row["queue"], 0) + row["succeeded"]
    for minute in table(export, "deliveries_by_minute", ["queue", "transient_succeeded"]):
        found[minute["queue"]] = found.get(minute["queue"], 0) - minute["transient_succeeded"]
    return found


def table(export: Path, name: str, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(export / name, partitioning="hive").to_table(columns=columns).to_pylist()
    return rows


def _counted(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> dict[str, Range]:
    end = snapshots[-1]
    vanished = ghosts(history, snapshots)
    here = {(entry.id, entry.queue) for entry in end.entries}
    lives = [life for life in history.lives.values() if life.deliveries or life.perhaps_acked]
    dead = {life.id for life in lives if life.queue.startswith(rules.dead_letter_prefix)}
    dead |= {entry.id for entry in end.entries if entry.queue.startswith(rules.dead_letter_prefix) and entry.key in history.sends}
    ended = [
        life
        for life in lives
        if not life.queue.startswith(rules.dead_letter_prefix)
        and life.perhaps_acked
        and not life.edited
        and life.id not in dead
        and (life.id, life.queue) not in here
    ]
    surely = sum(life.confirmed_ack is not None or not history.sends[life.key].ttl_ms for life in ended if life.id not in vanished)
    copies = sum(send.of is not None and send.outcome == OK for send in history.sends.values())
    perhaps = sum(send.of is not None and send.outcome == UNKNOWN for send in history.sends.values())
    edited = sum(life.edited and not life.queue.startswith(rules.dead_letter_prefix) for life in lives)
    here_at_work = sum(not queue.startswith(rules.dead_letter_prefix) for _, queue in here)
    return {
        "sent": _sent(history, end, vanished),
        "succeeded": Range(surely, len({life.key for life in ended})),
        "dead_lettered": Range(len(dead), len(dead)),
        "moved_in_dead_letters": Range(len(dead), len(dead)),
        "expired": _expired(history, dead),
        **dict.fromkeys(("dropped", "purged"), Range(0, 0)),
        "moved_in": Range(copies, copies + perhaps),
        "moved_out": Range(edited, edited + perhaps),
        "here": Range(here_at_work, here_at_work),
        "in_dead_letter_queues": Range(len(here) - here_at_work, len(here) - here_at_work),
    }


def _sent(history: History, end: Snapshot, vanished: set[int]) -> Range:
    """What was confirmed, and of the unknown ones what was seen. One that nobody saw was not stored, unless it expired unseen."""
    seen = {key: bool(numbers - vanished) for key, numbers in history.ids.items()}
    seen |= dict.fromkeys((entry.key for entry in end.entries), True)
    sends = [send for send in history.sends.values() if send.of is None]
    confirmed = sum(send.outcome == OK for send in sends)
    unknown = [send for send in sends if send.outcome not in (OK, FAIL)]
    surely = sum(seen.get(send.key, False) for send in unknown)
    perhaps = sum(send.key in seen or send.ttl_ms > 0 for send in unknown)
    return Range(confirmed + surely, confirmed + perhaps)


def _expired(history: History, dead: set[int]) -> Range:
    short = [send for send in history.sends.values() if send.ttl_ms and send.outcome != FAIL]
    lives = list(history.lives.values())
    perhaps_not = {life.key for life in lives if life.perhaps_acked or life.id in dead}
    surely_not = {life.key for life in lives if life.confirmed_ack is not None or life.id in dead}
    least = sum(send.outcome == OK and send.key not in perhaps_not for send in short)
    return Range(least, sum(send.key not in surely_not for send in short))
