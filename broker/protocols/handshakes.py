"""Which sockets may stay: handshakes and connections each have slots of their own, so that neither can take the other's.

A handshake that finds all slots taken takes one over, from the peer that has the most: of its sockets the one that is leaving, else the
one that has been silent for longest, else the one whose login has waited for longest. Refusing the newcomer instead would let whoever
came first, and says nothing, shut everybody out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ..errors import Refused
from ..shares import Share, Shares, give_back, take


class Guest(Protocol):
    """A socket."""

    @property
    def peer(self) -> str:
        """The address it comes from, without the port."""

    @property
    def patience(self) -> int:
        """How little it has to lose: 0 it is leaving, 1 it has not said who it is, 2 its login is being checked."""

    def give_way(self, refusal: Refused) -> None:
        """Its slot is another's now."""

    def limit_to(self, shares: Sequence[Share]) -> None:
        """What it has counts among these from here on."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    connections: int = 10_000
    connections_per_peer: int = 8_000
    handshakes: int = 2_000
    handshakes_per_peer: int = 1_000


#: Of the files that the process may have open, the part that handshakes may take.
_HANDSHAKES_OF_FILES: Final = 0.25


class Admission:
    def __init__(self, limits: AdmissionLimits, max_files: int | None = None, shares: Shares | None = None) -> None:
        self._limits = limits
        self.shares = shares or Shares({}, {})
        most = limits.handshakes if max_files is None else min(limits.handshakes, int(max_files * _HANDSHAKES_OF_FILES))
        self._most_handshakes = max(1, most)
        #: peer -> sockets in a handshake, those that came first first.
        self._handshakes: dict[str, dict[Guest, None]] = {}
        self._in_handshake = 0
        self._connections: dict[Guest, list[Share]] = {}
        self._connections_of: Counter[str] = Counter()

    @property
    def handshakes(self) -> int:
        return self._in_handshake

    @property
    def connections(self) -> int:
        return len(self._connections)

    def arrive(self, guest: Guest) -> None:
        """A new socket, whose handshake begins. Another may have to give way."""
        peer, limits = guest.peer, self._limits
        own = self._handshakes.setdefault(peer, {})
        if len(own) >= limits.handshakes_per_peer:
            self._make_room(peer, f"{peer} has {limits.handshakes_per_peer} logins under way (limits.max-handshakes-per-peer)")
        elif self._in_handshake >= self._most_handshakes:
            most = max(self._handshakes, key=lambda each: len(self._handshakes[each]))
            self._make_room(most, f"{self._most_handshakes} logins are under way (limits.max-handshakes)")
        self._handshakes.setdefault(peer, {})[guest] = None
        self._in_handshake += 1

    def _make_room(self, peer: str, why: str) -> None:
        guests = self._handshakes[peer]
        guest = min(guests, key=lambda each: each.patience)
        self._end_handshake(guest)
        guest.give_way(Refused("handshake-gave-way", f"{why}, and this one has waited for longest", "log in at once; try again"))

    def refusal(self, peer: str) -> Refused | None:
        """Why a connection from there would find no slot now."""
        limits = self._limits
        if len(self._connections) >= limits.connections:
            message = f"the broker has {limits.connections} connections, as many as it may"
            return Refused("too-many-connections", message, "close some, or raise limits.max-connections")
        if self._connections_of[peer] >= limits.connections_per_peer:
            message = f"{peer} has {limits.connections_per_peer} connections, as many as one address may"
            return Refused("too-many-connections", message, "close some, or raise limits.max-connections-per-peer")
        return None

    def admit(self, guest: Guest, user: str = "", now_ms: int = 0) -> Refused | None:
        """Its login was right: from here on it has a connection's slot, and counts among what the user has. Or why there is none."""
        refusal = self.refusal(guest.peer)
        if refusal is not None or guest not in self._handshakes.get(guest.peer, {}):
            return refusal
        shares = [self.shares.of_user(user), self.shares.of_peer(guest.peer)]
        try:
            shares[0].log_in(now_ms)
            take(shares, "connections")
        except Refused as too_much:
            return too_much
        self._end_handshake(guest)
        self._connections[guest] = shares
        self._connections_of[guest.peer] += 1
        guest.limit_to(shares)
        return None

    def leave(self, guest: Guest) -> None:
        """The socket is closed."""
        if guest in self._connections:
            give_back(self._connections.pop(guest), "connections")
            self._connections_of[guest.peer] -= 1
            if not self._connections_of[guest.peer]:
                del self._connections_of[guest.peer]
        else:
            self._end_handshake(guest)

    def _end_handshake(self, guest: Guest) -> bool:
        guests = self._handshakes.get(guest.peer, {})
        if guest not in guests:
            return False
        del guests[guest]
        self._in_handshake -= 1
        if not guests:
            del self._handshakes[guest.peer]
        return True
