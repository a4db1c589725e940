"""The rows of an export: what each table of docs/export-schema.md reads from one snapshot of the journal.

Every function yields tuples in the order of its table's columns, without the two that all share. Journal times are
milliseconds, the export's are microseconds. Nothing is held but the row at hand, so memory does not grow with the journal.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from .. import fingerprint, json_text
from ..commit.counts import MINUTE_NAMES
from ..commit.fault_groups import COLUMNS as FAULT_COLUMNS
from ..contract import ON_HOLD_MS, AttemptDetail, Fault, FaultLife, HopDetail, HopRecord, OutcomeDetail, Program, ReferenceState, fault_of
from ..declarations import RedriveContent
from ..read import faults as fault_reads
from ..store import returned
from ..store.history_rows import ATTEMPTS, FAILURES_OF_MESSAGE, OUTCOMES
from ..store.packing import Damaged, unpack, unpack_attempt, unpack_hops, unpack_message, unpack_outcome
from ..upkeep.spilled import LASTING as THERE

Row = tuple[Any, ...]
#: By which programs know a message; None: that is not known.
IdsOf = Callable[[Any], tuple[str | None, str | None]]
FETCH_ROWS = 1000
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_UNITS_MS = {"minute": 60_000, "hour": _HOUR_MS}
#: As plain numbers: the enum's own operators cost a fifth of an export.
_PARKED, _SUSPECT = int(ReferenceState.PARKED), int(ReferenceState.SUSPECT)


class Mark(NamedTuple):
    """How far an export came."""

    at_us: int
    #: failure, outcome -> the number of its last row
    last: Mapping[str, int]


@dataclass(slots=True)
class Snapshot:
    """One read transaction on the journal, and the little that every table needs."""

    connection: sqlite3.Connection
    now_ms: int
    with_tracebacks: bool
    broker_id: str
    queue_names: dict[int, str]
    #: Attempts and outcomes before it may be gone; None: none has gone.
    history_from_ms: int | None
    #: Of what is over, only what is not in that earlier snapshot; None: all.
    since: Mark | None = None
    #: AMQP's message-id and app-id of a message with these properties.
    ids: IdsOf = lambda properties: (None, None)
    #: queue_id -> [ready, scheduled, parked]; filled while the messages are read.
    here: dict[int, list[int]] = field(default_factory=dict)
    #: Of fault groups, by their numbers; filled for the dead letters.
    fingerprints: dict[int, str] = field(default_factory=dict)

    def select(self, sql: str, *parameters: Any) -> Iterator[Row]:
        cursor = self.connection.execute(sql, parameters)
        try:
            while rows := cursor.fetchmany(FETCH_ROWS):
                yield from rows
        finally:
            # Rows of an export that failed are let go only after it has closed the connection.
            with suppress(sqlite3.ProgrammingError):
                cursor.close()

    def added(self, table: str) -> str:
        """A condition on rows of ``failure`` or ``outcome``. What came to the journal later may have ended before; and where all rows
        have been forgotten their numbers begin anew."""
        return "true" if self.since is None else f"({table}_id > {self.since.last[table]} OR at_ms > {self.since.at_us // 1000})"

    def counted(self, unit: str, whole_ms: int) -> str:
        """A condition on counts by the minute or hour: from the beginning of the ``whole_ms`` in which something may have been added."""
        if self.since is None:
            return "true"
        return f"{unit} >= {(self.since.at_us // 1000 - _HOUR_MS) // whole_ms * whole_ms // _UNITS_MS[unit]}"

    def queue_name(self, queue_id: int) -> str:
        return self.queue_names.get(queue_id, f"queue {queue_id}")

    def state_of(self, state: int, due_at_ms: int | None) -> int:
        """0 ready, 1 scheduled, 2 parked."""
        if state & _PARKED:
            return 2
        return 1 if due_at_ms is not None and due_at_ms > self.now_ms else 0


STATES = ("ready", "scheduled", "parked")


def us(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms * 1000


def as_json(value: Any) -> str:
    return json_text.dumps(value, sort_keys=True)


def error_class(outcome: str, fault: Fault | None) -> str:
    return (fault and fault.get("error_type")) or outcome


# --- messages -------------------------------------------------------------------------------------------------------

_HERE = f"""
SELECT r.queue_id, r.rank, r.sequence, r.message_id, {returned.DELIVERY_COUNT}, {returned.FAILED}, r.state, r.due_at_ms, r.expires_at_ms,
       r.entered_at_ms, r.overlay_blob, coalesce(r.message_blob, m.message_blob), iif(r.message_blob IS NULL, m.checksum, r.checksum)
