"""Every figure of every table, reckoned from what the clients know. Nothing here is shared with the product."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from math import ceil
from typing import Any

from tests.truth.account import Account, Between, Failure, QueueEntry

Row = dict[str, Any]
#: key of a row -> what is to stand in it
Rows = dict[tuple[Any, ...], Row]

ENDED = {"succeeded": "succeeded", "dead-lettered": "dead_lettered", "expired": "expired", "dropped": "dropped", "redriven": "moved_out"}
FAILING = ("delivery_limit", "not-retryable", "rejected")


class Within:
    """A number, or a moment, that the clients know within bounds."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __eq__(self, told: object) -> bool:
        if isinstance(told, datetime):
            told = told.timestamp() * 1e6
        return isinstance(told, int | float) and self.low <= told <= self.high

    def __repr__(self) -> str:
        return f"{self.low} to {self.high}"

    __hash__ = None  # type: ignore[assignment]


def first(times: Iterable[Between]) -> Within:
    known = list(times)
    return Within(min(each.low for each in known), min(each.high for each in known))


def last(times: Iterable[Between]) -> Within:
    known = list(times)
    return Within(max(each.low for each in known), max(each.high for each in known))


class Life:
    """One message from its sending on: what it came to in its own queue, and what became of it when it died there."""

    def __init__(self, stays: list[QueueEntry]) -> None:
        self.stays = stays
        self.queue = stays[0].queue
        self.home = [stay for stay in stays if stay.queue == self.queue]
        self.failures = [failure for stay in self.home for failure in stay.failures]
        self.end = self.home[-1]
        self.won = self.end.outcome == "succeeded"
        self.died = self.end.outcome in ("dead-lettered", "dropped")
        self.tries = len(self.failures) + sum(stay.outcome == "succeeded" for stay in self.home)

    def lasted(self, since: Between) -> tuple[float, float]:
        """Milliseconds to its end, or to its last failure."""
        until = self.end.ended if self.end.ended and (self.won or self.died) else self.failures[-1].at
        return (until.low - since.high) / 1000, (until.high - since.low) / 1000

    @property
    def seen(self) -> list[Failure]:
        """The failures at home of which the broker kept a record: of each stay the first tenth of so many, and the last."""
        return [failure for stay in self.home for failure in on_record(stay)]


def on_record(stay: QueueEntry) -> list[Failure]:
    if not stay.failures:
        return []
    most = stay.failures[0].records
    kept = most - most // 10
    return [each for number, each in enumerate(stay.failures) if number < most // 10 or number >= len(stay.failures) - kept]


def by_queue(account: Account) -> dict[str, list[QueueEntry]]:
    found: dict[str, list[QueueEntry]] = defaultdict(list)
    for stay in account.stays:
        found[stay.queue].append(stay)
    return found


def lives(account: Account) -> list[Life]:
    of_message: dict[int, list[QueueEntry]] = defaultdict(list)
    for stay in account.stays:
        of_message[stay.message].append(stay)
    return [Life(stays) for stays in of_message.values()]


def failed_lives(account: Account) -> list[Life]:
    return [life for life in lives(account) if life.failures]


def overview(account: Account) -> Rows:
    rows: Rows = {}
    for queue, stays in by_queue(account).items():
        ended = Counter(ENDED[stay.outcome] for stay in stays if stay.outcome)
        failed = sum(len(stay.failures) for stay in stays)
        row = {name: ended[name] for name in ENDED.values()}
        row |= {"sent": sum(stay.came == "sent" for stay in stays), "moved_in": sum(stay.came != "sent" for stay in stays)}
        row |= {
            "failed": failed,
            "delivered": failed + row["succeeded"],
            "parked": sum(stay.parked for stay in stays),
            "here": sum(stay.outcome is None for stay in stays),
        }
        row["first_try"] = sum(stay.outcome == "succeeded" and not stay.failures for stay in stays)
        own = [life for life in lives(account) if life.queue == queue]
        row |= {"came_home": sum(life.won for life in own), "waiting": sum(life.end.outcome is None for life in own)}
        row["given_up"] = len(own) - row["came_home"] - row["waiting"]
        rows[(queue,)] = row | {"purged": 0, "difference": 0, "succeeded_later": row["succeeded"] - row["first_try"]}
    return rows


def attempts_to_success(account: Account) -> Rows:
    counts = Counter((stay.queue, len(stay.failures) + 1) for stay in account.stays if stay.outcome == "succeeded")
    return {key: {"messages": count} for key, count in counts.items()}


def time_to_success(account: Account) -> Rows:
    groups: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    for life in failed_lives(account):
        if life.won:
            groups[life.queue, None].append(life)
            groups[life.queue, life.seen[0].error if life.seen else "not on record"].append(life)
    rows: Rows = {}
    for key, group in groups.items():
        times = [life.lasted(life.stays[0].entered) for life in group]
        row: Row = {"messages": len(group), "max_attempts": max(life.tries for life in group)}
        row["mean_attempts"] = Within(*(sum(life.tries for life in group) / len(group) + way for way in (-1e-9, 1e-9)))
        for name, part in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("max_ms", 1.0)):
            at = ceil(part * len(group)) - 1
            row[name] = Within(sorted(low for low, _ in times)[at] - 1, sorted(high for _, high in times)[at])
        rows[key] = row
    return rows


