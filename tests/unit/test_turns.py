"""Whose input is acted on in which turn of the loop."""

from __future__ import annotations

from collections.abc import Callable

from homing.broker.protocols.turns import TURN_S, Turns


class Loop:
    """Calls what it was told to when ``turn`` says so; work takes as long as it is said to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: list[Callable[[], None]] = []
        self.turns = Turns(self._soon.append, lambda: self.now_s)
        self.done: list[str] = []

    def work(self, name: str, lasts: float) -> None:
        """``lasts``: in turns."""
        self.done.append(name)
        self.now_s += lasts * TURN_S

    def turn(self) -> list[str]:
        """What was done in it by those in line."""
        self.done.clear()
        soon, self._soon[:] = list(self._soon), []
        for call in soon:
            call()
        return list(self.done)

    @property
    def idle(self) -> bool:
        return not self._soon


def test_a_turn_that_has_taken_long_enough_is_full() -> None:
    loop = Loop()
    assert not loop.turns.full()
    loop.work("a", 0.9)
    assert not loop.turns.full(), "there is time for more"
    loop.work("b", 0.9)
    assert loop.turns.full()
    loop.turn()
    assert not loop.turns.full()


def test_those_in_line_go_on_one_after_the_other() -> None:
    loop = Loop()
    loop.turns.full()
    loop.work("first", 1)
    assert loop.turns.full()
    for name in "bcd":
        loop.turns.wait(lambda name=name: loop.work(name, 0.6))  # type: ignore[misc]
    assert loop.turn() == [], "the turn before was long"
    assert loop.turn() == ["b", "c"]
    assert loop.turns.full(), "who comes now comes behind d"
    assert [loop.turn(), loop.turn()] == [[], ["d"]]
    assert not loop.turns.full()
    loop.turn()
    assert loop.idle


def test_others_have_as_many_turns_as_somebody_took() -> None:
    loop = Loop()
    loop.turns.full()
    loop.work("long", 3.5)
    assert loop.turns.full()
    loop.turns.wait(lambda: loop.work("again", 1))
    assert [loop.turn() for _ in range(4)] == [[], [], [], ["again"]]


def test_who_waits_again_comes_behind_the_others() -> None:
    loop = Loop()

    def go_on() -> None:
        loop.work("a", 1)
        if loop.now_s < 3 * TURN_S:
            loop.turns.wait(go_on)

    loop.turns.wait(go_on)
    loop.turns.wait(lambda: loop.work("b", 0.1))
    assert [loop.turn() for _ in range(5)] == [["a"], [], ["b", "a"], [], ["a"]]