FROM reference r {returned.JOIN} LEFT JOIN message m ON m.message_id = r.message_id AND r.message_blob IS NULL
WHERE {THERE} ORDER BY r.sequence
"""
_SETTLED = f"SELECT message_id, sequence, queue_id, at_ms, outcome, outcome_blob, sent_at_ms, entered_at_ms FROM {OUTCOMES}"


def messages(snapshot: Snapshot) -> Iterator[Row]:
    for row in snapshot.select(_HERE):
        yield _message_here(snapshot, row)
    for row in snapshot.select(f"{_SETTLED} WHERE {snapshot.added('outcome')}"):
        yield _message_settled(snapshot, row)


def _message_here(snapshot: Snapshot, row: Row) -> Row:
    queue_id, rank, sequence, message_id, delivery_count, failed, state, due_at_ms, expires_at_ms, entered_at_ms, overlay, *body = row
    blob, checksum = body
    if blob is None:
        raise Damaged(f"the body of message {message_id} is missing")
    which = snapshot.state_of(state, due_at_ms)
    snapshot.here.setdefault(queue_id, [0, 0, 0])[which] += 1
    message, hops = unpack_message(blob, checksum, message_id), [] if overlay is None else unpack(overlay)
    return (
        message_id, sequence, queue_id, snapshot.queue_name(queue_id), message.address, STATES[which], None,
        failed, failed, delivery_count, None, bool(state & _SUSPECT), 9 - rank, len(message.body), len(hops),
        us(message.sent_at_ms), us(entered_at_ms), us(None if due_at_ms == ON_HOLD_MS else due_at_ms), us(expires_at_ms), None, None, None,
        *snapshot.ids(message.properties),
        hops[-1].get("queue") if hops else snapshot.queue_name(queue_id), message.producer or None, None, None, None,
    )  # fmt: skip


def client(program: Program | None) -> tuple[str | None, ...]:
    program = program or Program()
    return program.get("client_id"), program.get("host"), program.get("version")


def _message_settled(snapshot: Snapshot, row: Row) -> Row:
    message_id, sequence, queue_id, at_ms, outcome, *ended = row
    detail, sent_at_ms, entered_at_ms = unpack_outcome(*ended)
    failed = detail.attempts
    return (
        message_id, sequence, queue_id, snapshot.queue_name(queue_id), detail.address, "settled", outcome,
        failed + (outcome == "succeeded"), failed, detail.delivery_count, detail.reason, None, None, None, None,
        us(sent_at_ms), us(entered_at_ms), None, None, us(at_ms), list(detail.target_queues), detail.key,
        None, None, detail.home or snapshot.queue_name(queue_id), detail.producer, *client(detail.client),
    )  # fmt: skip


# --- attempts -------------------------------------------------------------------------------------------------------


_ATTEMPTS = f"SELECT message_id, sequence, failure_id, attempt, queue_id, at_ms, failure_blob FROM {ATTEMPTS}"


def attempts(snapshot: Snapshot) -> Iterator[Row]:
    failure: int | None = None
    shared: Row = ()
    for message_id, sequence, failure_id, *what in snapshot.select(f"{_ATTEMPTS} WHERE {snapshot.added('failure')} ORDER BY at_ms"):
        if failure_id != failure:
            failure, shared = failure_id, failure_row(snapshot, *what)
        yield message_id, sequence, *shared


def failure_row(snapshot: Snapshot, attempt: int, queue_id: int, at_ms: int, blob: bytes) -> Row:
    """What the attempts of one row have in common: all but the two columns in front."""
    detail = unpack_attempt(blob)
    fault = detail.fault or Fault()
    return (
        queue_id, snapshot.queue_name(queue_id), detail.original_address,
        attempt, us(at_ms), us(detail.assigned_at_ms), us(detail.given_at_ms), detail.outcome,
        error_class(detail.outcome, fault), fault.get("error_type"), fault.get("bases"), fault.get("error_text"),
        fault.get("exit_status"), fault.get("reason"), fault.get("traceback") if snapshot.with_tracebacks else None,
        fingerprint.of_fault(detail.outcome, snapshot.queue_name(queue_id), fault),
        detail.consumer, detail.connection, detail.delivery_count,
        detail.failed, detail.decision, detail.rule, detail.delay_ms, us(detail.due_at_ms), detail.policy,
        detail.message_key, detail.home or snapshot.queue_name(queue_id), detail.producer, *client(detail.client),
    )  # fmt: skip


# --- dead letters ---------------------------------------------------------------------------------------------------

# Both sides are read in the order of message_id, so that one message's deaths and copies meet without a table in memory;
# SQLite sorts both through its own temporary file where they are long.
_DEATHS = f"SELECT message_id, sequence, outcome_id, sent_at_ms FROM {OUTCOMES} WHERE outcome = 'dead-lettered'"
_DEATH = "SELECT queue_id, at_ms, outcome_blob FROM outcome WHERE outcome_id = ?"
_COPIES = (
    "SELECT message_id, queue_id, sequence, overlay_blob, coalesce(cause, 0) FROM reference r"
    f" WHERE overlay_blob IS NOT NULL AND {THERE} ORDER BY message_id, sequence"
)


def dead_letters(snapshot: Snapshot) -> Iterator[Row]:
    snapshot.fingerprints.update(snapshot.select("SELECT fault_id, fingerprint FROM fault"))
    # Of a message of which a copy is somewhere every death: where that is, is so now.
    wanted = f"({snapshot.added('outcome')} OR message_id IN (SELECT message_id FROM ({_COPIES}))) ORDER BY message_id, sequence"
    deaths = ((row[0], row) for row in snapshot.select(f"{_DEATHS} AND {wanted}"))
    copies = ((row[0], row) for row in snapshot.select(_COPIES))
    attempts = LastAttempts(snapshot)
    for dead, remaining in _merge(deaths, copies):
        yield from deaths_of_one(snapshot, attempts, dead, remaining)


def _merge(left: Iterable[tuple[int, Row]], right: Iterable[tuple[int, Row]]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows of the two sides with the same key, keys ascending."""
    lefts = ((key, [row for _, row in rows]) for key, rows in groupby(left, key=itemgetter(0)))
    rights = ((key, [row for _, row in rows]) for key, rows in groupby(right, key=itemgetter(0)))
    a, b = next(lefts, None), next(rights, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a[0] < b[0]):
            assert a is not None
            yield a[1], []
            a = next(lefts, None)
        elif a is None or b[0] < a[0]:
            yield [], b[1]
            b = next(rights, None)
        else:
            yield a[1], b[1]
            a, b = next(lefts, None), next(rights, None)


