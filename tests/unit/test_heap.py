"""Memory goes back to the system, whenever it is let go."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from homing.broker.core.dead_letter import targets_named
from homing.broker.process import heap
from homing.broker.shares import Share

MIB = 1 << 20


def test_what_is_let_go_after_the_account_had_it_back_goes_back_to_the_system_too(monkeypatch: pytest.MonkeyPatch) -> None:
    process = {"rss": 50 * MIB, "free": 0, "charged": 0, "trims": 0}

    def trim(_: int) -> None:
        process["rss"] -= process["free"]
        process["free"] = 0
        process["trims"] += 1

    monkeypatch.setattr(heap, "resident_bytes", lambda: process["rss"])
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(malloc_trim=trim))
    now_s = [0.0]
    watched = heap.Heap(lambda: process["charged"], lambda: now_s[0], lambda: None)

    def look(times: int) -> None:
        for _ in range(times):
            now_s[0] += 5
            watched.look()

    process |= {"rss": 300 * MIB, "charged": 250 * MIB}
    look(5)
    assert process["trims"] == 0
    # The account has it back, and what held it is still there; then it is not.
    process["charged"] = 0
    look(2)
    process["free"] = 240 * MIB
    look(4)
    assert process["rss"] == 60 * MIB
    # What stays in use beyond the account is got used to.
    process |= {"rss": 400 * MIB, "charged": 100 * MIB}
    look(20)
    before = process["trims"]
    look(20)
    assert process["trims"] == before


def test_what_can_be_made_again_is_released_where_nothing_is_in_use_and_trimmed_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    process = {"rss": 50 * MIB, "charged": 0}
    done: list[str] = []
    monkeypatch.setattr(heap, "resident_bytes", lambda: process["rss"])
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(malloc_trim=lambda _: done.append("trim")))
    now_s = [0.0]
    watched = heap.Heap(lambda: process["charged"], lambda: now_s[0], lambda: done.append("release"))

    def looked(times: int) -> list[str]:
        done.clear()
        for _ in range(times):
            now_s[0] += 5
            watched.look()
        return done

    process |= {"rss": 300 * MIB, "charged": 200 * MIB}
    assert looked(1) == ["trim"]
    process["charged"] = 0
    assert looked(1) == ["release", "trim"]
    # What was made meanwhile among what is gone may keep memory, too: again, after ever longer.
    assert looked(1) == ["trim"]
    assert looked(1) == ["release", "trim"]
    assert looked(7).count("release") == 1
    process["rss"] = 60 * MIB
    assert looked(200) == []


def test_everything_is_collected_only_where_cycles_may_hold_much(monkeypatch: pytest.MonkeyPatch) -> None:
    process = {"rss": 50 * MIB, "charged": 0}
    collected: list[int] = []
    monkeypatch.setattr(heap, "resident_bytes", lambda: process["rss"])
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(malloc_trim=lambda _: None))
    monkeypatch.setattr("gc.collect", lambda: collected.append(process["rss"] // MIB))
    now_s = [0.0]
    watched = heap.Heap(lambda: process["charged"], lambda: now_s[0], lambda: None)
    # Messages come, and connections that end: some 2 MiB a look.
    process["charged"] = 500 * MIB
    process["rss"] += process["charged"]
    for _ in range(200):
        now_s[0] += 5
        process["rss"] += 2 * MIB
        watched.look()
    # What no collection gives back is got used to.
    assert collected == [648, 746, 844, 942]


class Asked:
    """Allowance and settings in one: what was asked of it, by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getattr__(self, name: str) -> None:
        self.names.append(name)

    def values_of(self, field: str) -> set[str]:
        self.names.append(field)
        return set()


def test_attributes_are_looked_up_under_names_that_are_there_anyway() -> None:
    """The interpreter remembers lookups under their names: one that is made anew each time stays, where a message was, each time."""
    asked: Any = Asked()
    Share("somebody", "user-limits", asked).check("connections", 1)
    assert not list(targets_named("DLQ.orders", asked))
    assert asked.names[0] == "max_connections"
    assert len(asked.names) == 5
    assert all(name is sys.intern(name) for name in asked.names)
