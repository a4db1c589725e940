"""A message's history as the events of its life, in order: what ``homing history`` draws. Pure; no printing here.

The history is the map of ``journal.reader.JournalReader.history``, which the call ``history`` answers with too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ..answers.lives import Attempt, Edited, Entry, Failure, History, Outcome
from ..answers.parts import Fields
from ..core.amqp.origin import Way, unpacked
from ..core.dead_letter_life import QUOTA, RETENTION
from ..core.message import AMQP_ORIGIN
from ..core.settings.units import counted
from ..protocols.amqp091.codec_properties import read_properties
from .amounts import clock, span

PARKED, SUSPECT = 1, 2


class At(Protocol):
    """A time in ms in words; with its date, where that is another one than that of the time beside it."""

    def __call__(self, at_ms: int, /, *, beside_ms: int) -> str: ...


#: How a delivery ended, for people.
ENDINGS: Final = {
    "nack": "the consumer failed it",
    "listener": "the listener raised",
    "recover": "the session recovered",
    "rollback": "the transaction was rolled back",
    "poison": "the consumer called it poison",
    "connection-lost": "the connection was lost while it was held",
    "closed": "its channel or connection was closed in order while it was held",
    "timeout": "the consumer held it too long",
    "error": "the consumer left with an error",
    "expired": "it expired",
    "rejected": "the consumer rejected it",
    "acknowledged": "reported after acknowledgement",
}

#: Why a message was dead-lettered, for people.
REASONS: Final = {
    "delivery_limit": "its attempts are used up",
    "poison": "the consumer called it poison",
    "not-retryable": "it is not to be tried again, says its consumer or a rule",
    "expired": "its time to live ran out",
    "maxlen": "the queue was full",
    "rejected": "it was rejected",
    "deleted": "it was deleted by its number",
    "acknowledged": "it was acknowledged before its failure was reported",
    RETENTION: "it had been a dead letter for longer than they are kept",
    QUOTA: "it was one of too many dead letters of its queue",
}


#: Endings that are no cause: without a fault nobody said why.
_SAYS_NOTHING: Final = ("nack", "rejected", "recover")
#: AMQP's properties that a message is known by.
_PROPERTIES: Final = ("message_id", "correlation_id", "type", "app_id", "content_type", "timestamp")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, or is so now. ``style`` is a colour name; ``details`` are lines of their own."""

    at_ms: int | None
    mark: str
    style: str
    title: str
    details: list[str] = field(default_factory=list)


def life(history: History, now_ms: int, at: At = clock) -> list[Event]:
    """Sent, or made of another by an edit, then entry by entry: entered, each attempt, how it ended or where it is now; and edits of it.

    ``at`` says a time within a text."""
    edits = history.get("edits", [])
    made_by = next((each for each in edits if each["message_id"] == history["message_id"]), None)
    events = [_sent(history) if made_by is None else _made(made_by)]
    hops: dict[int, Fields] = {hop["sequence"]: hop for each in history["references"] for hop in each["hops"]}
    before: Fields = {}
    for sequence in sorted({*entries(history), *hops}):
        attempts = [each for each in history["attempts"] if each["sequence"] == sequence]
        outcome = next((each for each in history["outcomes"] if each["sequence"] == sequence), None)
        reference = next((each for each in history["references"] if each["sequence"] == sequence), None)
        events += _back(before, outcome or reference or hops.get(sequence, {}))
        if attempts or outcome or reference:
            events.append(_entered(sequence, attempts, outcome, reference))
        events += _attempts(attempts, at)
        before = outcome or hops.get(sequence, {})
        if outcome is not None:
            events += [_ended(outcome)] if outcome["outcome"] != "edited" else []
        elif reference is not None:
            events.append(_here(reference, now_ms, at))
        elif before:
            events.append(_died(before))
    for each in edits:
        if each is not made_by:
            later = (at for at, event in enumerate(events) if event.at_ms is None or event.at_ms > each["at_ms"])
            title = f"edited: message {each['message_id']} went to {each['queue']}"
            events.insert(next(later, len(events)), Event(each["at_ms"], "✎", "blue", title))
    return events


