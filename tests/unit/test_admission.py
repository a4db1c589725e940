"""Slots of handshakes and of connections: who gets one, and who gives way."""

from __future__ import annotations

from collections.abc import Sequence

from homing.broker.errors import Refused
from homing.broker.protocols.handshakes import Admission, AdmissionLimits
from homing.broker.shares import Share

LIMITS = AdmissionLimits(connections=10, connections_per_peer=6, handshakes=8, handshakes_per_peer=5)


class Socket:
    def __init__(self, admission: Admission, peer: str, patience: int = 1) -> None:
        self.admission = admission
        self.peer = peer
        self.patience = patience
        self.gave_way: Refused | None = None
        admission.arrive(self)

    def limit_to(self, shares: Sequence[Share]) -> None:
        pass

    def give_way(self, refusal: Refused) -> None:
        assert self.gave_way is None
        self.gave_way = refusal
        self.admission.leave(self)


def sockets(admission: Admission, peer: str, number: int, patience: int = 1) -> list[Socket]:
    return [Socket(admission, peer, patience) for _ in range(number)]


def gave_way(sockets: list[Socket]) -> list[int]:
    return [number for number, each in enumerate(sockets) if each.gave_way is not None]


def test_whoever_has_the_most_gives_way_and_never_the_newcomer() -> None:
    admission = Admission(LIMITS)
    flood = sockets(admission, "127.0.0.2", 4) + sockets(admission, "127.0.0.3", 3)
    others = sockets(admission, "127.0.0.1", 3)
    assert gave_way(flood) == [0, 1]
    assert gave_way(others) == []
    assert flood[0].gave_way is not None
    assert flood[0].gave_way.code == "handshake-gave-way"
    assert "limits.max-handshakes)" in flood[0].gave_way.message
    assert admission.handshakes == 8


def test_a_peer_has_slots_of_its_own_number() -> None:
    admission = Admission(LIMITS)
    flood = sockets(admission, "127.0.0.2", 500)
    assert len(gave_way(flood)) == 495
    assert flood[-1].gave_way is None
    assert admission.handshakes == 5
    assert gave_way(sockets(admission, "127.0.0.1", 3)) == []


def test_those_with_the_least_to_lose_give_way_first() -> None:
    admission = Admission(LIMITS)
    checking, leaving, silent = sockets(admission, "p", 2, 2), sockets(admission, "p", 1, 0), sockets(admission, "p", 2, 1)
    later = [Socket(admission, "p", 2) for _ in range(4)]
    assert (gave_way(leaving), gave_way(silent), gave_way(checking)) == ([0], [0, 1], [0])
    assert gave_way(later) == []


def test_connections_have_slots_apart_from_handshakes() -> None:
    admission = Admission(LIMITS)
    for each in sockets(admission, "127.0.0.1", 5):
        assert admission.admit(each) is None
    sockets(admission, "127.0.0.2", 5)
    (sixth,) = sockets(admission, "127.0.0.1", 1)
    assert admission.admit(sixth) is None
    (seventh,) = sockets(admission, "127.0.0.1", 1)
    refusal = admission.admit(seventh)
    assert refusal is not None
    assert "limits.max-connections-per-peer" in refusal.fix
    assert admission.connections == 6
    assert admission.refusal("127.0.0.2") is None


def test_the_broker_has_so_many_connections_and_those_that_leave_make_room() -> None:
    admission = Admission(LIMITS)
    inside = [Socket(admission, f"127.0.0.{number}") for number in range(1, 5)]
    inside += [Socket(admission, f"127.0.0.{number}") for number in range(1, 5)]
    assert [admission.admit(each) for each in inside] == [None] * 8
    inside += [Socket(admission, f"127.0.1.{number}") for number in range(2)]
    assert [admission.admit(each) for each in inside[8:]] == [None] * 2
    refusal = admission.refusal("127.0.0.9")
    assert refusal is not None
    assert (refusal.code, "limits.max-connections" in refusal.fix) == ("too-many-connections", True)
    admission.leave(inside[0])
    admission.leave(inside[0])
    assert admission.refusal("127.0.0.9") is None
    for each in inside:
        admission.leave(each)
    assert (admission.connections, admission.handshakes) == (0, 0)


def test_who_gave_way_is_not_admitted_any_more() -> None:
    admission = Admission(LIMITS)
    flood = sockets(admission, "127.0.0.2", 6)
    assert admission.admit(flood[0]) is None
    assert (admission.connections, admission.handshakes) == (0, 5)


def test_handshakes_never_take_more_than_a_part_of_the_open_files() -> None:
    admission = Admission(AdmissionLimits(), max_files=400)
    assert len(gave_way(sockets(admission, "127.0.0.2", 300))) == 200