def survival_by_attempts(account: Account) -> Rows:
    """Of each queue and error class: what ended at each attempt."""
    groups: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    for life in failed_lives(account):
        if life.seen:
            groups[life.queue, life.seen[0].error].append(life)
            groups[life.queue, None].append(life)
    rows: Rows = {}
    for (queue, error), group in groups.items():
        ends: dict[int, Counter[str]] = defaultdict(Counter)
        for life in group:
            how = "succeeded" if life.won else "died" if life.died else "censored"
            ends[life.tries if life.won else len(life.failures)][how] += 1
        left = len(group)
        alive, home, dead = 1.0, 0.0, 0.0
        for at, counts in sorted(ends.items()):
            home += alive * counts["succeeded"] / left
            dead += alive * counts["died"] / left
            alive = alive * (1 - (counts["succeeded"] + counts["died"]) / left)
            row: Row = {"at_risk": left} | {name: counts[name] for name in ("succeeded", "died", "censored")}
            rows[queue, error, "attempts", at] = row | {"came_home": near(home), "dead": near(dead)}
            left -= sum(counts.values())
    return rows


def near(value: float) -> Within:
    return Within(value - 1e-9, value + 1e-9)


def deaths(account: Account) -> Rows:
    """By queue, outcome, reason and error class."""
    groups: dict[tuple[Any, ...], list[QueueEntry]] = defaultdict(list)
    for stay in account.stays:
        if stay.outcome in ("dead-lettered", "dropped", "expired"):
            kind = stay.reason
            if stay.reason in FAILING and (record := on_record(stay)):
                kind = record[-1].error
            groups[stay.queue, stay.outcome, stay.reason, kind].append(stay)
    rows: Rows = {}
    for key, stays in groups.items():
        remaining = sum(stay.target is not None and lies(account, stay) for stay in stays)
        times = [stay.ended for stay in stays if stay.ended]
        row: Row = {"deaths": len(stays), "remaining": remaining, "age_rank": 0}
        if key[1] != "dropped" or all(stay.failures for stay in stays):  # of what is only counted the minute is known
            row |= {"first_died_at": first(times), "last_died_at": last(times)}
        rows[key] = row
    return rows


def lies(account: Account, death: QueueEntry) -> bool:
    """Whether the copy that died this death is still where it was put."""
    stays = account.of(death.message)
    after = stays[stays.index(death) + 1 :]
    return bool(after) and after[0].outcome is None


def growth(account: Account) -> Rows:
    counts = Counter(stay.queue for stay in account.stays if stay.outcome in ("dead-lettered", "dropped", "expired"))
    return {(queue,): {"deaths": count} for queue, count in counts.items()}


def retry_load(account: Account) -> Rows:
    """Of each queue, its minutes added up: which minute it was, clients know within bounds only."""
    rows: Rows = {}
    for queue, stays in by_queue(account).items():
        failed, tried = sum(len(stay.failures) for stay in stays), sum(bool(stay.failures) for stay in stays)
        won = [stay for stay in stays if stay.outcome == "succeeded"]
        again = sum(bool(stay.failures) for stay in won)
        wasted = sum(len(stay.failures) - 1 for stay in stays if stay.failures and stay.outcome in ("dead-lettered", "dropped"))
        held = [failure for stay in stays for failure in stay.failures]
        longest = sum((failure.at.high - failure.given.low) / 1000 for failure in held)
        row: Row = {"succeeded_first": len(won) - again, "succeeded_retry": again, "failed_first": tried, "failed_retry": failed - tried}
        row |= {"retries": again + failed - tried, "wasted": wasted, "failed_ms": Within(0, longest)}
        if failed or won:
            rows[(queue,)] = row
    return rows