def _made(edit: Edited) -> Event:
    return Event(edit["at_ms"], "✎", "blue", f"made of message {edit['original']} by an edit, for queue {edit['queue']}")


def entries(history: History) -> list[int]:
    """The sequences of all entries on record, oldest first."""
    return sorted({each["sequence"] for part in ("attempts", "outcomes", "references") for each in history[part]})


def sent_at_ms(history: History) -> int | None:
    if history["message"]:
        return int(history["message"]["sent_at_ms"])
    return _if_before(next((each["sent_at_ms"] for each in history["outcomes"] if each.get("sent_at_ms")), None), history["attempts"])


def _if_before(at_ms: int | None, attempts: list[Attempt]) -> int | None:
    """A time, if it is not after the first of these attempts: an outcome of tries that are messages of their own has the last one's."""
    return None if at_ms is None or (attempts and at_ms > attempts[0]["at_ms"]) else at_ms


def address_of(history: History) -> str:
    """The address it was first sent to; ``?`` where no record tells."""
    if history["message"]:
        return str(history["message"]["address"])
    known = [each.get("address") for each in history["outcomes"]] + [each.get("original_address") for each in history["attempts"]]
    return next((str(each) for each in known if each), "?")


def _sent(history: History) -> Event:
    details = []
    message = history["message"]
    if message and (said := message.get("properties")):
        properties = dict(said)
        origin = properties.pop(AMQP_ORIGIN, None)
        if isinstance(origin, bytes):
            details.append(_published(*unpacked(origin)))
        if properties:
            details.append("  ".join(f"{name}={value}" for name, value in properties.items()))
    return Event(sent_at_ms(history), "●", "green", f"sent to {address_of(history)}", details)


def _published(way: Way, content_properties: bytes) -> str:
    """Through which exchange it came, and what an AMQP client said of it that has no name of ours."""
    exchange = f"exchange {way.exchange}" if way.exchange else "the default exchange"
    told = f"to {exchange}, routing key {', '.join(way.keys)}"
    if not content_properties:
        return told
    said = read_properties(content_properties)._asdict()
    properties = [f"{name.replace('_', '-')}={said[name]}" for name in _PROPERTIES if said[name] is not None]
    return "  ".join([f"over AMQP {told}", *properties])


def _entered(sequence: int, attempts: list[Attempt], outcome: Outcome | None, reference: Entry | None) -> Event:
    source: Fields = reference or outcome or attempts[0]
    return Event(_if_before(source.get("entered_at_ms"), attempts), "→", "cyan", f"entered queue {source['queue']}", [])


def _back(before: Fields, entry: Fields) -> list[Event]:
    """That it was sent back into this entry, where there is no outcome that says so: of what was not durable then. ``before``: how the
    entry before it ended."""
    if before.get("outcome") == "redriven":
        return []
    if entry.get("redrive"):
        return [Event(entry["entered_at_ms"], "↺", "blue", f"sent back to {entry['queue']}")]
    died_there_twice = "outcome" not in entry and "reason" in entry and before.get("queue") == entry["queue"]
    return [Event(None, "↺", "blue", f"came back to {entry['queue']}")] if died_there_twice else []


def _died(hop: Fields) -> Event:
    """What the message itself tells of a queue that it died in, of which there is no record."""
    tries = f" after {counted(hop['attempts'], 'failed attempt')}" if hop["attempts"] else ""
    return Event(hop["at_ms"], "✝", "red", f"dead-lettered from {hop['queue']}{tries}", [str(REASONS.get(hop["reason"], hop["reason"]))])


def _attempts(attempts: list[Attempt], at: At) -> list[Event]:
    events: list[Event] = []
    expected = 1
    for attempt in attempts:
        left_out = attempt["attempt"] - expected
        if left_out > 0:
            events.append(Event(None, "⋮", "dim", f"{counted(left_out, 'more attempt')}, not kept", []))
        expected = attempt["attempt"] + 1
        events.append(_attempt(attempt, at))
    return events


