"""Every figure of every table, reckoned from what the clients know. Nothing here is shared with the product."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.truth import broker_faults
from tests.truth.account import Account, QueueEntry
from tests.truth.blame import died_in_outage, outages, releases, seen_when
from tests.truth.bounds import HOUR_US, OPEN, SECOND_US, Counts, Within, decided, first, last, near, ranked, ratio
from tests.truth.lives import BY_HAND, DEAD, FAILING, MEANT, Life, Row, Rows, by_queue, failed_lives, lies, lives, on_record
from tests.truth.over_time import (
    Maybe,
    consumers,
    counted_only,
    died_at,
    due_error,
    growth,
    recent_load,
    retry_load,
    retry_storms,
    thundering_herds,
    trend,
)
from tests.truth.second_opinion import incidence

ENDED = {"succeeded": "succeeded", "dead-lettered": "dead_lettered", "expired": "expired", "dropped": "dropped", "lost": "lost"}
ENDED |= dict.fromkeys(BY_HAND, "moved_out") | {"rejected": "dead_lettered"}


def overview(account: Account) -> Rows:
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        # Counts by the minute do not know what only waits.
        told = (entry.reason if entry.outcome == "delayed" else entry.outcome for entry in entries if entry.outcome)
        ended = Counter(ENDED[str(outcome)] for outcome in told)
        failed = sum(len(entry.recent) for entry in entries)
        row: Row = {name: ended[name] for name in ENDED.values()}
        came = Counter(entry.came for entry in entries if not entry.came_before)
        row |= {"sent": came["sent"], "moved_in": came["moved"], "here_before": sum(entry.came_before for entry in entries)}
        row |= {"failed": failed, "delivered": failed + row["succeeded"], "here": sum(entry.outcome is None for entry in entries)}
        row |= {"parked": sum(entry.parked for entry in entries), "scheduled": sum(entry.waits for entry in entries)}
        row["ready"] = row["here"] - row["parked"] - row["scheduled"]
        if any(entry.untold for entry in entries):
            row |= dict.fromkeys(("ready", "scheduled", "parked"), OPEN)
        row["first_try"] = sum(entry.outcome == "succeeded" and not entry.failures for entry in entries)
        own = [life for life in lives(account) if life.queue == queue and life.home]
        row |= {"came_home": sum(life.won for life in own), "waiting": sum(life.end.outcome in (None, "delayed") for life in own)}
        row["given_up"] = len(own) - row["came_home"] - row["waiting"]
        row["at_once"] = sum(life.won and not life.failures for life in own)
        row |= {
            "died": sum(life.end.outcome == "dead-lettered" for life in own),
            "ran_out": sum(life.end.outcome == "expired" for life in own),
        }
        row["success_share"] = ratio(row["succeeded"], sum(ended.values()) - row["moved_out"] - row["lost"])
        passing = [entry for entry in entries if entry.message in account.passing]
        row["transient_sent"] = sum(entry.came == "sent" and not entry.came_before for entry in passing)
        rows[queue,] = row | {"purged": 0, "difference": 0, "succeeded_later": row["succeeded"] - row["first_try"]}
    return rows


def attempts_to_success(account: Account) -> Rows:
    counts = Counter((entry.queue, len(entry.failures) + 1) for entry in account.entries if entry.outcome == "succeeded")
    rows: Rows = {}
    for (queue, attempts), count in counts.items():
        of_queue = {at: number for (name, at), number in counts.items() if name == queue}
        total, so_far = sum(of_queue.values()), sum(number for at, number in of_queue.items() if at <= attempts)
        rows[queue, attempts] = {"messages": count, "share": ratio(count, total), "cumulative_share": ratio(so_far, total)}
    return rows


def groups_of(found: list[Life]) -> dict[tuple[str | None, str | None], list[Life]]:
    """By queue and class of the first error, by queue, and all of them."""
    groups: dict[tuple[str | None, str | None], list[Life]] = defaultdict(list)
    for life in found:
        for key in ((life.queue, life.error), (life.queue, None), (None, None)):
            groups[key].append(life)
    return groups


def time_to_success(account: Account) -> Rows:
    rows: Rows = {}
    for key, group in groups_of([life for life in failed_lives(account) if life.won]).items():
        times = [life.lasted(life.home[0].sent) for life in group]
        row: Row = {"messages": len(group), "max_attempts": max(life.tries for life in group)}
        row["mean_attempts"] = ratio(sum(life.tries for life in group), len(group))
        row |= {name: ranked(times, part) for name, part in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("max_ms", 1.0))}
        row["mean_ms"] = Within(*(sum(each[way] for each in times) / len(times) + slack for way, slack in ((0, -1), (1, 0))))
        rows[key] = row
    return rows


def ends_of(life: Life) -> str:
    return "succeeded" if life.won else "died" if life.died else "censored"


def survival(account: Account) -> Rows:
    """By attempts; by time the clients know the ends within bounds only: over_time_of."""
    rows: Rows = {}
    for (queue, error), group in groups_of([life for life in failed_lives(account) if life.seen]).items():
        ends: dict[float, Counter[str]] = defaultdict(Counter)
        for life in group:
            ends[life.tries if life.won else len(life.failures)][ends_of(life)] += 1
        names = ("succeeded", "died", "censored")
        curve = incidence({at: (counts["succeeded"], counts["died"], counts["censored"]) for at, counts in ends.items()})
        for at, (left, home, dead) in curve.items():
            row: Row = {name: ends[at][name] for name in names} | {"rounded": False, "at_risk": left}
            rows[queue, error, "attempts", at] = row | {"came_home": near(home), "dead": near(dead)}
    return rows


def kind_of(entry: QueueEntry) -> str | None:
    """What it died of: the last error where failing was the reason."""
    record = on_record(entry)
    return record[-1].error if entry.reason in FAILING and record else entry.reason


def deaths(account: Account) -> Rows:
    groups: dict[tuple[Any, ...], list[QueueEntry]] = defaultdict(list)
    for entry in account.entries:
        if entry.outcome in (*DEAD, "expired"):
            groups[entry.queue, entry.outcome, entry.reason, kind_of(entry), age_rank(account, entry)].append(entry)
    rows: Rows = {}
    for key, entries in groups.items():
        row: Row = {"deaths": len(entries), "remaining": remaining(account, key[1], entries), "age": AGES[key[4]][0]}
        rows[key] = row | died_when(entries)
    return rows


AGES = (("under 1 hour", "under_hour"), ("1 to 24 hours", "under_day"))


def age_rank(account: Account, entry: QueueEntry) -> int:
    """No workload takes a day, and none has a death close to an hour before its end."""
    return int(account.exported_us - died_at(entry).low >= HOUR_US)


def died_when(entries: list[QueueEntry]) -> Row:
    times = [died_at(entry) for entry in entries]
    return {"first_died_at": first(times), "last_died_at": last(times)}


def remaining(account: Account, outcome: str, entries: list[QueueEntry]) -> int:
    """What expired is no dead letter, wherever it lies."""
    return sum(outcome == "dead-lettered" and entry.target is not None and lies(account, entry) for entry in entries)


def dead_letter_groups(account: Account) -> Rows:
    """By where they lie, died and came from, by reason and by fault, which is told by the first of its texts in the alphabet."""
    texts = texts_of(account)
    groups: dict[tuple[Any, ...], list[QueueEntry]] = defaultdict(list)
    for entry in account.entries:
        if entry.outcome in (*DEAD, "expired"):
            record = on_record(entry) if entry.reason in FAILING else []
            fault = texts.get(record[-1].error) if record and record[-1].text is not None else None
            source = None if counted_only(entry) else account.homes[entry.message]
            groups[entry.target, entry.queue, source, entry.reason, kind_of(entry), fault].append(entry)
    rows: Rows = {}
    for key, entries in groups.items():
        ages = Counter(age_rank(account, entry) for entry in entries)
        row: Row = {"deaths": len(entries), "under_week": 0, "older": 0} | {name: ages[rank] for rank, (_, name) in enumerate(AGES)}
        row["remaining"] = sum(remaining(account, str(entry.outcome), [entry]) for entry in entries)
        rows[key] = row | died_when(entries)
    return rows


def texts_of(account: Account) -> dict[str, str]:
    """Error class -> the first of its texts: those of one class differ in numbers only."""
    found: dict[str, str] = {}
    for failure in (each for entry in account.entries for each in on_record(entry)):
        if failure.text is not None:
            found[failure.error] = min(failure.text, found.get(failure.error, failure.text))
    return found


_ANY_FAILED = dict.fromkeys(
    (
        *("failed_attempts", "queue", "outcome", "address", "state", "failed_in", "last_error_class", "last_error_text"),
        *("last_failed_at", "first_failed_at", "amqp_message_id", "app_id"),
    ),
    OPEN,
)


def failed_most(account: Account) -> Rows:
    rows: Rows = {}
    for life in lives(account):
        failures = [failure for entry in life.entries for failure in entry.failures]
        if any(entry.untold for entry in life.entries):
            rows[account.ids[life.entries[-1].message],] = Maybe(_ANY_FAILED)
        elif failures:
            seen = [(entry.queue, failure) for entry in life.entries for failure in on_record(entry)]
            end = life.entries[-1]
            row: Row = {"failed_attempts": len(failures), "queue": end.queue, "outcome": end.outcome, "address": life.queue}
            row["state"] = "settled" if end.outcome else "parked" if end.parked else "scheduled" if end.waits else "ready"
            row |= dict.fromkeys(("failed_in", "last_error_class", "last_error_text", "last_failed_at", "first_failed_at"))
            row |= dict.fromkeys(("amqp_message_id", "app_id"))  # nobody gave them any
            if seen:
                failed_in, latest = seen[-1]
                row |= {"failed_in": failed_in, "last_error_class": latest.error, "last_error_text": latest.text}
                row |= {"last_failed_at": Within(*latest.at), "first_failed_at": Within(*seen[0][1].at)}
            rows[account.ids[end.message],] = row
    return rows


def of_group(group: list[Life]) -> Row:
    """Of messages under one policy."""
    died = [life for life in group if life.died]
    row: Row = {"failed": len(group), "succeeded": sum(life.won for life in group), "died": len(died)}
    row |= {"retries": sum(life.tries - 1 for life in group), "wasted": sum(len(life.failures) - 1 for life in died)}
    row["within_ms"] = ranked([life.took for life in group if life.won], 0.93)
    return row | {"gives_up_ms": ranked([life.took for life in died], 0.5)}


def settings_of(account: Account, queue: str, rule: str | None, limit: int) -> Row:
    """No pattern tells what holds for a queue that was declared with its own. Rules are the same all the time."""
    loads, delay_ms = account.limits.get(queue, []), 15 if rule == "busy" else account.delays[queue]
    row: Row = {"redelivery_delay_ms": delay_ms, "redelivery_delay_multiplier": 1.0, "max_redelivery_delay_ms": None}
    return row | {"pattern": queue if loads else None, "current": not loads or rule is not None or loads[-1][0] == limit}


def decided_by(life: Life) -> tuple[str, str | None, int]:
    """Its queue, and the rule and the limit that decided its last failure."""
    latest = life.seen[-1]
    return life.queue, latest.rule, latest.limit


def settings_in_force(account: Account) -> Rows:
    """By queue and limit: of messages by the limit that decided their last failure."""
    groups: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    for life in failed_lives(account):
        if life.seen:
            groups[decided_by(life)].append(life)
    rows: Rows = {}
    for (queue, rule, limit), group in groups.items():
        row = of_group(group) | settings_of(account, queue, rule, limit)
        row["died_share"] = ratio(row["died"], row["died"] + row["succeeded"])
        decided_here = [each for entry in by_queue(account)[queue] for each in on_record(entry) if (each.rule, each.limit) == (rule, limit)]
        row["until"] = last(each.at for each in decided_here)
        # In force from when it was loaded, not from when something failed first; a limit may come twice.
        loads = [at for each, at in account.limits.get(queue, []) if each == limit or rule is not None]
        row["from_at"] = Within(loads[0].low, loads[-1].high) if loads else first(each.at for each in decided_here)
        rows[queue, rule, limit] = row | {"verdict": "first"}
    for queue in account.limits:
        limits = [limit for limit, _ in account.limits[queue] if (queue, None, limit) in rows]
        own = [(rows[queue, None, limit], groups[queue, None, limit]) for limit in dict.fromkeys(limits)]
        if own:
            own[0][0]["verdict"] = "first" if len(set(limits)) == len(limits) else OPEN
        for (before, _), (after, _) in pairwise(own):
            after["verdict"] = _changed(before, after) if len(set(limits)) == len(limits) else OPEN
    return rows


def _changed(before: Row, after: Row) -> str:
    """Two shares that differ by more than three standard errors."""
    (d1, n1), (d2, n2) = ((row["died"], row["died"] + row["succeeded"]) for row in (before, after))
    if not n1 or not n2:
        return "same"
    pooled = (d1 + d2 + 1) / (n1 + n2 + 2)
    error, change = (pooled * (1 - pooled) * (1 / n1 + 1 / n2)) ** 0.5, d2 / n2 - d1 / n1
    return "worse" if change > 3 * error else "better" if change < -3 * error else "same"


def advice(account: Account) -> Rows:
    groups: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    of_policy: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    for life in failed_lives(account):
        if life.seen:
            groups[(*decided_by(life), life.seen[0].error)].append(life)
            of_policy[decided_by(life)].append(life)
    rows: Rows = {}
    for (queue, rule, limit, error), group in groups.items():
        failing = [life for life in group if life.died and life.end.reason in FAILING]
        won = [life for life in group if life.won]
        row = of_group(group) | settings_of(account, queue, rule, limit) | {"died": len(failing)}
        row["gives_up_ms"] = ranked([life.took for life in failing], 0.5)
        row["wasted"] = sum(len(life.failures) - 1 for life in failing)
        row["verdicts"] = sum(life.end.reason == "not-retryable" for life in failing)
        row["died_otherwise"] = sum((life.died and life not in failing) or life.end.outcome == "expired" for life in group)
        at_limit = [life.tries for life in of_policy[queue, rule, limit] if life.died and life.end.reason == "delivery_limit"]
        row["most_attempts"] = most = max(at_limit or [life.tries for life in of_policy[queue, rule, limit]])
        row["last_two"] = sum(life.tries >= most - 1 and most > 2 for life in won)
        half = row["gives_up_ms"]
        late = (
            [0, 0]
            if half is None
            else [sum(life.took[0] - 1 > half.high / 2 for life in won), sum(life.took[1] > half.low / 2 for life in won)]
        )
        row["late_wins"] = late[0] if late[0] == late[1] else Within(*late)
        row["kind"] = decided(*(_kind(row, each) for each in late))
        # Modelled: the clients know only when it is not told at all.
        row["needs_ms"] = OPEN if row["kind"] in ("longer",) or row["kind"] is OPEN else None
        row |= {"first_at": first(life.seen[0].at for life in group), "last_at": last(life.seen[-1].at for life in group)}
        rows[queue, rule, limit, error] = row
    return rows


def _kind(row: Row, late_wins: int) -> Any:
    failed, won, died = row["failed"], row["succeeded"], row["died"]
    if failed < 20:
        return "too-few"
    if won <= 0.02 * failed and row["wasted"] and 2 * row["verdicts"] < died:
        return "not-retryable"
    if won and ((row["last_two"] >= 0.1 * won and died) or (late_wins >= 0.1 * won and died >= 0.05 * failed)):
        return "longer"
    return "room" if row["died_otherwise"] >= 0.05 * failed else "fine"


def poison_clusters(account: Account) -> Rows:
    """By queue and error class: the texts of one differ in numbers."""
    rows: Rows = {}
    own = {(life.queue, life.end.message): life for life in lives(account)}
    removed = {entry.message for entry in account.entries if entry.outcome == "dropped"}
    for error, example in texts_of(account).items():
        for queue, entries in by_queue(account).items():
            seen = [(entry, failure) for entry in entries for failure in on_record(entry) if failure.error == error]
            if not seen:
                continue
            row: Row = {"example": example, "texts": 1, "fingerprints": 1, "attempts": broker_faults.attempts(account, (queue, error))}
            row |= {"messages": len({entry.message for entry, _ in seen}), "seen": seen_when(account, queue, [each.at for _, each in seen])}
            row |= {"first_at": first(failure.at for _, failure in seen), "last_at": last(failure.at for _, failure in seen)}
            rows[queue, error] = row | _died_of(account, queue, [entry for entry in entries if _killed_by(entry, error)], own, removed, row)
    return rows


def _killed_by(entry: QueueEntry, error: str) -> bool:
    return entry.outcome in DEAD and entry.reason in FAILING and bool(record := on_record(entry)) and record[-1].error == error


def _died_of(account: Account, queue: str, dead: list[QueueEntry], own: Mapping[tuple[str, int], Life], removed: set[int], met: Row) -> Row:
    of_message: dict[int, list[QueueEntry]] = defaultdict(list)
    for entry in dead:
        of_message[entry.message].append(entry)
    won = {message for message in of_message if (life := own.get((queue, message))) is not None and life.won}
    here = {message for message, deaths in of_message.items() if any(remaining(account, str(each.outcome), [each]) for each in deaths)}
    lost = {message for message in of_message if message in removed and message not in won | here}
    dying, unsaved = len(of_message), len(of_message) - len(won)
    times = [[died_in_outage(account, queue, died_at(each)) for each in deaths] for deaths in of_message.values()]
    sure = sum(any(each is True for each in deaths) for deaths in times)
    down: Any = OPEN if any(each is OPEN for deaths in times for each in deaths) else 2 * sure >= dying
    deadly = unsaved >= 5 and 2 * unsaved >= met["messages"]
    row: Row = {"deaths": dying, "here": len(here), "lost": len(lost), "succeeded": len(won)}
    return row | {"poison": deadly and (down if down is OPEN else not down), "outage": dying > 0 and down}


def flow(account: Account) -> Rows:
    ways: dict[tuple[Any, ...], list[tuple[QueueEntry, bool]]] = defaultdict(list)
    for life in lives(account):
        before: set[tuple[str, str]] = set()
        for entry in life.entries:
            if entry.target is not None:
                meant, way = entry.outcome in MEANT, (entry.queue, entry.target)
                ways[entry.queue, entry.target, entry.outcome].append((entry, way in before and not meant))
                before = set() if meant else before | {way}
    rows: Rows = {}
    for key, moves in ways.items():
        times = [entry.ended for entry, _ in moves if entry.ended]
        row: Row = {"messages": len(moves), "circling": sum(again for _, again in moves)}
        rows[key] = row | {"first_at": first(times), "last_at": last(times)}
    return rows


def journeys(account: Account) -> Rows:
    ways: Counter[tuple[str, int, bool]] = Counter()
    for life in lives(account):
        moves = [entry for entry in life.entries if entry.target]
        if moves:
            way = moves[0].queue + "".join((" ⇒ " if entry.outcome in MEANT else " → ") + str(entry.target) for entry in moves)
            ways[way, len(moves), _circles(moves)] += 1
    return {(way, hops): {"messages": count, "circles": circles} for (way, hops, circles), count in ways.items()}


def _circles(moves: list[QueueEntry]) -> bool:
    """Whether they come to a queue again that they had left, with nobody sending them back since."""
    left: set[str] = set()
    for entry in moves:
        left = set() if entry.outcome in MEANT else left | {entry.queue}
        if entry.target in left:
            return True
    return False


def what_if(account: Account) -> Rows:
    """Of queue entries of which any attempt is on record: the figures of what was, and of what the policies in force predict."""
    rows: Rows = {}
    for queue, entries in by_queue(account).items():
        failed = [entry for entry in entries if on_record(entry)]
        won = [entry for entry in failed if entry.outcome == "succeeded" and entry.ended]
        figures: Row = {"deliveries": sum(len(entry.failures) for entry in failed) + len(won), "succeeded": len(won)}
        figures["dead_letters"] = sum(entry.outcome in DEAD or entry.parked for entry in failed)
        if won:
            spans = [(entry.ended, entry.sent) for entry in won if entry.ended]
            low, high = (sum(each) / len(won) / 1000 for each in zip(*((e.low - s.high, e.high - s.low) for e, s in spans), strict=True))
            figures["time_to_success_ms"] = Within(low, high)
        tried_again = any(len(entry.failures) + (entry.outcome == "succeeded") > 1 for entry in failed)
        observed = near(1.0) if tried_again else None
        if failed:
            figures["peak_per_s"] = _peak(failed)
            for name, value in figures.items():
                rows[queue, name] = dict.fromkeys(("recorded", "expected", "low", "high"), value) | {"observed_share": observed}
            overtaken = _overtaken(entries)
            rows[queue, "out_of_order"] = dict.fromkeys(("recorded", "expected", "low", "high"), overtaken) | {"observed_share": OPEN}
    return rows


def _peak(failed: list[QueueEntry]) -> Any:
    """Most retries that ended in one second; where attempts have no record, the report takes them to lie evenly."""
    if any(len(on_record(entry)) < len(entry.failures) for entry in failed):
        return OPEN
    retries = Counts(SECOND_US)
    for entry in failed:
        for failure in entry.failures[1:]:
            retries.add("retries", failure.at)
        if entry.outcome == "succeeded" and entry.ended:
            retries.add("retries", entry.ended)
    seconds = retries.parts()
    return Within(max((retries.least(each) for each in seconds), default=0), max((retries.most(each) for each in seconds), default=0))


def _overtaken(entries: list[QueueEntry]) -> Within:
    """Neighbours in the order in which they came, of those on record, one of which failed, and the later one succeeded first. What came
    from another queue is on record where it succeeded at once, too.
    """
    known = [
        entry for entry in entries if on_record(entry) or (entry.came == "moved" and entry.outcome == "succeeded" and not entry.failures)
    ]
    if any(one.entered == other.entered and one.came == "moved" for one, other in pairwise(known)):
        return Within(0, len(known))  # of those that came together clients do not know which came first
    pairs = [(one, other) for one, other in pairwise(known) if one.failures or other.failures]
    ends = [(one.ended, other.ended) for one, other in pairs if one.outcome == other.outcome == "succeeded" and one.ended and other.ended]
    return Within(sum(other.high < one.low for one, other in ends), sum(other.low < one.high for one, other in ends))


class Table(NamedTuple):
    #: the columns that name a row
    key: tuple[str, ...]
    reckon: Callable[[Account], Rows]
    #: columns that clients cannot know, and why
    unknown: Mapping[str, str] = MappingProxyType({})


_NUMBER = {"cluster": "a number that the report gives"}
_POLICY = {"policy": "a number that the broker gives", "settings_json": "the policy's other settings, which the journal's tests look at"}
_FAULT = _NUMBER | dict.fromkeys(("fingerprint", "command"), "a number that the broker gives")
_JOB = dict.fromkeys(("redrive", "redrive_state", "redrive_why"), "whether what is sent back at once is a job is the broker's affair")
_CONSUMER = {"consumer": "a number that the broker gives"}
TABLES: dict[str, Table] = {
    "overview": Table(("queue",), overview),
    "attempts_to_success": Table(("queue", "attempts"), attempts_to_success),
    "time_to_success": Table(("queue", "error_class"), time_to_success),
    "survival": Table(("queue", "error_class", "by", "at"), survival),
    "dead_letters": Table(("queue", "outcome", "reason", "error_class", "age_rank"), deaths),
    "dead_letter_groups": Table(("dead_letter_queue", "queue", "source", "reason", "error_class", "fault"), dead_letter_groups, _NUMBER),
    "dead_letter_growth": Table(("queue", "hour"), growth),
    "dead_letter_trend": Table(("queue",), trend),
    "retry_load": Table(("queue", "minute"), retry_load),
    "recent_load": Table(("second",), recent_load),
    "retry_storms": Table(("queue", "from_at"), retry_storms),
    "thundering_herds": Table(("queue", "second"), thundering_herds),
    "outages": Table(("queue", "error_class", "turn"), outages),
    "failed_most": Table(("message_id",), failed_most),
    "settings_in_force": Table(("queue", "rule", "max_delivery_attempts"), settings_in_force, _POLICY),
    "advice": Table(("queue", "rule", "max_delivery_attempts", "error_class"), advice, _POLICY),
    "consumers": Table(("queue", "client_id", "version"), consumers, _CONSUMER),
    "releases": Table(("queue", "error_class", "kind", "name"), releases),
    "due_error": Table(("queue",), due_error),
    "poison_clusters": Table(("queue", "error_class"), poison_clusters, _NUMBER),
    "faults": Table(("queue", "error_class"), broker_faults.faults, _FAULT),
    "redrive_yield": Table(("dead_letter_queue", "queue", "error_class"), broker_faults.redrive_yield, _FAULT | _JOB),
    "flow": Table(("source", "target", "why"), flow),
    "journeys": Table(("way", "hops"), journeys),
    "what_if": Table(("queue", "figure"), what_if),
}
#: Of all brokers together only so many of these are told, the worst.
LIMITED = {"failed_most": 50, "retry_storms": 200, "thundering_herds": 200, "outages": 200, "dead_letter_groups": 1_000, "journeys": 1_000}
#: What is told of all brokers together has no broker, or no queue.
WHOLE = {"time_to_success", "survival", "recent_load"}
