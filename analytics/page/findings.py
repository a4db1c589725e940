"""The sentences over the charts: what the numbers say, for someone who was never told. Plain functions of collected numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..words import NB, clock, number, plural, share, span, width

Row = Mapping[str, Any]


class Load(NamedTuple):
    """Deliveries that ended within one bin of time."""

    start_s: int
    succeeded_first: int = 0
    succeeded_retry: int = 0
    failed_first: int = 0
    failed_retry: int = 0
    wasted: int = 0
    failed_ms: int = 0

    @classmethod
    def of(cls, start_s: int, row: Any) -> Load:
        return cls(start_s) if row is None else cls(start_s, *(row[name] for name in cls._fields[1:]))

    @property
    def retries(self) -> int:
        return self.succeeded_retry + self.failed_retry

    @property
    def deliveries(self) -> int:
        return self.retries + self.succeeded_first + self.failed_first


def headline(total: Row) -> str:
    over = total["came_home"] + total["given_up"]
    if over == 0:
        return f"{plural(total['sent'], 'message')} sent; none has come to an end yet"
    text = f"{share(total['came_home'], over)} of the messages that came to an end succeeded"
    return f"{text}; {number(total['given_up'])} did not" if total["given_up"] else f"{text}; none was given up"


def removed(number_of: int) -> str:
    """Over archives alone."""
    return f"{plural(number_of, 'dead letter')} that {'was' if number_of == 1 else 'were'} removed"


def balance(total: Row, whole: Row) -> str:
    if whole["wrong_queues"]:
        return (
            f"{plural(whole['wrong_queues'], 'queue does', 'queues do')} not add up: messages sent and moved in differ from what became "
            "of them. See the column “difference”."
        )
    back = f" and {number(total['moved_in'])} that came back" if total["moved_in"] else ""
    return f"All of the {number(total['sent'])} messages sent{back} are accounted for"


def survival(every: Row | None, groups: Sequence[Row]) -> str:
    """``every``, ``groups``: failed, won, half_ms, home, end of all together and of the largest queues and error classes."""
    if every is None:
        return "No message that failed is on record"
    if every["half_ms"] is None:
        text = f"Of the messages that failed, {share(every['won'], every['failed'])} succeeded later"
    else:
        text = f"Half of all messages that failed had succeeded {span(every['half_ms'])} after their first failure"
    hopeless = [row for row in groups if row["won"] == 0 and row["failed"] >= 5]
    if hopeless:
        worst = max(hopeless, key=lambda row: row["failed"])
        return f"{text}; none did of the {number(worst['failed'])} that failed first with {worst['error_class']} in {worst['queue']}"
    return text


def growth(trends: Sequence[Row]) -> str:
    if not trends:
        return "No deaths, so none that grow"
    growing = [row for row in trends if row["verdict"] == "growing"]
    if growing:
        worst = growing[0]
        text = f"{number(worst['early'])} in the first half of the time, {number(worst['late'])} in the second"
        return f"Deaths grow in {plural(len(growing), 'queue')}; most in {worst['queue']}: {text}"
    first = trends[0]
    rate = first["per_day"]
    if first["hours"] < 24:
        return f"Deaths do not grow; most are in {first['queue']}: {number(first['deaths'])} in {span(3_600_000 * first['hours'])}"
    often = f"{number(rate)} a day" if rate >= 1 else f"one in {span(86_400_000 / rate)}"
    return f"Deaths do not grow; most are in {first['queue']}, {often}"


def attempts(later: Mapping[int, int]) -> str:
    """``later``: attempt (2, 3, …) -> messages that succeeded at it."""
    count = sum(later.values())
    if count == 0:
        return "No message that failed has succeeded later"
    second = later.get(2, 0)
    if second == count:
        return f"{plural(count, 'message')} failed at first and then succeeded, each at the second attempt"
    text = f"{plural(count, 'message')} failed at first and then succeeded"
    return f"{text}, {share(second, count)} at the second attempt, the last at attempt {max(later)}"


def times(every: Row | None, queues: Sequence[Row]) -> str:
    if every is None:
        return "No message that failed has succeeded later"
    text = f"Half of the messages that failed at first had succeeded {span(every['p50_ms'])} after being sent"
    slowest = queues[0]
    if len(queues) > 1 and slowest["p90_ms"] > 2 * every["p50_ms"]:
        return f"{text}; slowest is {slowest['queue']}, where one in ten took over {span(slowest['p90_ms'])}"
    return f"{text}; the slowest took {span(every['max_ms'])}"


def why(row: Row) -> str:
    """What made a message leave its queue without success, and to what, in a few words."""
    reasons = {
        "delivery_limit": "attempts used up",
        "poison": "poison",
        "not-retryable": "not retryable, said the consumer",
        "rejected": "rejected",
        "expired": "expired",
        "maxlen": "over length",
    }
    ends = {"dead-lettered": "", "dropped": ", removed", "expired": ""}
    return reasons.get(row["reason"], row["reason"] or "no reason on record") + ends[row["outcome"]]


def deaths(count: int, by_queue: Sequence[Row], kinds: Sequence[Row]) -> str:
    if count == 0:
        return "No message was dead-lettered"
    queue = by_queue[0]
    where = f"all in {queue['queue']}" if queue["deaths"] == count else f"{share(queue['deaths'], count)} of them in {queue['queue']}"
    kind = next((row for row in kinds if row["queue"] == queue["queue"]), kinds[0])
    return f"{plural(count, 'death')}, {where}, there mostly of {kind['error_class']} ({kind['why']})"


def load(points: Sequence[Load], minutes: int) -> str:
    retries, deliveries = sum(p.retries for p in points), sum(p.deliveries for p in points)
    if retries == 0:
        return "No delivery was a retry"
    peak = max(points, key=lambda p: p.retries)
    at = clock(datetime.fromtimestamp(peak.start_s, UTC), points[-1].start_s - points[0].start_s >= 86_400)
    text = f"{share(retries, deliveries)} of all deliveries were retries; most at {at}{NB}UTC, "
    return f"{text}when they were {share(peak.retries, peak.deliveries)} of {number(peak.deliveries)} in {width(minutes)}"


def cost(points: Sequence[Load]) -> str:
    """What failing took: deliveries that came to nothing, and the time of consumers."""
    wasted, held_ms = sum(p.wasted for p in points), sum(p.failed_ms for p in points)
    retries = sum(p.retries for p in points)
    text = f"Consumers spent {span(held_ms)} on deliveries that then failed."
    if wasted == 0:
        return text
    return (
        f"{text} {plural(wasted, 'retry was', 'retries were')} wasted, {share(wasted, retries)} of all: their messages became dead letters."
    )


def failed(rows: Sequence[Row]) -> str:
    if not rows:
        return "No message on record has failed"
    worst = rows[0]
    said = f", last with {worst['last_error_class']}" if worst["last_error_class"] else ""
    return f"The message that failed most failed {plural(worst['failed_attempts'], 'time')}{said}"


def fate(row: Row) -> str:
    """Where a message that failed is now, in a few words."""
    here = {"ready": "waits in", "scheduled": "waits for its next attempt in", "parked": "is parked in"}
    if row["state"] in here:
        return f"{here[row['state']]} {row['queue']}"
    ended = {"succeeded": "succeeded", "redriven": f"sent back from {row['queue']}", "dead-lettered": "dead-lettered and removed"}
    return ended.get(row["outcome"], str(row["outcome"]))
