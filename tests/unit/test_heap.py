"""Memory goes back to the system, whenever it is let go."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from homing.broker.process import heap

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
    watched = heap.Heap(lambda: process["charged"], lambda: now_s[0])

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
    process["rss"] = 300 * MIB
    look(20)
    before = process["trims"]
    look(20)
    assert process["trims"] == before
