"""Frames that are not whole: who gathers, who waits, who is ended."""

from __future__ import annotations

from homing.broker.core.memory import Memory
from homing.broker.errors import Refused
from homing.broker.protocols.gathering import PATIENCE_S, Gathering

KIB = 1024


class House:
    def __init__(self, limit: int = 4096 * KIB) -> None:
        self.memory = Memory(limit)
        self.now_s = 0.0
        self.gathering = Gathering(self.memory, lambda: self.now_s)


class Peer:
    def __init__(self, house: House) -> None:
        self.house = house
        self.owner = house.gathering.owner()
        self.reads, self.ended = True, ""

    def wait_for_room(self) -> None:
        self.reads = False

    def go_on(self) -> None:
        self.reads = True

    def give_way(self, refusal: Refused) -> None:
        self.ended = refusal.code
        self.owner.close()

    def receive(self, held: int, wanted: int, whole: bool = False) -> None:
        self.owner.hold(held)
        self.house.gathering.note(self, held, wanted, whole)


def test_large_frames_are_gathered_as_many_at_a_time_as_there_is_room() -> None:
    house = House()
    first, second, third, small = (Peer(house) for _ in range(4))
    for peer in (first, second, third):
        peer.receive(100, 512 * KIB)
    small.receive(10, 20)
    assert [peer.reads for peer in (first, second, third, small)] == [True, True, False, True]
    first.receive(0, 4)
    assert third.reads
    assert not any(peer.ended for peer in (first, second, third, small))


def test_one_that_is_larger_than_the_room_is_gathered_alone() -> None:
    house = House()
    first, second = Peer(house), Peer(house)
    first.receive(100, 4096 * KIB)
    second.receive(100, 100 * KIB)
    assert (first.reads, second.reads) == (True, False)
    house.gathering.forget(first)
    assert second.reads


def test_who_keeps_others_waiting_for_too_long_is_ended() -> None:
    house = House()
    first, second = Peer(house), Peer(house)
    first.receive(100, 1024 * KIB)
    house.now_s = PATIENCE_S
    house.gathering.look()
    assert not first.ended, "nobody waits"
    second.receive(100, 1024 * KIB)
    house.gathering.look()
    assert (first.ended, second.reads, second.ended) == ("memory-limit", True, "")


def test_at_half_of_the_limit_the_frames_that_began_first_are_given_up() -> None:
    house = House(200 * KIB)
    peers = [Peer(house) for _ in range(12)]
    busy = Peer(house)
    for peer in (busy, *peers[:9]):
        peer.receive(10 * KIB, 40 * KIB)
    # Frames of its own have become whole: what it holds is young.
    busy.receive(10 * KIB, 40 * KIB, whole=True)
    for peer in peers[9:]:
        peer.receive(10 * KIB, 40 * KIB)
    assert [bool(peer.ended) for peer in peers] == [True] * 3 + [False] * 9
    assert not busy.ended
    assert house.memory.charged == 100 * KIB
