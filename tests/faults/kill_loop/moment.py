"""Is an export that was taken under load one moment? Each of its rows, and each row that it lacks, says on which side of it something was.

What the export shows had begun by then, so the moment is not earlier than that; what it does not show was not known to be on disk, so
the moment is not later than the answer that told so. One instant must fit all of these, and lie within the time that exporting took.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from tests.faults.kill_loop.accounting import Account, Range, account_of, table
from tests.faults.kill_loop.checker import TOKEN, Kind, Rules, Violation
from tests.faults.kill_loop.events import FAIL, OK, VOID
from tests.faults.kill_loop.history import Acknowledgement, History, Life, Send

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Taken:
    """An export in ``directory``, and when it began and had ended: monotonic milliseconds."""

    directory: Path
    began_ms: float
    ended_ms: float


@dataclass(slots=True)
class Moment:
    """``account``: the export's own sums beside what the logs allow; ``facts``: how many rows, there or not, said when it was."""

    taken: Taken
    account: Account
    facts: int = 0
    not_before_ms: tuple[float, str] = (0.0, "nothing")
    not_after_ms: tuple[float, str] = (inf, "nothing")
    broken: list[Violation] = field(default_factory=list)

    def not_before(self, t: float, what: str) -> None:
        self.facts += 1
        self.not_before_ms = max(self.not_before_ms, (t, what))

    def not_after(self, t: float, what: str) -> None:
        self.facts += 1
        self.not_after_ms = min(self.not_after_ms, (t, what))

    def violations(self) -> Iterator[Violation]:
        yield from self.account.violations()
        yield from self.broken
        (low, earlier), (high, later) = self.not_before_ms, self.not_after_ms
        if low > high:
            yield Violation(
                Kind.BALANCE, f"no moment of the export: {earlier}, which began {low - high:.1f} ms after it was told that {later}"
            )
        if low > self.taken.ended_ms or high < self.taken.began_ms:
            yield Violation(Kind.BALANCE, f"the export shows another time than its own: {earlier}, and {later}")


def moment(taken: Taken, history: History, rules: Rules) -> Moment:
    rows = _rows(taken.directory)
    found = Moment(taken, account_of(taken.directory, history, rules, lambda each: _possible(taken, each, rules)))
    for life in history.lives.values():
        _judge_entry(found, life, rows.get((life.id, life.queue)), history)
    _judge_attempts(found, history)
    tokens = sum(row["state"] != "settled" and queue.startswith("tokens.") for (_, queue), each in rows.items() for row in each)
    seeds = [(send.t, send.ok_t) for key, send in history.sends.items() if key.startswith(TOKEN) and send.tx is None and send.ok_t]
    wanted = Range(_known_and_begun(taken, seeds).least, rules.tokens)
    if tokens not in wanted:
        found.broken.append(Violation(Kind.TORN, f"the export shows {tokens} tokens, and there are {wanted}"))
    return found


def _rows(directory: Path) -> dict[tuple[int, str], list[_Row]]:
    found: dict[tuple[int, str], list[_Row]] = {}
    for row in table(directory, "messages", ["message_id", "queue", "state", "outcome"]):
        found.setdefault((row["message_id"], row["queue"]), []).append(row)
    return found


def _judge_entry(found: Moment, life: Life, rows: list[_Row] | None, history: History) -> None:
    send = history.sends.get(life.key) if len(history.ids.get(life.key, ())) == 1 else None
    # Killed before it was on disk, it comes again under another number, and may expire before anybody sees that.
    known = send is not None and send.durable and not send.ttl_ms
    acks = [ack.t for ack in life.acks if ack.outcome not in (FAIL, VOID)]
    reported = life.confirmed_ack
    if rows is None:
        if send is not None and known and not life.failures and not life.queue.startswith("DLQ."):
            _judge_absent(found, life, send, acks)
        return
    states = {row["outcome"] for row in rows}
    if None in states:
        if reported is not None:
            found.not_after(reported.ok_t, f"message {life.id} of {life.queue} was acknowledged on disk, and it is still there")
        if send is not None and not life.queue.startswith("DLQ."):
            found.not_before(send.t, f"message {life.id} of {life.queue} is there, and was about to be sent")
    if "succeeded" in states:
        if acks:
            found.not_before(min(acks), f"message {life.id} of {life.queue} has succeeded, and was about to be acknowledged")
        else:
            found.broken.append(Violation(Kind.UNEXPECTED, f"message {life.id} of {life.queue} has succeeded, and nobody acknowledged it"))


def _judge_absent(found: Moment, life: Life, send: Send, acks: list[float]) -> None:
    """Without a row and without a failure: not sent yet, or acknowledged at its first delivery."""
    if not acks or min(acks) > found.taken.ended_ms:
        if send.outcome == OK:
            found.not_after(send.ok_t, f"message {life.id} of {life.queue} was confirmed, and it is not there")
    elif send.outcome == OK and send.ok_t < found.taken.began_ms:
        found.not_before(min(acks), f"message {life.id} of {life.queue} is gone, and was about to be acknowledged")


def _judge_attempts(found: Moment, history: History) -> None:
    rows: dict[tuple[int, str, int], int] = {}
    for row in table(found.taken.directory, "attempts", ["message_id", "queue", "delivery_count"]):
        key = (row["message_id"], row["queue"], row["delivery_count"])
        rows[key] = rows.get(key, 0) + 1
    for life in history.lives.values():
        blows: dict[int, list[float]] = {}
        for failure in life.blows:
            blows.setdefault(failure.count, []).append(failure.t)
        for count, times in blows.items():
            if rows.get((life.id, life.queue, count)) == len(times) == 1:
                found.not_before(times[0], f"attempt {count} at message {life.id} of {life.queue} failed, and was about to")


def _possible(taken: Taken, history: History, rules: Rules) -> dict[str, Range]:
    """At least what was known to be on disk when exporting began, at most what had begun when it ended."""
    all_sends = [send for send in history.sends.values() if send.outcome != FAIL and send.t < taken.ended_ms]
    sends = [send for send in all_sends if send.of is None]
    copies = _known_and_begun(taken, [(send.t, _known_t(send)) for send in all_sends if send.of is not None])
    edits = [ack for life in history.lives.values() if not life.queue.startswith(rules.dead_letter_prefix) for ack in life.acks if ack.edit]
    edited = _known_and_begun(taken, [(ack.t, _known_t(ack)) for ack in edits if ack.outcome != FAIL])
    twice = sum(len(numbers) - 1 for numbers in history.ids.values())
    sent = Range(sum(send.outcome == OK and send.ok_t < taken.began_ms for send in sends), len(sends) + twice)
    lives = [life for life in history.lives.values() if not life.queue.startswith(rules.dead_letter_prefix)]
    reported = [life.confirmed_ack for life in lives if not life.edited]
    surely = sum(ack is not None and ack.ok_t < taken.began_ms for ack in reported)
    perhaps = sum(any(ack.t < taken.ended_ms and ack.outcome != FAIL and not ack.edit for ack in life.acks) for life in lives)
    nothing = dict.fromkeys(("dropped", "purged"), Range(0, 0))
    return {"sent": sent, "succeeded": Range(surely, perhaps), "moved_in": copies, "moved_out": edited, **nothing}


def _known_t(what: Send | Acknowledgement) -> float:
    return what.ok_t if what.outcome == OK else inf


def _known_and_begun(taken: Taken, times: list[tuple[float, float]]) -> Range:
    """Of what began and was told of at these times."""
    return Range(sum(reported < taken.began_ms for _, reported in times), sum(began < taken.ended_ms for began, _ in times))