@dataclass(slots=True)
class _Death:
    sequence: int
    queue: str
    died_at_ms: int
    queue_id: int | None = None
    #: None: the outcome is not on record any more.
    detail: OutcomeDetail | None = None
    sent_at_ms: int | None = None
    lies_in: list[str] = field(default_factory=list)
    hops: list[HopRecord] = field(default_factory=list)
    #: The fingerprint of what it died of, as its copy tells.
    fault: str | None = None


def deaths_of_one(snapshot: Snapshot, attempts: LastAttempts, dead: list[Row], remaining: list[Row]) -> Iterator[Row]:
    deaths: dict[int, _Death] = {}
    for _, sequence, outcome_id, sent_ms in dead:
        queue_id, at_ms, blob = snapshot.connection.execute(_DEATH, (outcome_id,)).fetchone()
        detail, sent_at_ms, _ = unpack_outcome(blob, sent_ms, None)
        deaths[sequence] = _Death(sequence, snapshot.queue_name(queue_id), at_ms, queue_id, detail, sent_at_ms)
    message_id = dead[0][0] if dead else remaining[0][0]
    for _, queue_id, sequence, overlay, why in remaining:
        try:
            _add_hops(deaths, unpack_hops(overlay, sequence), snapshot.queue_name(queue_id), snapshot.fingerprints.get(fault_of(why)))
        except Damaged as error:
            raise Damaged(f"entry {sequence} of message {message_id} {error}") from error
    for _, death in sorted(deaths.items()):
        yield _death_row(snapshot, attempts, message_id, death)


def _add_hops(deaths: dict[int, _Death], hops: list[HopRecord], lies_in: str, fault: str | None) -> None:
    """Match a copy's hops, newest first, with the deaths on record; a hop whose outcome was forgotten makes a death of its own."""
    for index, (sequence, detail) in enumerate(hops):
        death = deaths.get(sequence)
        if death is None:
            if detail["reason"] == "expired":  # on its way to an expiry queue: no death
                continue
            death = deaths[sequence] = _Death(sequence, detail["queue"], detail["at_ms"])
        death.hops = death.hops or hops[index:]
        if index == 0 and lies_in != death.queue:  # else it was sent back, and its hops with it
            death.lies_in.append(lies_in)
            death.fault = fault


