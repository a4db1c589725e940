"""The referee: compares what clients saw with what the broker promised. Pure: logs and snapshots in, violations out.

An operation is *ok* (the client was told), *fail* (told that it did not happen) or *unknown*; unknown ones may have happened or not,
but not by half and not twice. Snapshots are the journal's contents between two brokers. A kill may take what was not sent to be kept;
an orderly stop may not, and what it kept stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from math import inf
from typing import Final

from tests.faults.kill_loop.events import FAIL, OK, UNKNOWN, Snapshot
from tests.faults.kill_loop.history import Delivery, Failure, History, Life, Send

TOKEN: Final = "token:"
#: Longer than any run.
_HELD_MS: Final = 86_400_000


class Kind(StrEnum):
    LOST = "lost"  # confirmed, and gone without anybody having acknowledged it
    UNEXPECTED = "unexpected"  # there, though never sent, or sent in a transaction known to be rolled back
    STORED_TWICE = "stored twice"  # one send, two messages
    DUPLICATED = "duplicated"  # there, or delivered, after its acknowledgement was confirmed
    COUNT_FELL = "count fell"  # a delivery count lower than one seen before, or a confirmed failure not counted
    EARLY = "early"  # delivered before it was due
    TORN = "torn"  # a transaction by half
    IN_TWO_QUEUES = "in two queues"
    DIED_EARLY = "died early"  # dead-lettered before its attempts were used up
    LIMIT_PASSED = "limit passed"  # delivered again after its attempts were used up
    STUCK = "stuck"  # once faults stopped, something did not settle
    JOURNAL = "journal"  # what `homing journal check` finds
    COMPLAINT = "complaint"  # an error or a traceback in the broker's log, or an answer that no client must get
    BALANCE = "balance"  # the export's sums differ from what the clients counted


@dataclass(frozen=True, slots=True)
class Violation:
    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the broker was told. ``max_attempts`` holds for every queue but the ``endless`` ones (name prefixes).

    ``counted_before``: queues whose delivery counts are on disk before the delivery leaves, so that each delivery has a higher one.
    ``ours``: how the names of the queues begin that the clients alone use, where others use the broker, too.
    """

    max_attempts: int = 4
    endless: tuple[str, ...] = ("tokens.", "DLQ.")
    counted_before: tuple[str, ...] = ("work.3",)
    dead_letter_prefix: str = "DLQ."
    ours: tuple[str, ...] = ("work.", "tokens.", "DLQ.work.")
    tokens: int = 0
    #: Queues that dead letters are sent back to, to be tried as often again.
    redriven: tuple[str, ...] = ()
    tolerance_ms: float = 50.0

    def limited(self, queue: str) -> bool:
        return not queue.startswith(self.endless)


Check = Callable[[History, Sequence[Snapshot], Rules], Iterator[Violation]]


