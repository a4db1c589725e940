"""``scripts/check-fail-over [--rounds 20] [--seed N] [--nodes 3] [--faults a,b]``: the kill loop over a cluster: leaders and databases end.

Its PostgreSQL has two synchronous standbys, and is reached over wires that fail. Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from homing.journal.replication.entry import beginning
from homing.journal.replication.postgresql import Access, PostgresLog
from tests.faults.kill_loop.checker import Kind, Violation
from tests.faults.kill_loop.events import OK, now_ms
from tests.faults.kill_loop.loop import KillLoop, Options, Result
from tests.faults.kill_loop.nodes import DEPOSED, Nodes
from tests.faults.kill_loop.replaying import Replay
from tests.faults.kill_loop.wires import Trouble, Wires
from tests.faults.small_disk import fill_up, mount, unmount
from tests.postgresql import Postgres, Standbys

_MOST_SHOWN: Final = 40
#: How long the wires of all fail, or PostgreSQL's standbys are away.
_AWAY_S: Final = 6.0
#: Of each node, and of each server of the database, where disks are filled up.
DISK_MIB: Final = 1024
#: How long the wires of a leader fail, and it has no reason to end: longer than its clients are to stay with it.
_ALONE_S: Final = 10.0
#: What was on its way at a fault is no sign of a new leader.
_ON_ITS_WAY_MS: Final = 200.0
_CONFIRMED_S: Final = 60.0
_LED_S: Final = 60.0
#: What a leader says that begins to stop, and has.
_STOPPING: Final = (" handing-over: ", " stopping: ")
_STOPPED: Final = " stopped: in order"
#: When a leader is killed after what it does was begun.
_WITHIN_SWITCH_S: Final = (0.2, 1.2)
_WITHIN_JOIN_S: Final = (0.2, 2.5)
#: Whoever lacks no more than so many entries has joined.
_NEAR: Final = 100
#: Until somebody promotes a standby of a primary that is gone.
_PROMOTED_S: Final = (0.2, 4.0)


class FailOvers(KillLoop):
    """``nodes`` of them. With ``standbys`` the database fails, too, and wires to it; else it is one server that stays, at ``database``.

    ``gaps_ms``: by fault, how long each time nothing was confirmed; ``begun``: by fault, how often another leader began.
    """

    def __init__(
        self,
        directory: Path,
        options: Options,
        faults: list[str],
        database: str,
        standbys: Standbys | None = None,
        nodes: int = 3,
        fail_over_after_s: float = 3.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        names = list("abcdefgh"[:nodes])
        self._faults, self._database, self._standbys, self._say = faults, database, standbys, say
        servers = [] if standbys is None else [server.port for server in standbys.servers.values()]
        self._wires = Wires([(name, server) for name in names for server in servers], options.seed)
        # Whoever replays the log is one more that needs it.
        own = {"fail-over-after": f"{fail_over_after_s:g}s", "storage-is-replicated": standbys is None, "copies": nodes + 1}
        self._sections = {name: {"url": database if standbys is None else self._wires.url(name), **own} for name in names}
        super().__init__(directory, options)
        #: Between clients and nodes; nodes reach each other past them.
        self._doors = Wires([] if standbys is None else self._nodes.listeners, options.seed)
        if standbys is not None:
            self._nodes.url = "homing://" + ",".join(f"127.0.0.1:{self._doors.before(port)}" for port in self._nodes.ports)
            self._amqp_port = self._doors.before(self._amqp_port)
        self._replay = Replay(directory / "replay", database, self.rules.ours)
        self._chance = Random(options.seed)
        self._read: dict[Path, int] = {}
        #: Whose disk was full.
        self._full: set[str] = set()
        #: Of each client, when something was confirmed to it.
        self._confirms: dict[Path, list[float]] = defaultdict(list)
        self.gaps_ms: dict[str, list[float]] = defaultdict(list)
        self.begun: dict[str, int] = defaultdict(int)

    def _make_broker(self, directory: Path, config: dict[str, Any]) -> Nodes:
        asyncio.run(_make_cell(self._database))
        return Nodes(directory, config, self.options.module, self._database, self._sections, DISK_MIB if "disk" in self._faults else 0)

    @property
    def _nodes(self) -> Nodes:
        nodes: Nodes = self._broker
        return nodes

    def run(self) -> Result:
        try:
            return super().run()
        finally:
            self._doors.close()
            self._wires.close()

    def _end_first(self) -> None:
        """It goes on to lead."""

    def _round(self, number: int) -> None:
        nodes = self._nodes
        nodes.spawn()
        self._wait_until_ready()
        self._snapshots += self._replay.go_on(f"before {number}")
        self._chance_to_work()
        nodes.check_alive()
        fault = self._faults[(number - 1) % len(self._faults)]
        led, stopping, stopped = nodes.leader, nodes.said(*_STOPPING), nodes.said(_STOPPED)
        at_ms = self._down_since_ms = now_ms()
        FAULTS[fault](self)
        self._wait_until_ready()
        self._until_confirmed()
        gap_ms = _gap_ms(sorted(chain(*self._confirms.values())), at_ms)
        waited_ms = max(_gap_ms(each, at_ms) for path, each in self._confirms.items() if "producer" in path.name)
        # Who is killed in the middle of a stop may have come to its end, or halfway.
        told: dict[str, Any] = {"orderly": nodes.said(_STOPPED) > stopped, "stopping": nodes.said(*_STOPPING) > stopping}
        if fault == "disk":
            # Whoever stops on a full one keeps nothing that is not durable, and says so.
            told |= {"orderly": False, "full_t": at_ms}
        found = self._replay.go_on(f"{fault} {number}", **told)
        self._snapshots += found
        if fault in _LIVES_ON:
            self._cuts.append((at_ms, now_ms()))
        self.gaps_ms[fault].append(gap_ms)
        self.begun[fault] += len(found)
        self._say(f"round {number}: {fault} of {led}, {nodes.leader} leads; no confirm for {gap_ms:.0f} ms, of one client {waited_ms:.0f}")

    def _chance_to_work(self) -> None:
        time.sleep(self._chance.uniform(self.options.least_ms, self.options.most_ms) / 1000)

    def _until_confirmed(self) -> None:
        """Something is confirmed from now on."""
        since_ms = now_ms() + _ON_ITS_WAY_MS
        end = time.monotonic() + _CONFIRMED_S
        while not any(t > since_ms for each in self._confirms.values() for t in each[-1:]):
            if time.monotonic() > end:
                self._stuck(f"nothing was confirmed for {_CONFIRMED_S:.0f} s (see the nodes' logs)")
                return
            time.sleep(0.1)
            self._take_confirms()

    def _take_confirms(self) -> None:
        self._flush()
        for path in self._directory.glob("clients*.jsonl"):
            with path.open() as lines:
                lines.seek(self._read.get(path, 0))
                events = [json.loads(line) for line in lines.readlines()]
                self._confirms[path] += [event["t"] for event in events if event["e"] in ("sent", "committed") and event["outcome"] == OK]
                self._read[path] = lines.tell()

    def _export_under_load(self) -> None:
        """What an export's moment is, check-faults judges. Here tools have seen ids of what its leader took along, unconfirmed."""

    # -- faults

    def kill(self) -> None:
        self._nodes.kill()

    def stop(self) -> None:
        if code := self._nodes.stop_leader():
            self._stuck(f"a leader stopped with exit code {code}: {self._nodes.log_tail()}")

    def pause(self, least_s: float = 0.0) -> None:
        """No longer than another takes to lead: clients read yet what it has sent; or so long that they left it before."""
        led = self._nodes.led_by()
        paused = self._nodes.pause()
        time.sleep(least_s)
        self._until_led_by_another(led)
        if (code := paused.go_on()) != DEPOSED:
            self._stuck(f"a leader that was paused ended with exit code {code}: {self._nodes.log_tail()}")

    def replaying(self) -> None:
        """The next leader dies before it serves anybody."""
        led = self._nodes.led_by()
        self._nodes.kill()
        self._nodes.kill_while_replaying(self._until_led_by_another(led))

    def _until_led_by_another(self, led: tuple[int, str]) -> str:
        end = time.monotonic() + _LED_S
        while (now := self._nodes.led_by()) == led:
            assert time.monotonic() < end, f"nobody else leads: {self._nodes.log_tail()}"
        return now[1]

    def switch(self) -> None:
        """The leader hands over; and if the database was away for long, once another node has said again that it is there."""
        end = time.monotonic() + _LED_S
        while code := self._nodes.switch_over().wait(_LED_S):
            if not self._nodes.had_no_standby() or time.monotonic() > end:
                self._stuck(f"homing cluster switch-over ended with exit code {code}: {self._nodes.log_tail()}")
                return
            time.sleep(0.5)

    def switch_kill(self) -> None:
        """It dies while it does."""
        switching = self._nodes.switch_over()
        time.sleep(self._chance.uniform(*_WITHIN_SWITCH_S))
        self._nodes.kill()
        switching.wait(_LED_S)

    def join(self) -> None:
        """A standby begins anew with an empty disk."""
        self._until_joined(self._begin_anew())

    def join_kill(self) -> None:
        """The leader dies while it does."""
        name = self._begin_anew()
        time.sleep(self._chance.uniform(*_WITHIN_JOIN_S))
        self._nodes.kill()
        self._wait_until_ready()
        self._until_joined(name)

    def _begin_anew(self) -> str:
        """A standby; returns its name. Whoever came to the leader by it is cut off."""
        since_ms = now_ms()
        name = self._nodes.begin_anew()
        self._cuts.append((since_ms, now_ms()))
        return name

    def _until_joined(self, name: str) -> None:
        end = time.monotonic() + _LED_S
        while self._nodes.behind(name) > _NEAR:
            if time.monotonic() > end:
                self._stuck(
                    f"a node that began anew lacks {self._nodes.behind(name)} entries after {_LED_S:.0f} s: {self._nodes.log_tail()}"
                )
                return
            self._nodes.check_alive()
            time.sleep(0.1)

    def mute(self) -> None:
        """PostgreSQL's answers do not come to the leader."""
        self._trouble([self._nodes.leader], Trouble.MUTE, _ALONE_S)

    def cut(self) -> None:
        """The leader is cut off from PostgreSQL."""
        self._trouble([self._nodes.leader], Trouble.CUT, _ALONE_S)

    def unseen(self) -> None:
        """The leader is cut off from its clients alone: they come to it by another node."""
        led = self._nodes.led_by()
        self._doors.set([led[1]], Trouble.CUT)
        self._until_confirmed()
        time.sleep(_ALONE_S)
        self._doors.set([led[1]], Trouble.NONE)
        if (leads := self._nodes.led_by()) != led:
            self._stuck(f"{leads} leads in the place of {led}, which clients alone did not reach")

    def disk(self) -> None:
        """The leader's disk is full: another node leads. Once there is room it stands by."""
        led = self._nodes.led_by()
        self._full.add(led[1])
        theirs = fill_up(self._nodes.disk)
        try:
            self._until_led_by_another(led)
            self._wait_until_ready()
            self._until_confirmed()
        finally:
            theirs.unlink()

    def full(self) -> None:
        """PostgreSQL's disk is full: its tables take no more, or its WAL, for which it ends. It is started again once there is room."""
        assert self._standbys is not None
        primary = self._standbys.primary
        theirs = fill_up(primary.data)
        if self._chance.random() < 0.5:
            asyncio.run(primary.write_wal())
        time.sleep(_AWAY_S)
        theirs.unlink()
        if primary.has_ended:
            self._say("PostgreSQL ended for want of room in its WAL")
            primary.start()

    def cut_all(self) -> None:
        """All are cut off from PostgreSQL, so nobody else leads."""
        self._trouble(self._nodes.names, self._chance.choice([Trouble.CUT, Trouble.MUTE]))

    def lossy(self) -> None:
        self._trouble(self._nodes.names, Trouble.LOSSY)

    def _trouble(self, nodes: list[str], trouble: Trouble, for_s: float = _AWAY_S) -> None:
        self._wires.set(nodes, trouble)
        time.sleep(for_s)
        self._wires.set(nodes, Trouble.NONE)

    def primary(self) -> None:
        """The server dies; or its machine does, which does not refuse connections then."""
        standbys = self._standbys
        assert standbys is not None
        port = standbys.primary.port
        vanishes = self._chance.random() < 0.5
        if vanishes:
            self._wires.vanish(port)
        standbys.kill_primary()
        time.sleep(self._chance.uniform(*_PROMOTED_S))
        asyncio.run(standbys.promote())
        if vanishes:
            self._until_confirmed()
            self._wires.come_back(port)

    def waits(self) -> None:
        """None of PostgreSQL's standbys is there for a while: nothing is confirmed, and nobody else leads."""
        assert self._standbys is not None
        led, paused = self._nodes.led_by(), [server.pause() for server in self._standbys.others]
        since_ms = now_ms() + _ON_ITS_WAY_MS
        time.sleep(_AWAY_S)
        self._take_confirms()
        for pids in paused:
            Postgres.go_on(pids)
        if early := [t for each in self._confirms.values() for t in each if t > since_ms]:
            self._violations.append(Violation(Kind.LOST, f"{len(early)} sends were confirmed while no standby of PostgreSQL was there"))
        self._until_confirmed()
        if (leads := self._nodes.led_by()) != led:
            self._stuck(f"{leads} leads in the place of {led}, though PostgreSQL's standbys alone were away")

    def unproved(self) -> None:
        """An entry that was on the primary alone, and is seen there, is lost with it."""
        assert self._standbys is not None
        asyncio.run(self._standbys.lose_what_waits())

    def both(self) -> None:
        self._nodes.kill()
        self.primary()

    def whole(self) -> Path:
        if not self._full:
            return super().whole()
        # On a full disk no history is written.
        self._replay.go_on("the end")
        return self._replay.directory

    def result(self, account_: Any) -> Result:
        if account_ is not None:
            self._replay.go_on("the end")
            self._violations += [
                Violation(Kind.JOURNAL, f"replay: {text}") for text in self._replay.compare(self._nodes.journals, self._full)
            ]
        result = super().result(account_)
        result.figures |= {
            "entries replayed": f"{self._replay.entries}, of which the log has those from {self._replay.first} on",
            "copies made anew": self._nodes.said("rebuilt: "),
        }
        return result