def _death_row(snapshot: Snapshot, attempts: LastAttempts, message_id: int, death: _Death) -> Row:
    detail = death.detail or _as_the_hops_say(death.hops)
    last = attempts.of(message_id, death.sequence)
    fault = (last.fault if last else None) or Fault()
    return (
        message_id, death.sequence, death.queue_id, death.queue, detail.address, us(death.died_at_ms), detail.reason, detail.attempts,
        error_class(last.outcome, fault) if last else None, fault.get("error_type"), fault.get("error_text"),
        us(death.sent_at_ms), list(detail.target_queues) or death.lies_in, death.lies_in, [_hop(*hop) for hop in death.hops],
        death.hops[-1][1]["queue"] if death.hops else detail.home or death.queue, last.producer if last else detail.producer,
        *client(last.client if last else None),
        death.fault or fingerprint.of_fault(last.outcome if last else detail.reason or "", death.queue, fault),
    )  # fmt: skip


def _as_the_hops_say(hops: list[HopRecord]) -> OutcomeDetail:
    """Of a death whose outcome is not on record any more."""
    newest, first = hops[0][1], hops[-1][1]
    return OutcomeDetail(first["address"], newest["attempts"], newest["delivery_count"], newest["reason"])


def _hop(sequence: int, detail: HopDetail) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "queue": detail["queue"],
        "address": detail["address"],
        "reason": detail["reason"],
        "attempts": detail["attempts"],
        "delivery_count": detail["delivery_count"],
        "at": us(detail["at_ms"]),
        "expires_at": us(detail.get("expires_at_ms")),
    }


class LastAttempts:
    """Finds the last attempt of each entry. A row of table failure is of up to a thousand entries; those that were read are remembered,
    since deaths come in the order of their messages."""

    _REMEMBERED = 512
    _OF_MESSAGE = f"SELECT failure_id FROM failure WHERE {FAILURES_OF_MESSAGE} ORDER BY attempt DESC, +failure_id DESC"

    def __init__(self, snapshot: Snapshot) -> None:
        self._connection = snapshot.connection
        #: failure_id -> (sequences, what the attempts have in common)
        self._known: dict[int, tuple[frozenset[int], bytes]] = {}

    def of(self, message_id: int, sequence: int) -> AttemptDetail | None:
        for (failure_id,) in self._connection.execute(self._OF_MESSAGE, {"message_id": message_id}).fetchall():
            sequences, blob = self._known.get(failure_id) or self._read(failure_id)
            if sequence in sequences:
                return unpack_attempt(blob)
        return None

    def _read(self, failure_id: int) -> tuple[frozenset[int], bytes]:
        sql = "SELECT stays, failure_blob FROM failure WHERE failure_id = ?"
        entries, blob = self._connection.execute(sql, (failure_id,)).fetchone()
        if len(self._known) >= self._REMEMBERED:
            del self._known[next(iter(self._known))]
        try:
            sequences = frozenset(sequence for _, sequence in json.loads(entries))
        except (ValueError, TypeError) as error:
            raise Damaged(f"row {failure_id} of table failure names no entries") from error
        self._known[failure_id] = found = sequences, blob
        return found


# --- queues, settings, policies, minutes ----------------------------------------------------------------------------


def queues(snapshot: Snapshot) -> Iterator[Row]:
    """After ``messages``, which counts what is here."""
    sql = """SELECT queue_id, name, address, routing_type, selector, durable, auto_created, paused, options_blob, created_at_ms,
                    deleted_at_ms FROM queue ORDER BY queue_id"""
    for queue_id, name, address, routing_type, selector, durable, auto, paused, options, created, deleted in snapshot.select(sql):
        ready, scheduled, parked = snapshot.here.get(queue_id, (0, 0, 0))
        yield (
            queue_id, name, address, routing_type, selector, bool(durable), bool(auto), bool(paused), as_json(unpack(options)),
            us(created), us(deleted), ready, scheduled, parked,
        )  # fmt: skip


