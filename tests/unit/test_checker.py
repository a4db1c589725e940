"""The referee of the kill loop, by histories made by hand: each fault is found as what it is, and what is allowed is not a fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kill_loop.accounting import Account, Range
from tests.faults.kill_loop.checker import Kind, Rules, check, ghosts, recovered
from tests.faults.kill_loop.events import ClientLog, Entry, Event, Snapshot, read_logs
from tests.faults.kill_loop.history import History

RULES = Rules(max_attempts=3)
QUEUE, DEAD = "work.0", "DLQ.work.0"


class Story:
    """Events at one a millisecond, unless told otherwise; ``at`` sets the clock."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.snapshots: list[Snapshot] = []
        self.t = 0.0

    def at(self, t: float) -> Story:
        self.t = t
        return self

    def add(self, event: str, **fields: Any) -> Story:
        self.t += 1
        self.events.append({"t": self.t, "w": self.t + 1e12, "c": "someone", "e": event, **fields})
        return self

    def sent(self, key: str = "k", outcome: str = "ok", **fields: Any) -> Story:
        self.add("send", key=key, queue=QUEUE, **fields)
        return self if outcome == "unknown" else self.add("sent", key=key, outcome=outcome)

    def delivered(self, count: int = 1, key: str = "k", number: int = 1, queue: str = QUEUE) -> Story:
        return self.add("deliver", key=key, id=number, queue=queue, count=count, mode="INDIVIDUAL")

    def acked(self, outcome: str | None = "ok", number: int = 1, queue: str = QUEUE, **fields: Any) -> Story:
        self.add("ack", id=number, queue=queue, **fields)
        return self if outcome is None else self.add("acked", id=number, queue=queue, outcome=outcome)

    def failed(self, count: int = 1, outcome: str | None = None, delay_ms: int = 0, how: str = "nack", number: int = 1) -> Story:
        self.add("fail", id=number, queue=QUEUE, count=count, delay_ms=delay_ms, how=how)
        return self if outcome is None else self.add("failed", id=number, queue=QUEUE, count=count, outcome=outcome)

    def committed(self, tx: str, outcome: str) -> Story:
        self.add("commit", tx=tx)
        return self if outcome == "unknown" else self.add("committed", tx=tx, outcome=outcome)

    def edited(self, outcome: str, ttl_ms: int = 0) -> Story:
        """Message 1, by one with the key "copy"."""
        self.add("send", key="copy", queue=QUEUE, tx="t", of=1, ttl_ms=ttl_ms).add("ack", id=1, queue=QUEUE, tx="t", edit=True, key="k")
        return self.committed("t", outcome)

    def retried(self, way: str, outcome: str = "ok", delay_ms: int = 0, cut: bool = False) -> Story:
        name = f"retry {len(self.events)}"
        self.add("retry", retry=name, queue=QUEUE, ids=[1], way=way, delay_ms=delay_ms)
        return self.add("retried", retry=name, outcome=outcome, cut=cut)

    def killed(self, *entries: Entry, problems: tuple[str, ...] = (), **more: Any) -> Story:
        self.t += 1
        self.snapshots.append(Snapshot(f"kill {len(self.snapshots) + 1}", self.t, list(entries), list(problems), **more))
        return self

    def stopped(self, *entries: Entry) -> Story:
        return self.killed(*entries, orderly=True)

    @property
    def history(self) -> History:
        return History(self.events, self.snapshots)

    def kinds(self, rules: Rules = RULES) -> list[Kind]:
        return [violation.kind for violation in check(self.history, self.snapshots, rules)]


def here(count: int = 0, key: str = "k", number: int = 1, queue: str = QUEUE) -> Entry:
    return Entry(queue, number, key, count)


# -- what is allowed -------------------------------------------------------------------------------------------------