#: Those of one server that stays; and those of wires and a database that fails.
PLAIN: Final = ("kill", "pause", "stop")
FAULTS: Final[dict[str, Callable[[FailOvers], None]]] = {
    "kill": FailOvers.kill,
    "pause": FailOvers.pause,
    "pause_long": partial(FailOvers.pause, least_s=_AWAY_S),
    "primary": FailOvers.primary,
    "both": FailOvers.both,
    "mute": FailOvers.mute,
    "cut": FailOvers.cut,
    "unseen": FailOvers.unseen,
    "disk": FailOvers.disk,
    "full": FailOvers.full,
    "replaying": FailOvers.replaying,
    "lossy": FailOvers.lossy,
    "cut_all": FailOvers.cut_all,
    "waits": FailOvers.waits,
    "unproved": FailOvers.unproved,
    "switch": FailOvers.switch,
    "switch_kill": FailOvers.switch_kill,
    "join": FailOvers.join,
    "join_kill": FailOvers.join_kill,
    "stop": FailOvers.stop,
}
#: Those that another node is to lead after, PostgreSQL being there.
_OF_NODES: Final = ("kill", "disk", "pause", "pause_long", "mute", "cut", "replaying", "switch", "switch_kill", "join_kill", "stop")

_OF_DISKS: Final = ("disk", "full")
#: Those in which connections are lost to a leader that lives on: it hangs up, or wires fail.
_LIVES_ON: Final = ("primary", "mute", "cut", "unseen", "full", "lossy", "cut_all", "waits", "unproved")