def _attempt(attempt: Attempt, at: At) -> Event:
    # When what was acknowledged came to it, nobody remembers.
    began = (attempt.get("given_at_ms") or attempt.get("assigned_at_ms")) if attempt["outcome"] != "acknowledged" else None
    held = f", held {span(attempt['at_ms'] - began) if attempt['at_ms'] > began else 'under 1 ms'}" if began else ""
    title = f"{_attempt_number(attempt['attempt'], attempt)} failed: {ENDINGS.get(attempt['outcome'], attempt['outcome'])}{held}"
    details = [*_fault_lines(attempt.get("fault") or {})]
    names = (_named("consumer", attempt.get("consumer")), _named("connection", attempt.get("connection")))
    who = " on ".join(name for name in names if name)
    if who:
        details.append(f"with {who}")
    details.append(_decision(attempt, at))
    return Event(attempt["at_ms"], "✗", "yellow" if attempt["decision"] == "redeliver" else "red", title, details)


def _attempt_number(number: int, record: Fields) -> str:
    """With the delivery that ``receive`` shows, where some were not counted as failures or an earlier entry had its own."""
    delivery = record.get("delivery_count") or number
    return f"attempt {number}" if delivery == number else f"attempt {number} (delivery {delivery})"


def _named(kind: str, name: object) -> str:
    text = str(name or "")
    return text if not text or text.startswith(kind) else f"{kind} {text}"


def _fault_lines(fault: Failure) -> list[str]:
    lines = [": ".join(str(fault[key]) for key in ("error_type", "error_text") if fault.get(key))]
    if fault.get("task"):
        lines.append(f"task: {fault['task']}")
    if fault.get("reason") and fault["reason"] != fault.get("error_text"):
        lines.append(f"reason: {fault['reason']}")
    if fault.get("exit_status") is not None:
        lines.append(f"exit status: {fault['exit_status']}")
    if fault.get("traceback"):
        last = [line.strip() for line in str(fault["traceback"]).splitlines() if line.strip().startswith("File ")]
        lines += last[-1:]
    return [line for line in lines if line]


def _error(error_class: str, text: str) -> str:
    """What a fault is of: an error, or how deliveries ended of which nobody said why."""
    return f"{error_class}: {text}" if text else ENDINGS.get(error_class, error_class)


def _decision(attempt: Attempt, at: At) -> str:
    by = (
        f", by rule {attempt['rule']}"
        if attempt.get("rule")
        else ", by its consumer's own policy"
        if attempt.get("consumer_policy")
        else ""
    )
    if attempt["decision"] == "drop":
        return f"decided: removed{by}"
    if attempt["decision"] == "dead-letter":
        return f"decided: no more attempts{by}"
    if (due_at_ms := attempt.get("due_at_ms")) is None:
        return f"decided: again at once{by}"
    again = at(due_at_ms, beside_ms=attempt["at_ms"])
    return f"decided: wait {span(attempt.get('delay_ms') or 0)}, again at {again}{by}"


def _ended(outcome: Outcome) -> Event:
    kind = outcome["outcome"]
    reason = REASONS.get(str(outcome.get("reason")), outcome.get("reason"))
    to = ", ".join(outcome.get("target_queues") or ())
    details = [str(reason)] if reason else []
    if kind == "succeeded":
        return Event(outcome["at_ms"], "✓", "green", f"succeeded at {_attempt_number(outcome['attempts'] + 1, outcome)}", details)
    if kind in ("redriven", "moved"):
        done = f"sent back to {to or 'its queue'}" if kind == "redriven" else f"moved by hand to {to}"
        return Event(outcome["at_ms"], "↺", "blue", done, details)
    titles = {
        "dead-lettered": f"dead-lettered to {to}",
        "expired": f"expired, moved to {to}" if to else "expired, removed",
        "dropped": _dropped(outcome.get("reason")),
        "purged": "purged by hand",
    }
    return Event(outcome["at_ms"], "✝" if kind == "dead-lettered" else "✗", "red", titles.get(kind, kind), details)