ALLOWED: dict[str, Callable[[Story], Story]] = {
    "sent, delivered, acknowledged": lambda story: story.sent().delivered().acked().killed(),
    "still there": lambda story: story.sent().killed(here()),
    "confirmed after the kill": lambda story: story.add("send", key="k", queue=QUEUE).killed().add("sent", key="k", outcome="ok"),
    "not durable, kept since it failed, and sent again by who was told nothing before the kill": lambda story: (
        story.add("send", key="k", queue=QUEUE, durable=False)
        .delivered()
        .failed()
        .killed(here(1))
        .add("sent", key="k", outcome="ok")
        .delivered(2)
        .acked()
        .delivered(number=2)
        .acked(number=2)
        .killed()
    ),
    "unknown and gone": lambda story: story.sent(outcome="unknown").killed(),
    "unknown and there": lambda story: story.sent(outcome="unknown").killed(here()),
    "acknowledged, unknown, and gone": lambda story: story.sent().delivered().acked(None).killed(),
    "acknowledged, unknown, and come again": lambda story: story.sent().delivered().acked(None).killed(here()).delivered().acked().killed(),
    "expired unseen": lambda story: story.sent(ttl_ms=10).killed(),
    "failed, lost with the broker, come at once": lambda story: (
        story.sent().delivered().failed(delay_ms=500).killed(here()).delivered().acked().killed()
    ),
    "failed and come in time": lambda story: story.sent().delivered().failed(delay_ms=500).at(600).delivered(2).acked().killed(),
    "a little early": lambda story: story.sent().delivered().failed(delay_ms=500).at(460).delivered(2).acked().killed(),
    "dead after its attempts": lambda story: (
        story.sent()
        .delivered()
        .failed()
        .delivered(2)
        .failed(2)
        .delivered(3)
        .failed(3)
        .killed(here(queue=DEAD))
        .delivered(queue=DEAD)
        .acked(queue=DEAD)
        .killed()
    ),
    "poison": lambda story: story.sent().delivered().failed(how="poison").killed(here(queue=DEAD)),
    "closed cleanly: counted, not failed": lambda story: story.sent().delivered().delivered(2).delivered(3).delivered(4).acked().killed(),
    "delivered before it was on disk": lambda story: (
        story.add("send", key="k", queue=QUEUE)
        .delivered(number=1)
        .acked(None)
        .killed()
        .add("sent", key="k", outcome="ok")
        .delivered(number=2)
        .acked(number=2)
        .killed()
    ),
    "a transaction that was rolled back": lambda story: story.sent(tx="t", outcome="unknown").committed("t", "fail").killed(),
    "an unknown transaction, whole": lambda story: (
        story.sent("a", "unknown", tx="t").sent("b", "unknown", tx="t").killed(here(key="a"), here(key="b", number=2))
    ),
    "edited": lambda story: story.sent().edited("ok").killed(here(key="copy", number=2)),
    "edited unseen, and its copy acknowledged": lambda story: (
        story.sent().edited("ok").delivered(key="copy", number=2).acked(number=2).killed()
    ),
    "edited, unknown, and as it was": lambda story: story.sent().edited("unknown").killed(here()),
    "edited, unknown, and its copy edited before anybody got it": lambda story: (
        story.sent()
        .edited("unknown")
        .add("send", key="third", queue=QUEUE, tx="u", of=2, ttl_ms=0)
        .add("ack", id=2, queue=QUEUE, tx="u", edit=True, key="copy")
        .add("committed", tx="u", outcome="ok")
        .killed(here(key="third", number=3))
    ),
    "edited, unknown, and delivered until its copy is": lambda story: (
        story.sent().edited("unknown").delivered().delivered(key="copy", number=2).acked(number=2).killed()
    ),
    "edited, unknown, and its copy there": lambda story: story.sent().edited("unknown").killed(here(key="copy", number=2)),
    "brought forward": lambda story: (
        story.sent().delivered().failed(outcome="ok", delay_ms=500).retried("now", "unknown").delivered(2).acked().killed()
    ),
    "brought forward by what was asked before, of a broker that lived on": lambda story: (
        story.sent().delivered().retried("now", "unknown", cut=True).failed(outcome="ok", delay_ms=500).delivered(2).acked().killed()
    ),
    "on hold and released": lambda story: (
        story.sent().delivered().failed(outcome="ok").retried("hold").retried("release").delivered(2).acked().killed()
    ),
    "later, and come then": lambda story: (
        story.sent().delivered().failed(outcome="ok").retried("at_ms", delay_ms=500).at(600).delivered(2).acked().killed()
    ),
    "not durable, failed on a full disk, and gone": lambda story: (
        story.sent(durable=False).delivered().failed(outcome="ok").killed(full_t=0)
    ),
    "not durable, and gone": lambda story: story.sent(durable=False).killed().stopped().killed(),
    "not durable, acknowledged, and sent again after a kill": lambda story: (
        story.sent(outcome="unknown", durable=False)
        .delivered()
        .acked()
        .killed()
        .sent(durable=False)
        .delivered(number=2)
        .stopped(here(number=2))
    ),
    "not durable, confirmed by the next broker, and gone": lambda story: (
        story.add("send", key="k", queue=QUEUE, durable=False).killed().add("sent", key="k", outcome="ok").stopped()
    ),
    "held at a stop, which is no failure": lambda story: (
        story.sent().delivered().failed().stopped(here(1)).delivered(2).failed(2).delivered(3).failed(3).delivered(4).acked().killed()
    ),
    "a token in its place": lambda story: story.sent("token:1:0").killed(here(key="token:1:0", queue="tokens.a")),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_is_no_fault(name: str) -> None:
    assert ALLOWED[name](Story()).kinds() == []


# -- what is not -----------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[Callable[[Story], Story], Kind]] = {
    "confirmed and gone": (lambda story: story.sent().killed(), Kind.LOST),
    "confirmed, delivered and gone": (lambda story: story.sent().delivered().killed(), Kind.LOST),
    "not durable, failed on disk and gone": (lambda story: story.sent(durable=False).delivered().failed(outcome="ok").killed(), Kind.LOST),
    "not durable, and gone at a stop": (lambda story: story.sent(durable=False).stopped(), Kind.LOST),
    "not durable, failed before the disk was full, and gone": (
        lambda story: story.sent(durable=False).delivered().failed(outcome="ok").killed(full_t=story.t),
        Kind.LOST,
    ),
    "not durable, kept at a stop and gone": (lambda story: story.sent(durable=False).stopped(here()).killed(), Kind.LOST),
    "not durable, and twice after a stop": (
        lambda story: story.sent(outcome="unknown", durable=False).stopped(here()).sent(durable=False).stopped(here(), here(number=2)),
        Kind.STORED_TWICE,
    ),
    "not durable, gone and come again": (
        lambda story: story.sent(durable=False).delivered().killed().at(600).delivered(2).acked().killed(),
        Kind.UNEXPECTED,
    ),
    "failed and gone": (lambda story: story.sent().delivered().failed().killed(), Kind.LOST),
    "committed and gone": (lambda story: story.sent(tx="t", outcome="unknown").committed("t", "ok").killed(), Kind.LOST),
    "acknowledged only in a transaction that was rolled back": (
        lambda story: story.sent().delivered().acked(None, tx="t").committed("t", "fail").killed(),
        Kind.LOST,
    ),
    "never sent": (lambda story: story.killed(here()), Kind.UNEXPECTED),
    "sent in a transaction that was rolled back": (
        lambda story: story.sent(tx="t", outcome="unknown").committed("t", "fail").killed(here()),
        Kind.UNEXPECTED,
    ),
    "two of one": (lambda story: story.sent().killed(here(), here(number=2)), Kind.STORED_TWICE),
    "two of one, one after the other": (
        lambda story: story.sent().delivered(number=1).acked(number=1).delivered(number=2).acked(number=2).killed(),
        Kind.STORED_TWICE,
    ),
    "come again after its acknowledgement": (lambda story: story.sent().delivered().acked().delivered(2).killed(), Kind.DUPLICATED),
    "there after its acknowledgement": (lambda story: story.sent().delivered().acked().killed(here()), Kind.DUPLICATED),
    "there after a committed acknowledgement": (
        lambda story: story.sent().delivered().acked(None, tx="t").committed("t", "ok").killed(here()),
        Kind.DUPLICATED,
    ),
    "a lower count": (lambda story: story.sent().delivered(3).delivered(2).acked().killed(), Kind.COUNT_FELL),
    "a lower count on disk": (lambda story: story.sent().delivered(3).killed(here(1)), Kind.COUNT_FELL),
    "a failure on disk that did not count": (
        lambda story: story.sent().delivered().failed(outcome="ok").delivered(1).acked().killed(),
        Kind.COUNT_FELL,
    ),
    "before it was due": (lambda story: story.sent().delivered().failed(delay_ms=500).at(400).delivered(2).acked().killed(), Kind.EARLY),
    "before it was due, whatever a broker was asked that is gone": (
        lambda story: (
            story.sent()
            .retried("now", "unknown", cut=True)
            .killed(here())
            .delivered()
            .failed(delay_ms=500)
            .at(400)
            .delivered(2)
            .acked()
            .killed()
        ),
        Kind.EARLY,
    ),
    "before it was sent for": (lambda story: story.sent(delay_ms=500).at(400).delivered().acked().killed(), Kind.EARLY),
    "before it was released": (
        lambda story: story.sent().delivered().failed(outcome="ok").retried("hold").at(9000).delivered(2).acked().killed(),
        Kind.EARLY,
    ),
    "before it was put off to": (
        lambda story: story.sent().delivered().failed(outcome="ok").retried("at_ms", delay_ms=500).at(400).delivered(2).acked().killed(),
        Kind.EARLY,
    ),
    "edited, and gone with its copy": (lambda story: story.sent().edited("ok").killed(), Kind.LOST),
    "edited, unknown, and gone with its copy": (lambda story: story.sent().edited("unknown").killed(), Kind.LOST),
    "edited, unknown, and delivered beside its copy": (
        lambda story: story.sent().edited("unknown").delivered(key="copy", number=2).delivered().killed(here(key="copy", number=2)),
        Kind.DUPLICATED,
    ),
    "edited, and there beside its copy": (
        lambda story: story.sent().edited("unknown").killed(here(), here(key="copy", number=2)),
        Kind.DUPLICATED,
    ),
    "dead too early": (lambda story: story.sent().delivered().failed().killed(here(queue=DEAD)), Kind.DIED_EARLY),
    "alive too long": (
        lambda story: story.sent().delivered().failed().delivered(2).failed(2).delivered(3).failed(3).delivered(4).acked().killed(),
        Kind.LIMIT_PASSED,
    ),
    "half a transaction": (
        lambda story: story.sent("a", "unknown", tx="t").sent("b", "unknown", tx="t").killed(here(key="a")),
        Kind.TORN,
    ),
    "a token in two places": (
        lambda story: (
            story.sent("token:1:0").sent("token:1:1", "unknown", tx="t").killed(here(key="token:1:0"), here(key="token:1:1", number=2))
        ),
        Kind.TORN,
    ),
    "in its queue and among the dead": (
        lambda story: story.sent().delivered().failed().delivered(2).failed(2).delivered(3).failed(3).killed(here(3), here(queue=DEAD)),
        Kind.IN_TWO_QUEUES,
    ),
    "a journal that is not whole": (lambda story: story.killed(problems=("a page is damaged",)), Kind.JOURNAL),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_as_what_it_is(name: str) -> None:
    story, kind = FAULTS[name]
    assert set(story(Story()).kinds()) == {kind}


def test_a_token_that_is_gone_is_torn_and_lost() -> None:
    assert sorted(Story().sent("token:1:0").killed().kinds()) == [Kind.LOST, Kind.TORN]


def test_every_kind_that_the_referee_itself_finds_has_a_history_here() -> None:
    found_elsewhere = {Kind.STUCK, Kind.BALANCE, Kind.COMPLAINT}
    assert {kind for _, kind in FAULTS.values()} == set(Kind) - found_elsewhere


# -- details ---------------------------------------------------------------------------------------------------------


def test_a_loss_is_told_once_with_the_kill_after_which_it_was_gone() -> None:
    story = Story().sent().killed(here()).killed().killed()
    (loss,) = check(story.history, story.snapshots, RULES)
    assert "kill 2" in loss.text


def test_where_counts_are_on_disk_before_the_delivery_each_one_is_higher() -> None:
    rules = Rules(max_attempts=3, counted_before=(QUEUE,))
    same = Story().sent().delivered().killed(here(1)).delivered().acked().killed()
    assert same.kinds(rules) == [Kind.COUNT_FELL]
    # Its client had it, and the connection was lost before the broker heard of that.
    cut = Story().sent().delivered().delivered().acked().killed()
    assert cut.kinds(rules) == [Kind.COUNT_FELL]
    assert list(check(History(cut.events, cut.snapshots, [(3.5, 3.7)]), cut.snapshots, rules)) == []
    # Killed while it stopped, which is no failure: it came back as at a stop, and what is not durable need not be there.
    halfway = Story().sent().sent("other", durable=False).delivered().killed(here(1), stopping=True).delivered().acked().killed()
    assert halfway.kinds(rules) == []
    # There a higher count does not show that the failure got to the disk.
    lost_failure = Story().sent().delivered().failed(delay_ms=500).killed(here(1)).delivered(2).acked().killed()
    assert lost_failure.kinds(rules) == []
    assert lost_failure.kinds() == [Kind.EARLY]


def test_a_clock_that_was_set_forward_makes_nothing_early() -> None:
    story = Story().sent().delivered().failed(delay_ms=500).at(100).delivered(2).acked().killed()
    story.events[-3]["w"] += 500
    assert story.kinds() == []


def test_queues_without_a_limit_are_never_passed() -> None:
    story = Story().sent().delivered().failed().delivered(2).failed(2).delivered(3).failed(3).delivered(4).acked().killed()
    assert story.kinds(Rules(max_attempts=3, endless=("work.",))) == []


def test_an_outcome_belongs_to_the_settlement_of_its_own_client() -> None:
    story = Story().sent().delivered().failed().killed(here()).delivered().failed()
    story.events[-1]["c"] = "another"
    story.add("failed", id=1, queue=QUEUE, count=1, outcome="void")
    failures = story.history.lives[(1, QUEUE)].failures
    assert [(each.client, each.outcome) for each in failures] == [("someone", "void"), ("another", "unknown")]


def test_a_message_that_was_perhaps_never_on_disk_excuses_no_loss() -> None:
    story = Story().add("send", key="k", queue=QUEUE).delivered(number=1).acked(None).killed()
    story.add("sent", key="k", outcome="ok").delivered(number=2).killed()
    assert ghosts(story.history, story.snapshots) == {1}
    assert story.kinds() == [Kind.LOST]


def test_what_is_read_late_is_of_the_broker_that_its_connection_was_made_to() -> None:
    """Message 1 was never on disk; the next leader's is message 2. Over a connection of that leader's own it is another story."""

    def read_late(since: float) -> list[Kind]:
        story = Story().add("send", key="k", queue=QUEUE).killed().add("deliver", s=since, key="k", id=1, queue=QUEUE, count=1, mode="AUTO")
        return story.add("sent", key="k", outcome="ok").delivered(number=2).acked(number=2).killed().kinds()

    assert read_late(since=1.5) == []
    assert read_late(since=2.5) == [Kind.STORED_TWICE]


def test_unknown_sends_that_are_there_are_counted_as_recovered() -> None:
    story = Story().sent(outcome="unknown").delivered().acked().sent("gone", "unknown").killed()
    assert recovered(story.history) == 1


@pytest.mark.parametrize(("ttl_ms", "outcome"), [(0, "fail"), (50, "unknown")])
def test_an_edit_that_nobody_was_told_of_is_undone_if_its_copy_could_not_expire_unseen(ttl_ms: int, outcome: str) -> None:
    history = Story().sent(ttl_ms=ttl_ms).edited("unknown", ttl_ms).killed().history
    assert history.sends["copy"].outcome == history.lives[1, QUEUE].acks[0].outcome == outcome


def test_logs_of_several_clients_come_back_in_the_order_of_time(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    logs = [ClientLog(path, path.stem) for path in paths]
    for number in range(4):
        logs[number % 2]("note", text=str(number))
    for log in logs:
        log.flush()
    assert [(event["c"], event["text"]) for event in read_logs(paths)] == [("a", "0"), ("b", "1"), ("a", "2"), ("b", "3")]
    assert json.loads(paths[0].read_text().splitlines()[0])["e"] == "note"


def test_sums_of_the_export_that_differ_from_the_clients_are_told() -> None:
    columns = {"sent": 3, "moved_in": 0, "succeeded": 2, "dead_lettered": 0, "expired": 0, "dropped": 0, "purged": 0, "moved_out": 0}
    whole = Account({**columns, "here": 1}, {"sent": Range(2, 3), "succeeded": Range(2, 2)}, {QUEUE: {**columns, "here": 1}}, {QUEUE: 2})
    assert list(whole.violations()) == []
    off = Account({**columns, "here": 0}, {"sent": Range(4, 5), "succeeded": Range(2, 2)}, {QUEUE: {**columns, "here": 0}}, {QUEUE: 1})
    texts = [str(violation) for violation in off.violations()]
    assert len(texts) == 4
    assert texts[0].startswith("balance: work.0: 3 came, 2 went and 0 are there")
    assert texts[1] == "balance: work.0: 2 succeeded, and 1 by its consumers"
    assert texts[2] == "balance: sent: the export has 3, the clients counted 4 to 5"
    assert texts[3].startswith("balance: sent is not the sum of the ways to end")
