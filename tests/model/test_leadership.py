"""Nodes that follow, lead, hand over, are deposed, stop and go on at any moment, over a log that loses answers and fails over.

What was confirmed is at whoever leads next, once.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from random import Random

import pytest

from homing.journal.errors import JournalError
from homing.journal.replication.entry import Entry, Position, after, follow, hash_of
from homing.journal.replication.leader import Leader
from homing.journal.replication.leadership import Hindrance, Watch, follow_until_leading
from homing.journal.replication.log import LogAway, ReplicatedLog, Standing
from tests.model.log_in_memory import NOWHERE, LogInMemory

#: How long a leader is watched before it is taken for gone, in turns.
PATIENCE = 12
TURNS_A_SECOND = 4
_PARTED = ("journal-log-lost", "journal-other-past")
ROUNDS = int(os.environ.get("HOMING_LIVES", 200))


class Node:
    """Its own journal: what it applied, with the place of each in the log. ``durable``: how much of it a power cut leaves."""

    def __init__(self) -> None:
        self.journal: list[tuple[Position, bytes]] = []
        self.durable = 0

    @property
    def at(self) -> Position:
        return self.journal[-1][0] if self.journal else NOWHERE

    @property
    def has(self) -> list[bytes]:
        return [batch for _, batch in self.journal if batch]

    async def apply(self, entries: list[bytes]) -> None:
        for packed in entries:
            entry, at = follow(self.at, packed)
            self.journal.append((at, entry.batch))

    def sync(self) -> None:
        self.durable = len(self.journal)

    def reported(self) -> int:
        """Up to which entry it says that it has all on disk."""
        return self.journal[self.durable - 1][0].number if self.durable else 0

    def lose_power(self) -> None:
        del self.journal[self.durable :]

    def go_back(self, entries: list[bytes]) -> None:
        """Before what the log lost."""
        there = {hash_of(packed) for packed in entries}
        while self.journal and self.at.hash not in there:
            self.journal.pop()
        self.durable = min(self.durable, len(self.journal))

    def rebuild(self, others: list[Node], first: int) -> None:
        """Of another's, as the log begins behind ``first``."""
        source = max(others, key=lambda other: other.at.number)
        assert source.at.number >= first, f"nobody has the entries up to {first}, which are gone"
        self.journal = source.journal[:]
        self.sync()

    def opening(self) -> bytes:
        return b""