def _dropped(reason: str | None) -> str:
    if reason in (RETENTION, QUOTA):
        return "removed"
    return "removed: there is no dead-letter address" if reason in REASONS else "removed by a rule"


def _here(reference: Entry, now_ms: int, at: At) -> Event:
    event = _place(reference, now_ms, at)
    if not reference.get("transient"):
        return event
    fault = reference["fault"]
    what = [f"fault {fault['fault']}, {_error(fault['error_class'], fault['text'])}"] if fault else []
    tries = [f"{counted(reference['failed'], 'failed attempt')} here so far"] if reference["failed"] else []
    if reference.get("refused"):
        what = [f"what it failed of is told to whoever may {reference['refused']} where it failed"]
    said = "transient: a crash of the broker takes it, and its attempts are counted, not kept"
    return replace(event, details=[*event.details, *tries, *what, said])


def _place(reference: Entry, now_ms: int, at: At) -> Event:
    queue, since = reference["queue"], now_ms - reference["entered_at_ms"]
    if reference["state"] & PARKED:
        why = "kept, not delivered: it has no dead-letter address, or that is missing, full, or its own"
        return Event(None, "‖", "red", f"is parked in {queue}", [why])
    if reference.get("on_hold"):
        return Event(None, "‖", "magenta", f"is on hold in {queue} until it is released", [])
    if reference["due_at_ms"] is not None and reference["due_at_ms"] > now_ms:
        wait = f"in {span(reference['due_at_ms'] - now_ms)}"
        return Event(reference["due_at_ms"], "◷", "magenta", f"is due again {wait}, at {at(reference['due_at_ms'], beside_ms=now_ms)}", [])
    details = ["it was there when several connections ended, so it is delivered alone"] if reference["state"] & SUSPECT else []
    return Event(None, "◌", "cyan", f"is in {queue}, since {span(max(0, since))}", details)


def verdict(history: History) -> str | None:
    """What the last attempts before it was dead-lettered have in common, in one sentence; None when there is nothing to say."""
    dead = [each for each in history["outcomes"] if each["outcome"] == "dead-lettered"]
    if not dead:
        return None
    attempts = [each for each in history["attempts"] if each["sequence"] == dead[-1]["sequence"]]
    if len(attempts) < 2:
        return None
    alike = 1
    while alike < len(attempts) and _kind(attempts[-1 - alike]) == _kind(attempts[-1]):
        alike += 1
    if attempts[-1]["outcome"] in _SAYS_NOTHING and not attempts[-1].get("fault"):
        return "Nobody said why it failed: a reason given with the failure would stand here."
    if alike == 1:
        return "Its last attempts failed in different ways: that looks like its surroundings, not like the message."
    all_of_them = "Both attempts" if alike == 2 else f"All {alike} attempts"
    # It may have been in that queue, or in another one, before.
    of_what = "on record" if len(attempts) == len(history["attempts"]) else f"since it entered queue {dead[-1]['queue']} last"
    which = f"{all_of_them} {of_what}" if alike == len(attempts) else f"Its last {alike} attempts"
    return f"{which} failed alike ({_cause(attempts[-1])}): sent back as things are, it will most likely fail so again."


def _kind(attempt: Attempt) -> str:
    """Equal for attempts that failed alike."""
    return str((attempt.get("fault") or {}).get("fingerprint") or attempt["outcome"])


def _cause(attempt: Attempt) -> str:
    fault = attempt.get("fault") or {}
    if fault.get("error_type"):
        return ": ".join(str(fault[key]) for key in ("error_type", "error_text") if fault.get(key))
    return str(fault.get("reason") or ENDINGS.get(attempt["outcome"], attempt["outcome"]))
