"""What AMQP's consumers are told of a message's deaths: x-death and its kin, together with what came with it, and as much as fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...core.amqp.x_death import Death, deaths
from ...core.message import Hop, overlay
from .codec_tables import Timestamp, join_table, long_value, read_value, split_array, split_table, write_value

X_DEATH: Final = "x-death"
#: How many entries of x-death, the oldest ones, did not fit into the frame.
LEFT_OUT: Final = "x-death-left-out"
#: What is left out then, in turn, where the oldest entries are not enough.
_LESS_AND_LESS: Final = (X_DEATH, "_AMQ_", "x-last-death-", "x-first-death-", LEFT_OUT)
Headers = dict[str, bytes]


def death_headers(hops: list[Hop], message_id: int, expiration: str | None, own: Headers, goes_on: bool) -> Headers:
    """All that is added to ``own``, the headers it was sent with. ``goes_on``: x-death among these is counted on, as RabbitMQ 3 does."""
    entries = deaths(hops)
    first, last = _first(entries), entries[0]
    sent = _sent(own) if goes_on else None
    written = [_entry(death, expiration if death is first else None, sent) for death in entries]
    added = {X_DEATH: _array([*written, *map(_table, sent or ())])}
    for which, death in (("first", first), ("last", last)):
        values = {"queue": death.queue, "reason": death.reason, "exchange": death.exchange}
        added.update({f"x-{which}-death-{name}": write_value(value) for name, value in values.items()})
    if sent is not None:
        # The first death was before it was sent.
        added.update({name: value for name, value in own.items() if name.startswith("x-first-death-")})
    added.update({name: write_value(value) for name, value in overlay(hops, message_id).items() if name.startswith("_AMQ_")})
    return added


def _first(entries: list[Death]) -> Death:
    """Of deaths in one millisecond the one further back in the list came first."""
    return min(reversed(entries), key=lambda death: death.time_ms)


def _sent(own: Headers) -> list[Headers] | None:
    """The entries that it was sent with; None where there are none, or nothing that could be any."""
    raw = own.get(X_DEATH, b"")
    entries = split_array(raw[5:]) if raw[:1] == b"A" else []
    return [split_table(entry[5:]) for entry in entries] if entries and all(entry[:1] == b"F" for entry in entries) else None


def _entry(death: Death, expiration: str | None, sent: list[Headers] | None) -> bytes:
    """One of those that were sent, of the same queue and reason, is taken out of them and counted on."""
    fields = {
        "count": long_value(death.times),
        "reason": write_value(death.reason),
        "queue": write_value(death.queue),
        "time": write_value(Timestamp(death.time_ms // 1000)),
        "exchange": write_value(death.exchange),
        "routing-keys": write_value(death.routing_keys),
    }
    if expiration is not None:
        fields["original-expiration"] = write_value(expiration)
    for number, before in enumerate(sent or ()):
        if all(before.get(name) == fields[name] for name in ("queue", "reason")):
            count = read_value(before.get("count", b"V"), 0, len(before.get("count", b"V")))[0]
            times = count if type(count) is int and 0 <= count < 1 << 62 else 0
            fields = {**before, "count": long_value(times + death.times)}
            assert sent is not None, "it is one of them"
            del sent[number]
            break
    return _table(fields)


def _table(fields: Headers) -> bytes:
    content = join_table(fields)
    return b"F" + len(content).to_bytes(4, "big") + content


def _array(values: Iterable[bytes]) -> bytes:
    content = b"".join(values)
    return b"A" + len(content).to_bytes(4, "big") + content


def as_fits(added: Headers, room: int) -> Headers:
    """As much of what is added as takes so many bytes: the newest entries of x-death, and how many were left out."""
    if _size(added) <= room:
        return added
    entries = split_array(added[X_DEATH][5:])
    number = len(entries)
    kept = {LEFT_OUT: long_value(number), **added}
    size = _size(kept)
    # A program may have sent it with thousands of them.
    while entries and size > room:
        size -= len(entries.pop())
    kept |= {X_DEATH: _array(entries), LEFT_OUT: long_value(number - len(entries))}
    for beginning in _LESS_AND_LESS:
        if _size(kept) > room or (beginning == X_DEATH and not entries):
            kept = {name: value for name, value in kept.items() if not name.startswith(beginning) or name == LEFT_OUT != beginning}
    return kept


def _size(fields: Headers) -> int:
    return len(join_table(fields))