def failed_most(account: Account) -> Rows:
    rows: Rows = {}
    for life in lives(account):
        failures = [failure for stay in life.stays for failure in stay.failures]
        if failures:
            seen = [failure for stay in life.stays for failure in on_record(stay)]
            end = life.stays[-1]
            row: Row = {"failed_attempts": len(failures), "queue": end.queue, "outcome": end.outcome, "address": life.queue}
            if seen:
                row |= {"last_error_class": seen[-1].error, "last_error_text": seen[-1].text}
                row |= {"last_failed_at": Within(*seen[-1].at), "first_failed_at": Within(*seen[0].at)}
            rows[(account.ids[end.message],)] = row
    return rows


def settings_in_force(account: Account) -> Rows:
    """By queue and limit: of messages by the limit that decided their last failure."""
    groups: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    for life in failed_lives(account):
        if life.seen:
            groups[life.queue, life.seen[-1].limit].append(life)
    rows: Rows = {}
    for key, group in groups.items():
        died = [life for life in group if life.died]
        row: Row = {"failed": len(group), "succeeded": sum(life.won for life in group), "died": len(died)}
        row |= {"retries": sum(life.tries - 1 for life in group), "wasted": sum(len(life.failures) - 1 for life in died)}
        if limits := account.limits.get(key[0]):
            row["current"] = limits[-1][0] == key[1]
            # In force from when it was loaded, not from when something failed first; a limit may come twice.
            loads = [at for limit, at in limits if limit == key[1]]
            row["from_at"] = Within(loads[0].low, loads[-1].high)
        rows[key] = row
    return rows


def advice(account: Account) -> Rows:
    groups: dict[tuple[Any, ...], list[Life]] = defaultdict(list)
    for life in failed_lives(account):
        if life.seen:
            groups[life.queue, life.seen[-1].limit, life.seen[0].error].append(life)
    rows: Rows = {}
    for key, group in groups.items():
        died = [life for life in group if life.died and life.end.reason in FAILING]
        row: Row = {"failed": len(group), "succeeded": sum(life.won for life in group), "died": len(died)}
        row |= {"retries": sum(life.tries - 1 for life in group), "wasted": sum(len(life.failures) - 1 for life in died)}
        row["verdicts"] = sum(life.end.reason == "not-retryable" for life in died)
        rows[key] = row
    return rows


def consumers(account: Account) -> Rows:
    deliveries: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    for stay in account.stays:
        for failure in stay.failures:
            deliveries[stay.queue, failure.client] += 1
            failed[stay.queue, failure.client] += 1
        if stay.outcome == "succeeded" and stay.client:
            deliveries[stay.queue, stay.client] += 1
    return {key: {"deliveries": count, "failed": failed[key]} for key, count in deliveries.items()}


def releases(account: Account) -> Rows:
    failed = Counter((stay.queue, failure.error, failure.client) for stay in account.stays for failure in on_record(stay))
    deliveries: Counter[tuple[str, str]] = Counter()
    for stay in account.stays:
        deliveries.update((stay.queue, failure.client) for failure in stay.failures)
        if stay.outcome == "succeeded" and stay.client:
            deliveries[stay.queue, stay.client] += 1
    return {key: {"failed": count, "deliveries": deliveries[key[0], key[2]]} for key, count in failed.items()}


def poison_clusters(account: Account) -> Rows:
    """By error class: the texts of one differ in numbers."""
    attempts: Counter[str] = Counter()
    met: dict[str, set[int]] = defaultdict(set)
    dead: dict[str, set[int]] = defaultdict(set)
    for stay in account.stays:
        seen = on_record(stay)
        for failure in seen:
            attempts[failure.error] += 1
            met[failure.error].add(stay.message)
        if seen and stay.outcome in ("dead-lettered", "dropped") and stay.reason in FAILING:
            dead[seen[-1].error].add(stay.message)
    return {(error,): {"attempts": count, "messages": len(met[error]), "deaths": len(dead[error])} for error, count in attempts.items()}


def flow(account: Account) -> Rows:
    ways: dict[tuple[Any, ...], list[QueueEntry]] = defaultdict(list)
    for stay in account.stays:
        if stay.target is not None:
            ways[stay.queue, stay.target, stay.outcome].append(stay)
    return {
        key: {"messages": len(stays), "circling": 0, "first_at": first(s.ended for s in stays if s.ended)} for key, stays in ways.items()
    }


