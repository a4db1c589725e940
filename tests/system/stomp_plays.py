"""The same STOMP frames for another broker and for ours: what each says, and where that may differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from tests.process import ROOT, Server
from tests.stomp_support import Link, StompRefused, Told
from tests.system.check import Failed, Place

#: Nothing more is expected of either once it was silent for so long.
_QUIET_S: Final = 1.0
#: At the port of a broker; what was seen.
Play = Callable[[int], str]


class Different(NamedTuple):
    theirs: str
    ours: str


class Wire(Link):
    """``port``: of either broker."""

    def __init__(self, port: int, **headers: str) -> None:
        self._early: list[Told] = []
        place: Any = SimpleNamespace(ready={"stomp": f"127.0.0.1:{port}"})
        super().__init__(place, **{"login": "admin", "passcode": "admin", "host": "localhost", **headers})

    def sure(self, command: str, body: bytes = b"", /, **headers: str) -> list[Told]:
        """What came before the receipt comes with the rest."""
        self._early += super().sure(command, body, **headers)
        return []

    def comes(self) -> list[Told]:
        """All that comes before it is quiet; an ERROR is one of it, and the end another."""
        found, self._early = self._early, list[Told]()
        self.socket.settimeout(_QUIET_S)
        try:
            while True:
                found.append(self.next())
        except TimeoutError:
            return found
        except StompRefused:
            return [*found, Told("ERROR", {}, b"")]
        except (EOFError, ConnectionError):
            return [*found, Told("END", {}, b"")]

    def bodies(self) -> str:
        return " ".join(each.body.decode() if each.command == "MESSAGE" else each.command for each in self.comes()) or "nothing"


def filled(port: int, queue: str, number: int = 3, mode: str = "client-individual", **headers: str) -> tuple[Wire, list[Told]]:
    """So many messages in a queue, and what comes of them to a subscription."""
    link = Wire(port)
    for each in range(number):
        link.sure("SEND", str(each).encode(), destination=f"/queue/{queue}", persistent="true")
    link.send("SUBSCRIBE", id="s", destination=f"/queue/{queue}", ack=mode, **headers)
    return link, link.comes()


def subscribed(port: int, destination: str, **headers: str) -> Wire:
    link = Wire(port)
    link.sure("SUBSCRIBE", id="s", destination=destination, **headers)
    return link


def said(found: list[Told], *names: str) -> str:
    """Bodies and these headers."""
    heads = ["".join(f" {name}={each.headers.get(name)}" for name in names) for each in found]
    bodies = [each.body.decode() if each.command == "MESSAGE" else each.command for each in found]
    return "; ".join(body + head for body, head in zip(bodies, heads, strict=True)) or "nothing"


def kept_for_a_durable_subscription(port: int, client: dict[str, str], subscribe: dict[str, str]) -> str:
    """While it was away. ``client``: how it connects."""
    first = Wire(port, **client)
    first.sure("SUBSCRIBE", **subscribe)
    first.sure("DISCONNECT")
    Wire(port).sure("SEND", b"kept", destination=subscribe["destination"], persistent="true")
    second = Wire(port, **client)
    second.send("SUBSCRIBE", **subscribe)
    return said(second.comes(), "destination", "subscription")


def left(port: int, queue: str) -> str:
    link, found = filled(port, queue, 0, "auto")
    link.close()
    return " ".join(each.body.decode() for each in found) or "nothing"


def played(plays: Sequence[Play], port: int) -> dict[str, str]:
    found = {}
    for play in plays:
        try:
            found[play.__name__] = play(port)
        except (StompRefused, EOFError, OSError, ValueError, KeyError, IndexError) as error:
            found[play.__name__] = f"{type(error).__name__}: {error}"[:200].strip()
    return found


def compared(
    theirs: dict[str, str], place: Place, config: dict[str, Any], plays: Sequence[Play], different: Mapping[str, Different], page: str
) -> str:
    """Plays to ours as well. Raises Failed where there are other differences than are meant, or a page of the docs says others."""
    server = Server(place.directory / "ours", config).start()
    try:
        ours = played(plays, int(server.ready["stomp"].rpartition(":")[2]))
    finally:
        server.close()
    seen = {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]}
    if seen != different:
        raise Failed("other differences than are meant:\n" + "\n".join(f"{name}: {a!r} there, {b!r} here" for name, (a, b) in seen.items()))
    docs = (ROOT / "docs" / page).read_text()
    if unsaid := [name for name, each in different.items() if f"| {name.replace('_', ' ')} | {each.theirs} | {each.ours} |" not in docs]:
        raise Failed(f"docs/{page} does not say {unsaid}")
    return f"{len(theirs)} plays of frames, of which {len(seen)} end otherwise, as meant"


# -- plays that both other brokers are asked for ---------------------------------------------------------------------------


def versions(port: int) -> str:
    return " ".join(Wire(port, accept_version=each).connected.headers.get("version", "none") for each in ("1.0", "1.0,1.1", "1.0,1.1,1.2"))


def what_is_acknowledged_up_to_one(port: int) -> str:
    link, found = filled(port, "p.upto", mode="client")
    link.send("ACK", id=found[1].headers["ack"])
    link.sure("DISCONNECT")
    return left(port, "p.upto")


def an_ack_of_nothing(port: int) -> str:
    link, _ = filled(port, "p.unknown", 0)
    link.send("ACK", id="nothing")
    return link.bodies()


def an_ack_twice(port: int) -> str:
    link, found = filled(port, "p.twice", 1)
    for _ in range(2):
        link.send("ACK", id=found[0].headers["ack"])
    return link.bodies()


def an_ack_after_the_unsubscribe(port: int) -> str:
    link, found = filled(port, "p.unsubscribed", 1)
    link.send("UNSUBSCRIBE", id="s")
    link.send("ACK", id=found[0].headers["ack"])
    said = link.bodies()
    return f"{said}; left: {left(port, 'p.unsubscribed')}"


def a_transaction_that_is_undone(port: int) -> str:
    link, found = filled(port, "p.abort", 1)
    link.send("BEGIN", transaction="t")
    link.send("SEND", b"new", destination="/queue/p.abort", transaction="t")
    link.send("ACK", id=found[0].headers["ack"], transaction="t")
    link.send("ABORT", transaction="t")
    said = link.bodies()
    link.close()
    time.sleep(0.5)
    return f"{said}; left: {left(port, 'p.abort')}"


def a_transaction_twice(port: int) -> str:
    link = Wire(port)
    for _ in range(2):
        link.send("BEGIN", transaction="t")
    return link.bodies()


def a_transaction_that_is_none(port: int) -> str:
    link = Wire(port)
    link.send("COMMIT", transaction="t")
    return link.bodies()


def a_command_that_is_none(port: int) -> str:
    link = Wire(port)
    link.send("NONSENSE")
    return link.bodies()


def a_subscription_twice(port: int) -> str:
    link = Wire(port)
    for _ in range(2):
        link.send("SUBSCRIBE", id="s", destination="/queue/p.same")
    return link.bodies()


def heartbeats(port: int) -> str:
    return Wire(port, heart_beat="10000,10000").connected.headers.get("heart-beat", "none")


def a_nack(port: int) -> str:
    link, found = filled(port, "p.nack", 1)
    link.send("NACK", id=found[0].headers["ack"])
    time.sleep(2)
    again = said(link.comes(), "redelivered")
    link.close()
    return f"again: {again}; left: {left(port, 'p.nack')}"


def a_nack_up_to_one(port: int) -> str:
    link, found = filled(port, "p.nacks", mode="client")
    link.send("NACK", id=found[1].headers["ack"])
    time.sleep(2)
    again = link.bodies()
    link.close()
    return f"again: {again}"


def what_was_held_when_it_was_cut(port: int) -> str:
    link, _ = filled(port, "p.cut", 1)
    link.close()
    time.sleep(0.5)
    _, found = filled(port, "p.cut", 0)
    return said(found, "redelivered")


def a_topic_keeps_nothing_for_nobody(port: int) -> str:
    link = Wire(port)
    link.sure("SEND", b"before", destination="/topic/p.topic")
    link.sure("SUBSCRIBE", id="s", destination="/topic/p.topic")
    link.sure("SEND", b"after", destination="/topic/p.topic")
    return link.bodies()


BOTH: Final[tuple[Play, ...]] = (
    *(versions, heartbeats, what_is_acknowledged_up_to_one, an_ack_of_nothing, an_ack_twice, an_ack_after_the_unsubscribe),
    *(a_transaction_that_is_undone, a_transaction_twice, a_transaction_that_is_none, a_command_that_is_none, a_subscription_twice),
    *(a_nack, a_nack_up_to_one, what_was_held_when_it_was_cut, a_topic_keeps_nothing_for_nobody),
)