class Cluster:
    """Three nodes. Time is a number of turns; whoever is stopped takes none."""

    def __init__(self, seed: int, log: LogInMemory) -> None:
        self.rng, self.log = Random(seed), log
        self.turn = 0
        log.turn = lambda: self.turn
        self.number = 0
        self.confirmed: list[bytes] = []
        self.nodes = [Node() for _ in range(3)]
        self.stopped: set[int] = set()
        self.led: list[int] = []

    async def pause(self, name: int) -> None:
        self.turn += 1
        if self.rng.random() < 0.2:
            self.nodes[name].sync()
        if self.rng.random() < 0.3:
            with suppress(LogAway):
                await self.log.report(str(name), self.nodes[name].reported())
        for _ in range(self.rng.randrange(1, 6)):
            await asyncio.sleep(0)
        while name in self.stopped:  # noqa: ASYNC110 - the order of turns is what is tried
            await asyncio.sleep(0)

    async def life(self, name: int) -> None:
        """Until the test is over: a process that follows, leads, is fenced and begins again, from what its disk has."""
        node = self.nodes[name]
        for life in range(1000):
            me, watch = f"{name} {life}", Watch(str(name), PATIENCE / TURNS_A_SECOND)
            try:
                now_s = lambda: self.turn / TURNS_A_SECOND  # noqa: E731
                leader = await follow_until_leading(self.log, node, me, watch, now_s, lambda _: self.pause(name))
                await self.lead(leader, node, name)
            except JournalError as error:
                if error.code in _PARTED and self.log.failed_over:
                    node.go_back(self.log.entries)
                elif error.code == "journal-left-behind":
                    node.rebuild([other for other in self.nodes if other is not node], self.log.trimmed)
                elif error.code != "journal-fenced":
                    raise

    async def lead(self, leader: Leader, node: Node, name: int) -> None:
        first = True
        while True:
            self.number += 1
            batch = b"%d by %d" % (self.number, name)
            try:
                at = await leader.append(batch)
            except JournalError as error:
                there = {Entry.unpack(entry).batch for entry in self.log.entries}
                if error.code != "journal-fenced" and not set(self.confirmed) - there:
                    raise AssertionError(f"{name} stops, and nothing that was confirmed is missing") from error
                raise
            assert self.log.standing.epoch >= leader.epoch
            if first:  # before it answers anybody
                missing = set(self.confirmed) - set(node.has)
                assert not missing, f"{name} leads and lacks {missing}"
                assert len(node.has) == len(set(node.has)), "something is there twice"
                assert leader.epoch > max(self.led, default=0), "no epoch begins twice, or after a later one"
                self.led.append(leader.epoch)
                first = False
            node.journal.append((at, batch))
            self.confirmed.append(batch)
            with suppress(LogAway):
                await self.log.trim(leader.epoch, 2)
                seen = await self.log.look()
                if seen.epoch == leader.epoch and seen.successor:
                    leader.hand_over()
                    await leader.close()
                    return
            await self.pause(name)

    async def play(self, moves: int, fails_over: bool) -> None:
        tasks = {name: asyncio.create_task(self.life(name)) for name in range(2)}
        joins = self.rng.randrange(moves)
        try:
            for number in range(moves):
                if number == joins:
                    tasks[2] = asyncio.create_task(self.life(2))
                await self._move(tasks, fails_over)
        finally:
            for task in tasks.values():
                task.cancel()
            all_ended = await asyncio.gather(*tasks.values(), *self.log.late, return_exceptions=True)
        for ended in all_ended:
            if isinstance(ended, Exception):
                raise ended
        last = Node()
        await last.apply(self.log.entries)
        assert set(self.confirmed) <= set(last.has)
        assert len(last.has) == len(set(last.has))

    async def _move(self, tasks: dict[int, asyncio.Task[None]], fails_over: bool) -> None:
        for _ in range(self.rng.randrange(60)):
            await asyncio.sleep(0)
        name = self.rng.randrange(5 + fails_over)
        if name == 3:
            change = self.log.depose if self.rng.random() < 0.2 else self.log.name_successor
            change(str(self.rng.randrange(3)))
        elif name == 4:  # wherever the power is cut, what was not synced is gone
            for each in self.rng.sample(list(tasks), self.rng.randrange(1, len(tasks) + 1)):
                await self._kill(tasks, each)
        elif name == 5:
            self.log.fail_over()
        elif name in self.stopped:
            self.stopped.discard(name)
        elif self.rng.random() < 0.5:
            self.stopped.add(name)
        elif name in tasks:  # killed, in the middle of whatever it does
            await self._kill(tasks, name, power=False)
        for task in tasks.values():
            if task.done():
                task.result()

    async def _kill(self, tasks: dict[int, asyncio.Task[None]], name: int, power: bool = True) -> None:
        tasks[name].cancel()
        await asyncio.gather(tasks[name], return_exceptions=True)
        if power:
            self.nodes[name].lose_power()
        tasks[name] = asyncio.create_task(self.life(name))


async def play_all(log: type[LogInMemory], fails_over: bool) -> list[Cluster]:
    clusters = [Cluster(seed, log(Random(seed), trouble=0.2)) for seed in range(ROUNDS)]
    for seed, cluster in enumerate(clusters):
        try:
            await cluster.play(30, fails_over)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return clusters


async def test_what_was_confirmed_is_at_every_later_leader() -> None:
    clusters = await play_all(LogInMemory, True)
    led, confirmed = (sum(len(each) for each in found) for found in zip(*((c.led, c.confirmed) for c in clusters), strict=True))
    print(f"{led} leaders, {confirmed} confirmed")
    assert led > 2 * ROUNDS
    assert confirmed > 10 * ROUNDS
    taken = [each for cluster in clusters for each in cluster.log.taken]
    named = [(seen.successor, me.partition(" ")[0], turns) for seen, me, turns in taken if seen.successor and not seen.leader]
    others = [turns for successor, node, turns in named if node != successor]
    print(f"{len(named)} handed over, {len(others)} of them to another node than was named")
    assert len(named) - len(others) > ROUNDS / 4
    assert others, "nobody waited for a node that did not come"
    assert min(others) >= PATIENCE


