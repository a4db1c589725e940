"""What each user, and each address that connections come from, may have of the broker together, and has."""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from .errors import Refused

#: Whoever has no entry of its own.
EVERYBODY: Final = "*"
_MINUTE_MS: Final = 60_000
#: Of more, those that have nothing are forgotten.
_MOST_REMEMBERED: Final = 10_000


class Allowance(NamedTuple):
    """The most of each at a time; None: as much as the broker has. Sizes in bytes, of one message and of all that is not confirmed."""

    max_connections: int | None = None
    max_channels: int | None = None
    max_queues: int | None = None
    max_message_bytes: int | None = None
    max_unconfirmed_bytes: int | None = None
    max_logins_per_minute: int | None = None


#: What an allowance is of -> its field. The interpreter keeps the name of each attribute that it looked up: one that is made anew each
#: time is kept each time.
_FIELDS: Final = {name.removeprefix("max_"): name for name in Allowance._fields}


class Share:
    """Of one user, or one address: what its connections have open together."""

    def __init__(self, whose: str, section: str, allowance: Allowance) -> None:
        self._whose = whose
        self._section = section
        self.allowance = allowance
        self.connections = self.channels = self.unconfirmed_bytes = 0
        #: Names of what it made; some may be gone.
        self._queues: dict[str, None] = {}
        self._logins: deque[int] = deque()

    def check(self, what: str, number: int) -> None:
        """``what``: connections, channels or queues. Raises Refused where it may not have so many."""
        most: int | None = getattr(self.allowance, _FIELDS[what])
        if most is not None and number > most:
            fix = f"close some, or raise max-{what} in {self._section}"
            raise Refused(f"too-many-{what}", f"{self._whose} may have {most} {what}, and has as many", fix)

    def log_in(self, now_ms: int) -> None:
        """Raises Refused where that is too often."""
        most = self.allowance.max_logins_per_minute
        if most is None:
            return
        while self._logins and now_ms - self._logins[0] >= _MINUTE_MS:
            self._logins.popleft()
        if len(self._logins) >= most:
            said = f"{self._whose} may log in {most} times a minute, and has ({self._section}, max-logins-per-minute)"
            raise Refused("login-held-back", said, "try again in a minute")
        self._logins.append(now_ms)

    def make_queues(self, names: Collection[str], exists: Callable[[str], bool]) -> None:
        """Counts those that are not there yet. Raises Refused."""
        new = [name for name in names if not exists(name)]
        if self.allowance.max_queues is None or not new:
            return
        if len(self._queues) + len(new) > self.allowance.max_queues:
            self._queues = {name: None for name in self._queues if exists(name)}
        self.check("queues", len(self._queues.keys() | set(new)))
        self._queues |= dict.fromkeys(new)

    @property
    def room(self) -> int | None:
        """Bytes that may still be sent before some are confirmed; None: any."""
        most = self.allowance.max_unconfirmed_bytes
        return None if most is None else most - self.unconfirmed_bytes

    @property
    def why_full(self) -> str:
        most = self.allowance.max_unconfirmed_bytes
        return f"max-unconfirmed-bytes: {self.unconfirmed_bytes} bytes of {self._whose} are not confirmed, {most} may be"

    @property
    def idle(self) -> bool:
        return not (self.connections or self._queues or self._logins)


def least(most: int, shares: Sequence[Share]) -> int:
    """Of one message, in bytes."""
    return min([most, *(each.allowance.max_message_bytes or most for each in shares)])


def take(shares: Sequence[Share], what: str) -> None:
    """One connection or channel more, of all of them or of none. Raises Refused."""
    for share in shares:
        share.check(what, getattr(share, what) + 1)
    give_back(shares, what, -1)


def give_back(shares: Sequence[Share], what: str, number: int = 1) -> None:
    for share in shares:
        setattr(share, what, getattr(share, what) - number)


class Shares:
    """``users``: user, or ``*``, -> what may be had; ``peers``: network, or ``*``. The nearer entry wins for each limit it names."""

    def __init__(self, users: Mapping[str, Allowance], peers: Mapping[str, Allowance]) -> None:
        self._allowances = users
        networks = [(ipaddress.ip_network(name), each) for name, each in peers.items() if name != EVERYBODY]
        self._networks = sorted(networks, key=lambda each: each[0].prefixlen)
        self._all_peers = peers.get(EVERYBODY, Allowance())
        self._users: dict[str, Share] = {}
        self._peers: dict[str, Share] = {}

    def of_user(self, name: str) -> Share:
        layers = [self._allowances.get(EVERYBODY, Allowance()), self._allowances.get(name, Allowance())]
        return _remembered(self._users, name, lambda: Share(f"user {name or 'anonymous'}", "user-limits", _layered(layers)))

    def of_peer(self, address: str) -> Share:
        return _remembered(self._peers, address, lambda: Share(address, "peer-limits", _layered(self._layers_of(address))))

    def _layers_of(self, address: str) -> list[Allowance]:
        if not self._networks:
            return [self._all_peers]
        here = ipaddress.ip_address(address.partition("%")[0])
        return [self._all_peers, *(each for network, each in self._networks if here in network)]


def _layered(layers: list[Allowance]) -> Allowance:
    return Allowance(*(next((value for value in reversed(values) if value is not None), None) for values in zip(*layers, strict=True)))


def _remembered(known: dict[str, Share], name: str, make: Callable[[], Share]) -> Share:
    share = known.get(name)
    if share is None:
        if len(known) >= _MOST_REMEMBERED:
            for idle in [name for name, each in known.items() if each.idle]:
                del known[idle]
        share = known[name] = make()
    return share