def journeys(account: Account) -> Rows:
    ways: Counter[tuple[str, int]] = Counter()
    for life in lives(account):
        moves = [stay for stay in life.stays if stay.target]
        if moves:
            way = life.queue + "".join((" ⇒ " if stay.outcome == "redriven" else " → ") + str(stay.target) for stay in moves)
            ways[way, len(moves)] += 1
    return {key: {"messages": count, "circles": False} for key, count in ways.items()}


def what_if(account: Account) -> Rows:
    """Of queue entries of which any attempt is on record: the figures of what was, and of what the policies in force predict."""
    rows: Rows = {}
    for queue, stays in by_queue(account).items():
        failed = [stay for stay in stays if on_record(stay)]
        won = [stay for stay in failed if stay.outcome == "succeeded" and stay.ended]
        figures: dict[str, Any] = {"deliveries": sum(len(stay.failures) for stay in failed) + len(won), "succeeded": len(won)}
        figures["dead_letters"] = sum(stay.outcome in ("dead-lettered", "dropped") or stay.parked for stay in failed)
        if won:
            spans = [(stay.ended, account.of(stay.message)[0].entered) for stay in won if stay.ended]
            low, high = (sum(each) / len(won) / 1000 for each in zip(*((e.low - s.high, e.high - s.low) for e, s in spans), strict=True))
            figures["time_to_success_ms"] = Within(low, high)
        rows |= {
            (queue, name): {"recorded": value, "expected": value, "low": value, "high": value} for name, value in figures.items() if failed
        }
    return rows


#: table -> (the columns that name a row, how its rows are reckoned, what is added up where rows are finer)
TABLES: dict[str, tuple[tuple[str, ...], Callable[[Account], Rows]]] = {
    "overview": (("queue",), overview),
    "attempts_to_success": (("queue", "attempts"), attempts_to_success),
    "time_to_success": (("queue", "error_class"), time_to_success),
    "survival": (("queue", "error_class", "by", "at"), survival_by_attempts),
    "dead_letters": (("queue", "outcome", "reason", "error_class"), deaths),
    "dead_letter_growth": (("queue",), growth),
    "retry_load": (("queue",), retry_load),
    "failed_most": (("message_id",), failed_most),
    "settings_in_force": (("queue", "max_delivery_attempts"), settings_in_force),
    "advice": (("queue", "max_delivery_attempts", "error_class"), advice),
    "consumers": (("queue", "client_id"), consumers),
    "releases": (("queue", "error_class", "client_id"), releases),
    "poison_clusters": (("error_class",), poison_clusters),
    "flow": (("source", "target", "why"), flow),
    "journeys": (("way", "hops"), journeys),
    "what_if": (("queue", "figure"), what_if),
}
#: Figures that are told beside the expected ones: when exactly each attempt was made the clients do not know.
BESIDE = {"peak_per_s", "out_of_order"}
#: Tables whose rows the clients know only added up.
ADDED_UP = {"retry_load", "dead_letter_growth", "poison_clusters", "consumers"}


def told(table: str, key: tuple[str, ...], rows: list[Row]) -> Rows:
    found: Rows = {}
    for row in rows:
        name = tuple(row[column] for column in key)
        if table in ADDED_UP and name in found:
            before = found[name]
            row = row | {column: before[column] + value for column, value in row.items() if type(value) is int}
        found[name] = row
    return found


def differences(account: Account, broker_id: str, tables: dict[str, list[Row]]) -> list[str]:
    """What the report tells otherwise than the clients know it, a line each."""
    wrong = []
    for table, (key, reckon) in TABLES.items():
        expected = reckon(account)
        found = told(
            table,
            key,
            [row for row in tables[table] if row["broker_id"] == broker_id and row.get("by") != "time" and row.get("figure") not in BESIDE],
        )
        # Of all brokers together only the worst are told.
        limited = table == "failed_most"
        wrong += [f"{table} {row}: {found[row]} is too much" for row in found.keys() - expected.keys()]
        for row, figures in expected.items():
            if row in found:
                wrong += [
                    f"{table} {row}: {name} is {found[row][name]}, not {true}" for name, true in figures.items() if found[row][name] != true
                ]
            elif not limited:
                wrong.append(f"{table} {row}: {figures} is missing")
    return wrong