async def test_nobody_writes_between_a_fence_and_the_first_entry_behind_it() -> None:
    log = LogInMemory(Random(1))
    leader = Leader(log, 0, NOWHERE)
    await leader.append(b"before")
    assert await log.fence(await log.look(), "b")
    with pytest.raises(JournalError, match="journal-fenced: Another node leads: b, in epoch 1"):
        await leader.append(b"after")
    assert len(log.entries) == 1


def test_a_node_with_another_clock_never_leads_and_one_without_room_only_where_no_other_does() -> None:
    led, free, named = Standing(1, 1, b"", "a 1"), Standing(1, 1, b"", ""), Standing(1, 1, b"", "", "b")
    other = named._replace(successor="c")
    for seen, hindrance, leads_after_s in (
        *((free, Hindrance.NONE, 0), (named, Hindrance.NONE, 0), (led, Hindrance.NONE, 3), (other, Hindrance.NONE, 3)),
        *((free, Hindrance.DISK, 6), (named, Hindrance.DISK, 0), (led, Hindrance.DISK, 6), (other, Hindrance.DISK, 6)),
        *((each, Hindrance.CLOCK, 99) for each in (free, named, led, other)),
    ):
        watch = Watch("b", 3)
        watch.hindrance = hindrance
        assert next((now_s for now_s in range(20) if watch.saw(seen, now_s)), 99) == leads_after_s


def test_who_is_named_to_lead_next_looks_all_the_time() -> None:
    watch, led = Watch("b", 3), Standing(1, 1, b"", "a 1")
    pauses_s = []
    for seen in (led, led._replace(successor="c"), led._replace(successor="b")):
        watch.saw(seen, 0)
        pauses_s.append(watch.again_s())
    watch.forget()
    assert pauses_s[0] == pauses_s[1] == watch.again_s() > 3 * pauses_s[2]


async def test_what_was_lost_before_anybody_was_answered_is_added_again() -> None:
    """A standby that has read it waits for that as long as it would for a leader."""
    log = LogInMemory(Random(1))
    assert await log.fence(await log.look(), "b")
    leader, standby = Leader(log, 1, NOWHERE), Node()
    await leader.append(b"proved")
    proved = log.standing
    entry, at = after(leader.at, 1, b"not proved")
    assert await log.append(leader.at, at, entry)
    await standby.apply(log.entries)
    log.standing = proved
    log.entries.pop()
    now_s, again = 0, list[bytes]()

    async def pause(_: float) -> None:
        nonlocal now_s
        now_s += 1
        if again:
            await leader.append(again.pop(0))
        if b"more" in standby.has:
            raise asyncio.CancelledError

    with pytest.raises(JournalError, match="journal-log-lost"):
        await follow_until_leading(log, standby, "a", Watch("a", 3), lambda: now_s, pause)
    assert now_s == 3
    again += b"not proved", b"more"
    with pytest.raises(asyncio.CancelledError):
        await follow_until_leading(log, standby, "a", Watch("a", 3), lambda: now_s, pause)
    assert standby.has == [b"proved", b"not proved", b"more"]


async def test_a_log_with_another_past_is_refused() -> None:
    log = LogInMemory(Random(1))
    leader = Leader(log, 0, NOWHERE)
    at = [await leader.append(b"%d" % number) for number in range(3)][-1]
    entry, other = after(NOWHERE, 0, b"another")
    log.entries, log.standing = [entry], Standing(0, 1, other.hash, "")
    with pytest.raises(JournalError, match=r"journal-log-lost: .* ends with entry 1 .* knows entry 3"):
        await leader.append(b"more")
    node = Node()
    node.journal.append((at, b""))
    ours: ReplicatedLog = log
    with pytest.raises(JournalError, match=r"journal-log-lost: .* ends with entry 1 .* knows entry 3"):
        await follow_until_leading(ours, node, "a", Watch("a", 3), lambda: 0)
    # Another node took the lead since, and went on without it; or the log begins behind it.
    log.entries, log.standing = [entry, *[after(other, 1, b"%d" % number)[0] for number in range(5)]], Standing(2, 6, other.hash, "b")
    with pytest.raises(JournalError, match="journal-other-past"):
        await follow_until_leading(ours, node, "a", Watch("a", 3), lambda: 0)
    log.entries = []
    with pytest.raises(JournalError, match=r"journal-left-behind: .* up to entry 3, and the log begins with entry 7"):
        await follow_until_leading(ours, node, "a", Watch("a", 3), lambda: 0)
