"""Logins that wait: whose turn it is, and how long who guesses is held back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from homing.broker.auth import logins as broker_logins
from homing.broker.auth.login_queue import FORGET_AFTER_MS, MAX_DELAY_MS, MAX_DELAY_OF_PEER_MS, MAX_REMEMBERED, Login, LoginQueue
from homing.broker.auth.logins import Logins
from homing.broker.errors import Refused


def login(peer: str, user: str = "ann", came_at_ms: int = 0) -> Login:
    return Login(peer, user, "secret", lambda _: None, came_at_ms)


def order(queue: LoginQueue, now_ms: int = 0) -> list[tuple[str, str]]:
    found = []
    while (taken := queue.take(now_ms)) is not None:
        found.append((taken.peer, taken.user))
    return found


def test_peers_take_turns_and_so_do_the_users_of_a_peer() -> None:
    queue = LoginQueue()
    for _ in range(3):
        queue.add(login("loud", "ann"))
    queue.add(login("loud", "bob"))
    queue.add(login("quiet", "ann"))
    assert order(queue) == [("loud", "ann"), ("quiet", "ann"), ("loud", "bob"), ("loud", "ann"), ("loud", "ann")]
    assert (len(queue), queue.next_ms(0)) == (0, None)


def test_who_guesses_is_held_back_longer_each_time_and_nobody_else() -> None:
    queue, now_ms, waits = LoginQueue(), 1_000_000, []
    for _ in range(12):
        queue.failed("guesser", "ann", now_ms)
        waits.append(queue.held_back("guesser", "ann", now_ms)[1])
        queue.add(login("guesser", "ann"))
        queue.add(login("home", "ann"))
        queue.add(login("guesser", "bob"))
        expected = [("home", "ann"), ("guesser", "bob"), *([("guesser", "ann")] if not waits[-1] else [])]
        assert sorted(order(queue, now_ms)) == sorted(expected)
        assert queue.next_ms(now_ms) == (now_ms + waits[-1] if waits[-1] else None)
        now_ms += waits[-1]
        assert len(order(queue, now_ms)) == bool(waits[-1])
    assert waits == [0, 0, 250, 500, 1000, 2000, 4000, *[MAX_DELAY_MS] * 5]


def test_clean_peers_go_first_and_have_a_thread_that_no_other_gets() -> None:
    queue = LoginQueue()
    queue.failed("guesser", "ann", 0)
    for _ in range(3):
        queue.add(login("guesser", "ann"))
    queue.add(login("home", "ann"))
    queue.add(login("home", "bob"))
    assert order(queue) == [("home", "ann"), ("home", "bob"), *[("guesser", "ann")] * 3]
    queue.add(login("guesser", "ann"))
    assert queue.take(0, clean_only=True) is None
    queue.forget(FORGET_AFTER_MS)
    assert queue.take(FORGET_AFTER_MS, clean_only=True) is not None


def test_many_users_tried_from_one_peer_hold_that_peer_back_a_little() -> None:
    queue = LoginQueue()
    for number in range(100):
        queue.failed("guesser", f"user {number}", 0)
    queue.add(login("guesser", "ann"))
    queue.add(login("home", "ann"))
    assert order(queue) == [("home", "ann")]
    assert queue.held_back("guesser", "ann", 0) == (100, MAX_DELAY_OF_PEER_MS)
    assert queue.held_back("home", "ann", 0) == (0, 0)
    assert order(queue, MAX_DELAY_OF_PEER_MS) == [("guesser", "ann")]


def test_success_or_time_forgets_failures_and_few_are_remembered() -> None:
    queue = LoginQueue()
    for _ in range(9):
        queue.failed("p", "ann", 0)
    queue.succeeded("p", "ann")
    assert queue.held_back("p", "ann", 0)[1] == 0
    for _ in range(9):
        queue.failed("p", "ann", 0)
    queue.failed("p", "ann", FORGET_AFTER_MS)
    assert queue.held_back("p", "ann", FORGET_AFTER_MS) == (1, 0)
    for number in range(2 * MAX_REMEMBERED):
        queue.failed(f"peer {number}", "ann", 0)
    assert queue.remembered == MAX_REMEMBERED


def test_one_that_leaves_is_forgotten_and_one_that_waits_too_long_is_taken_out() -> None:
    queue = LoginQueue()
    first, second, third = login("p"), login("p", came_at_ms=5), login("q", came_at_ms=9)
    for each in (first, second, third):
        queue.add(each)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert queue.overdue(9) == [second]
    assert order(queue) == [("q", "ann")]


# -- on a loop -----------------------------------------------------------------------------------------------------------


class Checks:
    """What stands in for argon2: each check waits until it is let go. Right is the password ``right``."""

    def __init__(self) -> None:
        self.begun = 0
        self.done: list[tuple[str, str]] = []
        self.gate = threading.Semaphore(0)

    def __call__(self, users: dict[str, str], user: str, password: str) -> bool:
        self.begun += 1
        assert self.gate.acquire(timeout=20)
        self.done.append((user, password))
        return password == "right"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    made = Checks()
    monkeypatch.setattr(broker_logins, "check_login", made)
    return made


async def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)


@pytest.mark.plain
async def test_while_somebody_guesses_a_login_from_elsewhere_waits_for_one_check_only(checks: Checks) -> None:
    logins = Logins(lambda: {"ann": "hash"}, 1, 60_000)
    answers: dict[str, list[str | Refused]] = {"guesser": [], "home": []}
    for number in range(300):
        logins.check("ann", f"guess {number}", "127.0.0.2", answers["guesser"].append)
    logins.check("ann", "right", "127.0.0.1", answers["home"].append)
    checks.gate.release(2)
    await until(lambda: answers["home"])
    assert answers["home"] == ["ann"]
    assert len(answers["guesser"]) == 1
    # From here on it is known again, and needs no check, wherever it comes from.
    logins.check("ann", "right", "127.0.0.2", answers["home"].append)
    assert answers["home"] == ["ann", "ann"]
    assert checks.done == [("ann", "guess 0"), ("ann", "right")]
    checks.gate.release(300)
    logins.close()


@pytest.mark.plain
async def test_a_stop_waits_for_the_check_that_is_under_way_and_for_no_other(checks: Checks) -> None:
    logins, answers = Logins(lambda: {"ann": "hash"}, 1, 60_000), list[str | Refused]()
    for password in ("right", "waits"):
        logins.check("ann", password, "p", answers.append)
    await until(lambda: checks.begun)
    threading.Timer(0.1, checks.gate.release).start()
    logins.close()
    assert checks.done == [("ann", "right")]
    assert not [each for each in threading.enumerate() if each.name.startswith("login")]


@pytest.mark.plain
async def test_what_was_proven_counts_no_more_under_another_hash(checks: Checks) -> None:
    users, answers = {"ann": "hash"}, list[str | Refused]()
    logins = Logins(lambda: users, 1, 60_000)
    checks.gate.release(2)
    logins.check("ann", "right", "p", answers.append)
    await until(lambda: answers)
    users["ann"] = "another hash"
    logins.check("ann", "right", "p", answers.append)
    assert len(answers) == 1
    await until(lambda: len(answers) == 2)
    del users["ann"]
    users["bob"] = "hash"
    checks.gate.release()
    logins.check("ann", "right", "p", answers.append)
    await until(lambda: len(answers) == 3)
    assert len(checks.done) == 3
    logins.close()


@pytest.mark.plain
async def test_who_waits_too_long_is_told_why(checks: Checks) -> None:
    logins, answers = Logins(lambda: {"ann": "hash"}, 1, 100), list[str | Refused]()
    for _ in range(2):
        logins.check("ann", "guess", "127.0.0.2", answers.append)
    await until(lambda: answers)
    (refusal,) = answers
    assert isinstance(refusal, Refused)
    assert refusal.code == "login-held-back"
    assert "limits.login-threads" in refusal.fix
    checks.gate.release(2)
    await until(lambda: len(answers) == 2)
    logins.close()


@pytest.mark.plain
async def test_a_check_that_breaks_is_answered_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> bool:
        raise MemoryError

    monkeypatch.setattr(broker_logins, "check_login", broken)
    logins, answers = Logins(lambda: {"ann": "hash"}, 1, 10_000), list[str | Refused]()
    for _ in range(2):
        logins.check("ann", "right", "p", answers.append)
    await until(lambda: len(answers) == 2)
    assert [each.code for each in answers if isinstance(each, Refused)] == ["login-failed"] * 2
    logins.close()