def check(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> list[Violation]:
    """Everything that was promised and not kept. ``snapshots`` in the order of time; the last one is the end."""
    sent: tuple[Check, ...] = (_lost, _unexpected, _returned, _stored_twice, _duplicated)
    failed: tuple[Check, ...] = (_counts, _due_times, _held_back, _limits)
    together: tuple[Check, ...] = (_torn, _tokens, _places)
    return [violation for each in (*sent, *failed, *together) for violation in each(history, snapshots, rules)]


def recovered(history: History) -> int:
    """Sends whose outcome nobody told, and that are there all the same. No fault: only interesting."""
    return sum(send.outcome == UNKNOWN and key in history.ids for key, send in history.sends.items())


# -- what was sent ---------------------------------------------------------------------------------------------------


def _lost(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    reported: set[str] = set()
    vanished = ghosts(history, snapshots)
    sends = [(key, send, _kept_from(key, send, history, snapshots)) for key, send in history.sends.items() if not send.ttl_ms]
    for snapshot in snapshots:
        here = {entry.key for entry in snapshot.entries}
        for key, send, kept_t in sends:
            if kept_t is None or kept_t >= snapshot.t or key in here or key in reported:
                continue
            numbers = history.ids.get(key, set())
            lives = [life for number in (numbers - vanished if send.durable else numbers) for life in history.lives_of[number]]
            if not any(life.perhaps_acked for life in lives):
                reported.add(key)
                seen = f"delivered {sum(len(life.deliveries) for life in lives)} times" if lives else "never delivered"
                yield Violation(
                    Kind.LOST, f"{key} was confirmed to {send.queue}, {seen}, never acknowledged, and is gone at {snapshot.name}"
                )


def _kept_from(key: str, send: Send, history: History, snapshots: Sequence[Snapshot]) -> float | None:
    """Since when nothing may take it: it was confirmed, and is durable; it has failed, and that is on disk, which was not full; or the
    broker that it was sent to and that confirmed it was stopped in order."""
    end = next((snapshot for snapshot in snapshots if snapshot.t > send.t), None)
    if send.outcome == OK and (send.durable or (end is not None and end.orderly and send.ok_t < end.t)):
        return send.ok_t
    lives = [life for number in history.ids.get(key, ()) for life in history.lives_of[number]]
    failures = [each for life in lives for each in life.failures if each.outcome == OK]
    return min((each.ok_t for each in failures if not any(at.full_t < each.ok_t <= at.t for at in snapshots)), default=None)


def _unexpected(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    seen = dict.fromkeys(history.ids, "delivered")
    seen |= {entry.key: f"in {entry.queue} at {snapshot.name}" for snapshot in snapshots for entry in snapshot.entries}
    for key, where in seen.items():
        send = history.sends.get(key)
        if send is None:
            yield Violation(Kind.UNEXPECTED, f"{key} is {where} and nobody sent it")
        elif send.outcome == FAIL:
            yield Violation(Kind.UNEXPECTED, f"{key} is {where} and its transaction {send.tx} was rolled back")


def _returned(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    """What was confirmed and gone once stays so, whatever took it."""
    confirmed = {key: send.ok_t for key, send in history.sends.items() if send.outcome == OK}
    seen = [(life.key, delivery.t) for life in history.lives.values() for delivery in life.deliveries]
    seen += [(entry.key, snapshot.t) for snapshot in snapshots for entry in snapshot.entries]
    last = dict(sorted(seen, key=lambda each: each[1]))
    for snapshot in snapshots:
        # What a client had not read yet comes a little after its broker's death.
        again = {key for key, t in last.items() if confirmed.get(key, t) < snapshot.t < t - rules.tolerance_ms}
        for key in sorted(again - {entry.key for entry in snapshot.entries}):
            yield Violation(Kind.UNEXPECTED, f"{key} was gone at {snapshot.name}, and came again")


def _stored_twice(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    vanished = ghosts(history, snapshots)
    ids = {key: numbers - vanished for key, numbers in history.ids.items()}
    for snapshot in snapshots:
        for entry in snapshot.entries:
            ids.setdefault(entry.key, set()).add(entry.id)
    kills = [snapshot.t for snapshot in snapshots if not snapshot.orderly]
    for key, numbers in ids.items():
        send = history.sends.get(key)
        # What fails before its confirm is kept, without the number that its sender gave it (docs/semantics.md, section 9).
        untold = send is not None and not send.durable and any(send.t < kill < (send.ok_t or inf) for kill in kills)
        if len(numbers) > 1 and not untold:
            yield Violation(Kind.STORED_TWICE, f"{key} is there as messages {sorted(numbers)}")


def ghosts(history: History, snapshots: Sequence[Snapshot]) -> set[int]:
    """Messages that were perhaps never on disk: delivered for the first time before their batch was, as they may be, and then the
    broker was killed, their sender not having been told anything. It sends them again, and they get another number. What need not be kept
    may have been acknowledged meanwhile."""
    stored = {entry.id for snapshot in snapshots for entry in snapshot.entries}
    kills = sorted(snapshot.t for snapshot in snapshots if not snapshot.orderly)
    numbers = {key: set(ids) for key, ids in history.ids.items()}
    for snapshot in snapshots:
        for entry in snapshot.entries:
            numbers.setdefault(entry.key, set()).add(entry.id)
    found: set[int] = set()
    for life in history.lives.values():
        send = history.sends.get(life.key)
        if send is None or not life.deliveries or life.id in stored:
            continue
        if send.durable and (life.deliveries[-1].count > 1 or life.confirmed_ack is not None):
            continue
        kill = next((t for t in kills if t > life.deliveries[-1].t), None)
        reported = send.outcome == OK and kill is not None and send.ok_t < kill
        alone = send.durable and send.outcome == OK and len(numbers[life.key]) == 1
        if kill is not None and not reported and not alone:
            found.add(life.id)
    return found


# -- what was acknowledged -------------------------------------------------------------------------------------------


def _duplicated(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    for life in history.lives.values():
        ack = life.confirmed_ack
        if ack is not None:
            again = [delivery for delivery in life.deliveries if delivery.t > ack.ok_t]
            if again:
                yield Violation(
                    Kind.DUPLICATED,
                    f"{_named(life)} was delivered {again[0].t - ack.ok_t:.0f} ms after its acknowledgement was confirmed",
                )
    for snapshot in snapshots:
        for entry in snapshot.entries:
            ended = history.lives.get((entry.id, entry.queue))
            ack = ended.confirmed_ack if ended is not None else None
            if ack is not None and ack.ok_t < snapshot.t:
                yield Violation(
                    Kind.DUPLICATED, f"{entry.key} stands in {entry.queue} at {snapshot.name}, though its acknowledgement was confirmed"
                )


# -- what failed -----------------------------------------------------------------------------------------------------


def _counts(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    for life in history.lives.values():
        highest = 0
        for delivery in life.deliveries:
            strict = life.queue in rules.counted_before and not (delivery.after_stop or delivery.after_cut)
            if delivery.count < highest or (delivery.count == highest and strict):
                yield Violation(Kind.COUNT_FELL, f"{_named(life)} was delivered with count {delivery.count} after {highest}")
            highest = max(highest, delivery.count)
        for failure in life.failures:
            after = _after(life, failure)
            if failure.outcome == OK and after is not None and after.count <= failure.count:
                yield Violation(
                    Kind.COUNT_FELL,
                    f"{_named(life)} failed ({failure.how}) at count {failure.count}, on disk, and came again with {after.count}",
                )
    for snapshot in snapshots:
        for entry in snapshot.entries:
            found = history.lives.get((entry.id, entry.queue))
            seen = max((each.count for each in found.deliveries if each.t < snapshot.t), default=1) if found is not None else 1
            if entry.delivery_count < seen - 1:
                yield Violation(
                    Kind.COUNT_FELL,
                    f"{entry.key} in {entry.queue} was delivered with count {seen}, and {snapshot.name} has {entry.delivery_count}",
                )


def _due_times(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    for life in history.lives.values():
        send = history.sends.get(life.key)
        if send is not None and send.delay_ms and life.queue == send.queue:
            first = life.deliveries[0] if life.deliveries else None
            if first is not None:
                yield from _early(life, first.t - send.t, first.w - send.w, send.delay_ms, "it was sent", rules)
        for failure in _waited_for(life, rules):
            after = _after(life, failure)
            if failure.delay_ms and after is not None and _is_on_disk(life, failure, rules) and not _retried(history, life, failure, after):
                yield from _early(life, after.t - failure.t, after.w - failure.w, failure.delay_ms, f"its {failure.how}", rules)


def _retried(history: History, life: Life, failure: Failure, after: Delivery) -> bool:
    """Somebody may have brought it forward."""
    between = (each for each in history.retries.values() if each.t < after.t and each.end_t > failure.t)
    return any(each.way != "hold" and each.touches(life) for each in between)


def _held_back(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    """What is on hold comes after it was released, and what is to come later comes later."""
    for retry in history.retries.values():
        if retry.outcome != OK or retry.way not in ("hold", "at_ms"):
            continue
        for number in retry.ids or ():
            life = history.lives[number, retry.queue]
            later = (each.t for each in history.retries.values() if each.t > retry.t and each.touches(life))
            until_t = min(later, default=float("inf"))
            after = next((each for each in life.deliveries if retry.end_t < each.t < until_t), None)
            if after is not None:
                delay_ms = retry.delay_ms if retry.way == "at_ms" else _HELD_MS
                yield from _early(life, after.t - retry.t, after.w - retry.w, delay_ms, f"a retry ({retry.way})", rules)


def _waited_for(life: Life, rules: Rules) -> list[Failure]:
    """Failures after which it came again only when it was due: one that it died of has no time, and may be followed by a redrive."""
    if life.queue not in rules.redriven:
        return life.blows
    return list(takewhile(lambda failure: failure.how != "poison", life.blows[: rules.max_attempts - 1]))


def _after(life: Life, failure: Failure) -> Delivery | None:
    return next((delivery for delivery in life.deliveries if delivery.t > failure.t), None)


def _is_on_disk(life: Life, failure: Failure, rules: Rules) -> bool:
    """Somebody was told so, or the next delivery's count shows it. If it never got to the disk, nothing was promised."""
    after = _after(life, failure)
    shown = after is not None and not after.after_stop and after.count > failure.count and life.queue not in rules.counted_before
    return failure.outcome == OK or shown


def _early(life: Life, waited_ms: float, waited_wall_ms: float, delay_ms: int, since: str, rules: Rules) -> Iterator[Violation]:
    """Early by both clocks: a wall clock that was set forward makes due what was not."""
    if max(waited_ms, waited_wall_ms) < delay_ms - rules.tolerance_ms:
        yield Violation(Kind.EARLY, f"{_named(life)} came {waited_ms:.0f} ms after {since}, due after {delay_ms} ms")


def _limits(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    for life in history.lives.values():
        if rules.limited(life.queue):
            yield from _limit_passed(life, rules)
    dead = {(life.id, life.queue, life.key) for life in history.lives.values() if life.deliveries}
    dead |= {(entry.id, entry.queue, entry.key) for snapshot in snapshots for entry in snapshot.entries}
    for number, queue, key in sorted(dead):
        if not queue.startswith(rules.dead_letter_prefix):
            continue
        source = history.lives.get((number, queue.removeprefix(rules.dead_letter_prefix)))
        blows = source.blows if source is not None else []
        if len(blows) < rules.max_attempts and not any(failure.how == "poison" for failure in blows):
            yield Violation(Kind.DIED_EARLY, f"{key} is in {queue} after {len(blows)} failures, {rules.max_attempts} are allowed")


def _limit_passed(life: Life, rules: Rules) -> Iterator[Violation]:
    counted: list[Failure] = []
    for failure in life.blows:
        after = _after(life, failure)
        if _is_on_disk(life, failure, rules):
            counted.append(failure)
            final = len(counted) >= rules.max_attempts or (failure.how == "poison" and failure.outcome == OK)
            if final and after is not None and life.queue in rules.redriven:
                counted = []
            elif final and after is not None:
                yield Violation(Kind.LIMIT_PASSED, f"{_named(life)} was delivered again after {len(counted)} failures")


# -- what belongs together -------------------------------------------------------------------------------------------


def _torn(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    seen = set(history.ids) | {entry.key for snapshot in snapshots for entry in snapshot.entries}
    for tx, commit in history.commits.items():
        keys = [key for key in commit.keys if history.sends[key].durable]
        stored = [key for key in keys if key in seen]
        # What was committed and is missing is found as lost.
        if commit.outcome == UNKNOWN and stored and len(stored) < len(keys):
            yield Violation(Kind.TORN, f"of the {len(keys)} messages of transaction {tx} only {stored} are there")


def _tokens(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    """Each token is in exactly one place, whatever transactions moved it."""
    seeded = {_token(key): send.ok_t for key, send in history.sends.items() if key.startswith(TOKEN) and send.tx is None}
    for snapshot in snapshots:
        places = Counter(_token(entry.key) for entry in snapshot.entries if entry.key.startswith(TOKEN))
        for token, ok_t in seeded.items():
            if ok_t and ok_t < snapshot.t and places[token] != 1:
                yield Violation(Kind.TORN, f"token {token} is in {places[token]} places at {snapshot.name}")


def _token(key: str) -> str:
    return key.split(":")[1]


def _places(history: History, snapshots: Sequence[Snapshot], rules: Rules) -> Iterator[Violation]:
    for snapshot in snapshots:
        places: dict[int, list[str]] = {}
        for entry in snapshot.entries:
            places.setdefault(entry.id, []).append(entry.queue)
        for number, queues in places.items():
            if len(queues) > 1:
                yield Violation(Kind.IN_TWO_QUEUES, f"message {number} is in {' and '.join(sorted(queues))} at {snapshot.name}")
        for problem in snapshot.problems:
            yield Violation(Kind.JOURNAL, f"{snapshot.name}: {problem}")


def _named(life: Life) -> str:
    return f"{life.key} (message {life.id} in {life.queue})"
