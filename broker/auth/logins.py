"""Who may come in. argon2 is meant to be slow: a few threads beside the loop check passwords, and ``login_queue`` says whose turn it is.

A password that was right is known again, for as long as the broker runs, by a keyed digest (docs/decisions): guessing at a user's name
then holds up nobody who comes in again, from wherever.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ..errors import Refused
from ..logs.writer import visible
from .login_queue import Login, LoginQueue
from .passwords import MAX_PASSWORD_BYTES, check_login

log = logging.getLogger("homing")

#: Passwords that are known again.
_MAX_PROVEN: Final = 1000
#: Of the login time, the part that a check may wait: the rest is for saying why it was in vain.
_PATIENCE: Final = 0.8
_WRONG: Final = Refused("login-refused", "the user or the password is wrong", "check both; homing user hash makes a new hash")
_FAILED: Final = Refused("login-failed", "the login could not be checked", "try again")
_WANTED: Final = Refused(
    "login-required", "this broker wants a user and a password", "give them in the URL: homing://user:password@host:port"
)

#: Called with the user's name, or with a refusal.
Answer = Callable[[str | Refused], None]


class Logins:
    def __init__(self, users: Callable[[], Mapping[str, str]], threads: int, login_timeout_ms: int) -> None:
        """``users``: name -> argon2 hash, as they are now, empty where the user's time is over; without any everybody is anonymous."""
        self._users = users
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="login")
        self._free = self._threads = threads
        self._patience_ms = int(login_timeout_ms * _PATIENCE)
        self._queue = LoginQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._key = secrets.token_bytes(32)
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        self._closed = False
        #: How many logins were refused, or held back in vain.
        self.refused = 0

    @property
    def wanted(self) -> bool:
        """Whether anybody has to log in at all."""
        return bool(self._users())

    def check(self, user: str | None, password: str | None, peer: str, answer: Answer) -> Callable[[], object] | None:
        """Answers at once or later. Returns how to call that off."""
        users = self._users()
        if not users:
            answer("")
            return None
        if user is None or password is None:
            answer(_WANTED)
            return None
        if self._is_proven(users, user, password):
            answer(user)
            return None
        login = Login(peer, user, password, answer, self._now_ms())
        self._queue.add(login)
        self._go_on()
        return lambda: self._queue.remove(login)

    def vouch(self, user: str, peer: str, answer: Answer) -> None:
        """Answers a login whose certificate has shown who it is."""
        users = self._users()
        if not users:
            answer("")
        elif users.get(user):
            answer(user)
        else:
            log.warning("login-refused: user %s, whom a certificate names, from %s", visible(user, 64), peer)
            answer(Refused("login-refused", f"the certificate is {visible(user, 64)}'s, and there is no such user", "make the user"))

    def close(self) -> None:
        """Waits for what is being checked, one hash: a signal that such a thread gets is lost to a process that begins anew."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # -- whose turn it is --------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Starts what may start now, gives up what has waited for too long, and comes back when that changes."""
        if self._closed:
            return
        now_ms = self._now_ms()
        for login in self._queue.overdue(now_ms - self._patience_ms):
            self._refuse_waiting(login, now_ms)
        self._queue.forget(now_ms)
        # Where there are several threads, one is kept for peers whose logins did not fail.
        while self._free and (login_now := self._queue.take(now_ms, clean_only=self._free == 1 < self._threads)) is not None:
            self._start(login_now)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self._queue.next_ms(now_ms)
        if next_ms is not None:
            # With all threads busy the next one to end comes here first.
            soon_ms = next_ms - now_ms if self._free else self._patience_ms
            self._timer = self._loop.call_later(max(10, min(1000, soon_ms)) / 1000, self._go_on)

    def _refuse_waiting(self, login: Login, now_ms: int) -> None:
        failures, wait_ms = self._queue.held_back(login.peer, login.user, now_ms)
        who = f"{visible(login.user, 64)} from {login.peer}"
        if failures:
            message = f"after {failures} failed logins the next one of {who} waits; this one has waited for {self._patience_ms} ms"
            refusal = Refused("login-held-back", message, f"make sure of the password; try again in {max(1, wait_ms // 1000)} s")
        else:
            message = f"too many logins wait to be checked; the one of {who} has waited for {self._patience_ms} ms"
            refusal = Refused("login-held-back", message, "try again, or raise limits.login-threads")
        self.refused += 1
        log.warning("login-held-back: login of %s from %s held back: %d failed before it", visible(login.user, 64), login.peer, failures)
        login.answer(refusal)

    # -- one check ---------------------------------------------------------------------------------------------------

    def _start(self, login: Login) -> None:
        self._free -= 1
        users = dict(self._users())
        future = self._loop.run_in_executor(self._pool, check_login, users, login.user, login.password)
        future.add_done_callback(lambda done: self._checked(login, users.get(login.user, ""), done))

    def _checked(self, login: Login, hashed: str, done: asyncio.Future[bool]) -> None:
        self._free += 1
        try:
            login.answer(self._outcome(login, hashed, done))
        finally:
            self._go_on()

    def _outcome(self, login: Login, hashed: str, done: asyncio.Future[bool]) -> str | Refused:
        if done.cancelled() or done.exception() is not None:
            return _FAILED
        if done.result() and self._users().get(login.user) == hashed:
            self._queue.succeeded(login.peer, login.user)
            self._prove(login, hashed)
            return login.user
        self._queue.failed(login.peer, login.user, self._now_ms())
        self.refused += 1
        log.warning("login-refused: user %s from %s", visible(login.user, 64), login.peer)
        return _WRONG

    # -- known again -------------------------------------------------------------------------------------------------

    def _digest(self, user: str, password: str, hashed: str) -> bytes:
        """Another hash in the file makes another digest: what was proven before counts no more."""
        parts = (each.encode(errors="surrogatepass") for each in (user, password, hashed))
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")

    def _is_proven(self, users: Mapping[str, str], user: str, password: str) -> bool:
        hashed = users.get(user)
        if hashed is None or len(password) > MAX_PASSWORD_BYTES:
            return False
        digest = self._digest(user, password, hashed)
        if digest not in self._proven:
            return False
        self._proven.move_to_end(digest)
        return True

    def _prove(self, login: Login, hashed: str) -> None:
        self._proven[self._digest(login.user, login.password, hashed)] = None
        if len(self._proven) > _MAX_PROVEN:
            self._proven.popitem(last=False)