def settings(snapshot: Snapshot) -> Iterator[Row]:
    for from_ms, blob in snapshot.select("SELECT from_ms, settings_blob FROM setting ORDER BY from_ms"):
        for pattern, values in sorted(unpack(blob).items()):
            for setting, value in sorted(values.items()):
                yield us(from_ms), pattern, setting, as_json(value)


def policies(snapshot: Snapshot) -> Iterator[Row]:
    for policy, from_ms, blob in snapshot.select("SELECT policy, from_ms, policy_blob FROM policy ORDER BY from_ms, policy"):
        yield policy, us(from_ms), as_json(unpack(blob))


def deliveries_by_minute(snapshot: Snapshot) -> Iterator[Row]:
    sql = f"SELECT queue_id, minute, {', '.join(MINUTE_NAMES)} FROM minute"
    sql += f" WHERE {snapshot.counted('minute', _DAY_MS)} ORDER BY queue_id, minute"
    for queue_id, minute, *counts in snapshot.select(sql):
        yield (queue_id, snapshot.queue_name(queue_id), minute * 60_000_000, *counts)


def faults(snapshot: Snapshot) -> Iterator[Row]:
    lives, dead = fault_reads.lives(snapshot.connection, snapshot.now_ms), Counter[int]()
    for each in fault_reads.dead(snapshot.connection):
        dead[each.fault_id] += each.messages
    sql = """SELECT fault_id, fingerprint, queue, error_class, coalesce(text, ''), first_ms, last_ms, fault_blob
             FROM fault LEFT JOIN fault_text USING (fault_id) ORDER BY fault_id"""
    for fault_id, number, queue, error_class, text, first_ms, last_ms, blob in snapshot.select(sql):
        life, said = lives.get(fault_id) or FaultLife(), unpack(blob)
        yield (
            number, queue, error_class, text, us(first_ms), us(last_ms),
            *(getattr(life, name) for name in FAULT_COLUMNS), dead[fault_id], said["muted"], said["fixed_in"], us(said["fixed_ms"]),
            us(said["regressed_ms"]),
        )  # fmt: skip


#: An original that has ended goes on as the last of its copies; those made while it was kept are messages of their own.
_EDITS = f"""
WITH RECURSIVE ended AS (SELECT DISTINCT message_id FROM {OUTCOMES} WHERE outcome = 'edited'),
goes_on AS (SELECT original, max(message_id) AS message_id FROM edit WHERE original IN ended GROUP BY original),
known AS (
  SELECT message_id, original AS first_id FROM goes_on WHERE original NOT IN (SELECT message_id FROM goes_on)
  UNION ALL SELECT goes_on.message_id, first_id FROM known JOIN goes_on ON goes_on.original = known.message_id
)
SELECT edit.message_id, original, first_id, queue_id, at_ms FROM edit LEFT JOIN known USING (message_id) ORDER BY edit.message_id
"""


def edits(snapshot: Snapshot) -> Iterator[Row]:
    for message_id, original, first_id, queue_id, at_ms in snapshot.select(_EDITS):
        yield message_id, original, first_id, queue_id, snapshot.queue_name(queue_id), us(at_ms)


def redrives(snapshot: Snapshot) -> Iterator[Row]:
    for (blob,) in snapshot.select("SELECT content_blob FROM declaration WHERE kind = 'redrive' ORDER BY CAST(name AS INTEGER)"):
        job: RedriveContent = unpack(blob)
        counts = (job["sent"], job["left"], job["succeeded"], job["died"], job["gone"], job["bounced"])
        what = (job["job_id"], job["queue"], job["target"], as_json(job["wanted"]), job["state"], job["why"] or None)
        yield (*what, us(job["started_ms"]), us(job["ended_ms"]), *counts)


def deliveries_by_consumer(snapshot: Snapshot) -> Iterator[Row]:
    sql = "SELECT queue_id, hour, consumer, succeeded, held_ms, failed, failed_ms, first_ms, last_ms FROM served"
    sql += f" WHERE {snapshot.counted('hour', _HOUR_MS)} ORDER BY hour, queue_id, consumer"
    for queue_id, hour, consumer, *counts, first_ms, last_ms in snapshot.select(sql):
        name, *program = json.loads(consumer) if consumer.startswith("[") else (consumer, "", "", "")
        yield (
            queue_id,
            snapshot.queue_name(queue_id),
            hour * 3_600_000_000,
            name,
            *(each or None for each in program),
            *counts,
            us(first_ms),
            us(last_ms),
        )
