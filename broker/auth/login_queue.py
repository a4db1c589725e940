"""Logins that wait to be checked: fair over peers and users, and who guesses waits the longest. Pure: times are arguments.

A failure is the guesser's: it holds back the same user from the same peer, and after many the peer, never the user from elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..errors import Refused

#: Failures of one user from one peer that cost nothing: people mistype.
FREE_FAILURES: Final = 3
_FIRST_DELAY_MS: Final = 250
MAX_DELAY_MS: Final = 5_000
#: Failures of all users of a peer together that cost nothing: behind it there may be many people.
FREE_FAILURES_OF_PEER: Final = 20
_FIRST_DELAY_OF_PEER_MS: Final = 20
MAX_DELAY_OF_PEER_MS: Final = 500
#: Without a further failure, a failure is forgotten after this long.
FORGET_AFTER_MS: Final = 60_000
#: Users of peers, and peers, whose failures are remembered; the longest forgotten goes first.
MAX_REMEMBERED: Final = 10_000


@dataclass(eq=False, slots=True)
class Login:
    """One that waits. ``answer`` is the caller's."""

    peer: str
    user: str
    password: str
    answer: Callable[[str | Refused], None]
    came_at_ms: int


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_ms: int = 0
    #: The next check is not made before.
    until_ms: int = 0


class LoginQueue:
    def __init__(self) -> None:
        #: peer -> user -> those that wait, in order; the peer and the user whose turn is next stand first.
        self._peers: OrderedDict[str, OrderedDict[str, deque[Login]]] = OrderedDict()
        #: (peer, user) and (peer, None).
        self._failures: OrderedDict[tuple[str, str | None], _Failures] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def remembered(self) -> int:
        return len(self._failures)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def add(self, login: Login) -> None:
        self._peers.setdefault(login.peer, OrderedDict()).setdefault(login.user, deque()).append(login)
        self._count += 1

    def remove(self, login: Login) -> bool:
        """It waits no more; whether it did."""
        waiting = self._peers.get(login.peer, OrderedDict()).get(login.user)
        if waiting is None or login not in waiting:
            return False
        waiting.remove(login)
        self._left(login.peer, login.user)
        return True

    def _left(self, peer: str, user: str) -> None:
        self._count -= 1
        users = self._peers[peer]
        if not users[user]:
            del users[user]
        if not users:
            del self._peers[peer]

    def take(self, now_ms: int, *, clean_only: bool = False) -> Login | None:
        """The one to be checked now: the next peer's next user's first; None when all are held back or nobody waits.

        Peers that are clean, of whom no login failed lately, go before all others.
        """
        clean = [peer for peer in self._peers if (peer, None) not in self._failures]
        return self._take_of(clean, now_ms) or (None if clean_only else self._take_of(list(self._peers), now_ms))

    def _take_of(self, peers: list[str], now_ms: int) -> Login | None:
        for peer in peers:
            if self._until_ms(peer, None) > now_ms:
                continue
            users = self._peers[peer]
            for user, waiting in users.items():
                if self._until_ms(peer, user) <= now_ms:
                    login = waiting.popleft()
                    users.move_to_end(user)
                    self._peers.move_to_end(peer)
                    self._left(peer, user)
                    return login
        return None

    def next_ms(self, now_ms: int) -> int | None:
        """When the first of those that are held back may be checked; None when nobody waits."""
        times = [max(self._until_ms(peer, None), min(self._until_ms(peer, user) for user in users)) for peer, users in self._peers.items()]
        return min(times, default=None)

    def overdue(self, before_ms: int) -> list[Login]:
        """Takes out those that came before."""
        found = [each for users in self._peers.values() for waiting in users.values() for each in waiting if each.came_at_ms < before_ms]
        for login in found:
            self.remove(login)
        return found

    # -- failing -----------------------------------------------------------------------------------------------------

    def held_back(self, peer: str, user: str, now_ms: int) -> tuple[int, int]:
        """(failures that are remembered, ms until the next check) of this user from this peer, or of the peer where it has none."""
        known = self._failures.get((peer, user)) or self._failures.get((peer, None))
        until_ms = max(self._until_ms(peer, None), self._until_ms(peer, user))
        return (known.count if known is not None else 0), max(0, until_ms - now_ms)

    def failed(self, peer: str, user: str, now_ms: int) -> None:
        self._note((peer, user), now_ms, FREE_FAILURES, _FIRST_DELAY_MS, MAX_DELAY_MS)
        self._note((peer, None), now_ms, FREE_FAILURES_OF_PEER, _FIRST_DELAY_OF_PEER_MS, MAX_DELAY_OF_PEER_MS)

    def succeeded(self, peer: str, user: str) -> None:
        self._failures.pop((peer, user), None)

    def forget(self, now_ms: int) -> None:
        """Those whose last failure is long ago; they stand first."""
        while self._failures:
            key, known = next(iter(self._failures.items()))
            if now_ms - known.last_ms < FORGET_AFTER_MS:
                return
            del self._failures[key]

    def _note(self, key: tuple[str, str | None], now_ms: int, free: int, first_ms: int, most_ms: int) -> None:
        self.forget(now_ms)
        known = self._failures.setdefault(key, _Failures())
        self._failures.move_to_end(key)
        known.count += 1
        known.last_ms = now_ms
        if known.count >= free:
            known.until_ms = now_ms + min(most_ms, first_ms * 2 ** min(known.count - free, 16))
        while len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)

    def _until_ms(self, peer: str, user: str | None) -> int:
        known = self._failures.get((peer, user))
        return known.until_ms if known is not None else 0