def _no_small_disks() -> str:
    """Why none can be made here."""
    with tempfile.TemporaryDirectory() as place:
        why = mount(Path(place), 1)
        if not why:
            unmount(Path(place))
        return why


def _gap_ms(confirms: Sequence[float], since_ms: float) -> float:
    """The longest time without one of them that ended later; 0 where nothing was confirmed since."""
    return max((after - before for before, after in pairwise(confirms) if after > since_ms), default=0.0)


async def _make_cell(database: str) -> None:
    broker_id = secrets.token_hex(16)
    async with PostgresLog(Access(database, "main")) as log:
        await log.make(broker_id, beginning(broker_id))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/check-fail-over", description="End leaders under working clients and see what the next ones have."
    )
    parser.add_argument(
        "--rounds", type=int, default=20, help="how many faults there are (20); in more than 40 something dies more than 32 times"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats the same decisions (processes keep their own time, though)")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS), help=f"in turn (all: {','.join(FAULTS)})")
    parser.add_argument("--keep", type=Path, default=None, help="keep logs, journals and exports in this directory; it must not exist")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    options = Options(rounds=arguments.rounds, seed=seed, module="tests.faults.kill_loop.small_log")
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="homing-fail-over-"))
    directory.mkdir(parents=True, exist_ok=arguments.keep is None)
    print(f"seed {options.seed}, {options.rounds} rounds, {arguments.nodes} nodes, in {directory}", flush=True)
    faults = [fault for fault in arguments.faults if fault not in _OF_DISKS]
    if why := _no_small_disks():
        print(f"not tried: {', '.join(_OF_DISKS)}: {why}", flush=True)
    else:
        faults = arguments.faults
    standbys = Standbys(DISK_MIB if "full" in faults else 0)
    try:
        url = standbys.start().url
        loop = FailOvers(directory, options, faults, url, standbys, arguments.nodes, say=lambda line: print(line, flush=True))
        result = loop.run()
    finally:
        standbys.stop()
    for name, value in result.figures.items():
        print(f"  {name}: {value}")
    for fault, gaps_ms in loop.gaps_ms.items():
        gaps = f"without a confirm {median(gaps_ms):.0f} ms (half), {max(gaps_ms):.0f} ms (worst)"
        print(f"{len(gaps_ms)} × {fault}: {loop.begun[fault]} fail-overs, {gaps}")
    if alone := [gap for fault in _OF_NODES for gap in loop.gaps_ms[fault]]:
        print(f"PostgreSQL alive: without a confirm {median(alone):.0f} ms (half), {max(alone):.0f} ms (worst)")
    for violation in result.violations[:_MOST_SHOWN]:
        print(f"  {violation}")
    print(f"{sum(loop.begun.values())} fail-overs, {len(result.violations)} promises were broken")
    if not result.violations and arguments.keep is None:
        shutil.rmtree(directory)
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
