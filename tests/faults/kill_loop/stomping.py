"""A broker killed under a STOMP client: what had a receipt is there, what was acknowledged with one is gone, and a transaction is all or
nothing.

The client sends bursts with receipts and acknowledges what comes one by one, every fourth in a transaction that sends it on. Between two
brokers the journal is looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from homing.broker.protocols.stomp.codec import frame
from tests.faults.kill_loop.events import Snapshot
from tests.faults.kill_loop.processes import Broker
from tests.faults.kill_loop.snapshots import take_snapshot
from tests.process import free_port
from tests.stomp_support import Link, Told

_QUEUE, _ON = "stomped", "stomped.on"
_LATER_S: Final = 0.02


@dataclass
class Stomping:
    directory: Path
    seed: int
    burst: int = 200
    violations: list[str] = field(default_factory=list)
    kills: int = 0
    #: Keys by what is known of them: its receipt came; an acknowledgement was sent, and has its receipt; the same of those sent on.
    confirmed: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    sent_on: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)

    def run(self, kills: int) -> None:
        port = free_port()
        broker = Broker(self.directory, {"journal": {"disk-reserve": 0}, "stomp": {"port": port}}, free_port())
        place: Any = SimpleNamespace(ready={"stomp": f"127.0.0.1:{port}"})
        rng = Random(self.seed)
        try:
            for number in range(kills):
                broker.spawn()
                broker.wait_until_ready()
                link = Link(place)
                self._begin(link, number)
                for _ in range(rng.randrange(self.burst // 4, self.burst)):
                    self._take(link, link.next())
                # A slow disk confirms nothing until much has been handed out.
                while not any(key.startswith(f"{number}-") for key in self.confirmed):
                    self._take(link, link.next())
                time.sleep(rng.uniform(0, _LATER_S))
                broker.kill()
                with suppress(EOFError, ConnectionError):
                    while True:
                        self._note(link.next())
                link.close()
                self.kills += 1
                self._look(take_snapshot(broker.data, f"kill {self.kills}"))
        finally:
            broker.close()

    def _begin(self, link: Link, number: int) -> None:
        subscribe = frame("SUBSCRIBE", [("id", "s"), ("destination", f"/queue/{_QUEUE}"), ("ack", "client-individual")])
        sends = [
            frame("SEND", [("destination", f"/queue/{_QUEUE}"), ("persistent", "true"), ("receipt", f"sent {key}")], key.encode())
            for key in [f"{number}-{place}" for place in range(self.burst)]
        ]
        link.socket.sendall(subscribe + b"".join(sends))

    def _take(self, link: Link, told: Told) -> None:
        self._note(told)
        if told.command != "MESSAGE":
            return
        key, ack = told.body.decode(), ("id", told.headers["ack"])
        if key in self.done | self.known:
            self.violations.append(f"{key} came again, though its acknowledgement had a receipt")
        if int(key.partition("-")[2]) % 4:
            self.tried.add(key)
            link.socket.sendall(frame("ACK", [ack, ("receipt", f"done {key}")]))
            return
        self.sent_on.add(key)
        within = ("transaction", key)
        link.socket.sendall(
            frame("BEGIN", [within])
            + frame("SEND", [("destination", f"/queue/{_ON}"), ("persistent", "true"), within], told.body)
            + frame("ACK", [ack, within])
            + frame("COMMIT", [within, ("receipt", f"known {key}")])
        )

    def _note(self, told: Told) -> None:
        if told.command == "RECEIPT":
            what, _, key = told.headers["receipt-id"].partition(" ")
            {"sent": self.confirmed, "done": self.done, "known": self.known}[what].add(key)

    def _look(self, snapshot: Snapshot) -> None:
        self.violations += snapshot.problems
        here, on = (Counter(entry.key for entry in snapshot.entries if entry.queue == queue) for queue in (_QUEUE, _ON))
        wrong = {
            "are there twice": {key for key, count in (here + on).items() if count > 1},
            "were confirmed and are nowhere": self.confirmed - here.keys() - on.keys() - self.tried,
            "are there, though their acknowledgement had a receipt": self.done & here.keys(),
            "were sent on, as a receipt says, and are not there": self.known - on.keys(),
            "were sent on by nobody": on.keys() - self.sent_on,
        }
        self.violations += [f"at {snapshot.name} {sorted(keys)[:9]} {what}" for what, keys in wrong.items() if keys]
