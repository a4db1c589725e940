"""A STOMP session without a socket: versions, acknowledgements, transactions, waiting, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from homing.broker.core.memory import Kind
from homing.broker.core.rights import Rights, read_grant
from homing.broker.errors import Refused
from homing.broker.protocols.stomp.codec import Frame, FrameReader, frame, read_head
from homing.broker.protocols.stomp.options import StompOptions
from homing.broker.protocols.stomp.session import StompSession
from tests import inside
from tests.model.world import World
from tests.session_support import Transport


class Peer(Transport):
    """A client that writes frames, and remembers those that came back."""

    def __init__(self, world: World, version: str = "1.2", **options: Any) -> None:
        self.world, self.version, self.out = world, version, b""
        self.reading, self.heartbeats, self.is_late, self.waits = True, (0, 0), False, 0
        self.session = StompSession(world.broker, self, StompOptions("homing/0", **options), self._authenticate)

    def _authenticate(self, user: str | None, password: str | None, done: Any) -> None:
        done(Refused("login-refused", "wrong", "try again") if password == "wrong" else user or "")

    def write(self, data: bytes) -> None:
        self.out += data

    def opened(self, heartbeat_ms: int, of_peer_ms: int | None = None) -> None:
        self.heartbeats = (heartbeat_ms, of_peer_ms or 0)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def late(self) -> bool:
        return self.is_late

    def wait_turn(self) -> None:
        self.waits += 1

    def send(self, data: bytes) -> list[tuple[str, dict[str, str], bytes]]:
        self.session.receive(data)
        return self.frames()

    def call(self, command: str, body: bytes = b"", /, **headers: str) -> list[tuple[str, dict[str, str], bytes]]:
        names = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.send(frame(command, names, body, self.version))

    def frames(self) -> list[tuple[str, dict[str, str], bytes]]:
        self.world.commit()
        out, self.out = self.out, b""
        frames = [each for each in FrameReader(10_000, 100_000).feed(out) if isinstance(each, Frame)]
        return [(*read_head(each.head, self.version), each.body) for each in frames]

    def log_in(self, **headers: str) -> Peer:
        (answer,) = self.call("CONNECT", accept_version=self.version, **headers)
        assert (answer[0], answer[1]["version"]) == ("CONNECTED", self.version)
        return self

    def receipts(self, frames: list[tuple[str, dict[str, str], bytes]]) -> list[str]:
        return [headers["receipt-id"] for command, headers, _ in frames if command == "RECEIPT"]


@pytest.fixture
def world() -> World:
    return World({"#": {"redelivery-delay": 0}})


def bodies(frames: list[tuple[str, dict[str, str], bytes]]) -> list[bytes]:
    return [body for command, _, body in frames if command == "MESSAGE"]


def counts(world: World, queue: str) -> tuple[int, int]:
    """(pending, delivering)"""
    found = inside.queues(world.broker)[queue]
    return found.count - found.delivering, found.delivering


@pytest.mark.parametrize(
    ("accepted", "version"), [(None, "1.0"), ("1.0,1.1,1.2", "1.2"), ("1.1, 1.0", "1.1"), ("2.0,1.0", "1.0"), ("3.0", "")]
)
def test_the_latest_version_that_both_speak(world: World, accepted: str | None, version: str) -> None:
    peer = Peer(world)
    headers = {} if accepted is None else {"accept_version": accepted}
    ((command, told, _),) = peer.call("STOMP", heart_beat="500,20000", **headers)
    if version:
        assert (command, told["version"], told["heart-beat"], peer.heartbeats) == ("CONNECTED", version, "10000,1000", (20_000, 1000))
    else:
        assert (command, told["version"], peer.ended) == ("ERROR", "1.0,1.1,1.2", True)


@pytest.mark.parametrize(
    "data",
    [
        b"SEND\n\n\0",
        b"CONNECT\nlogin:a\npasscode:wrong\n\n\0",
        b"CONNECT\nheart-beat:5\n\n\0",
        b"CONNECT\n\n\0WHAT\n\n\0",
        b"CONNECT\n\n\0CONNECT\n\n\0",
        b"CONNECT\n\n\0SEND\n\n\0",
        b"CONNECT\n\n\0SEND\ndestination:/else/a\n\n\0",
        b"CONNECT\n\n\0SEND\ndestination:a\npriority:high\n\n\0",
        b"CONNECT\n\n\0SEND\ndestination:a\nexpires:-1\n\n\0",
        b"CONNECT\n\n\0SEND\ndestination:a\ntransaction:t\n\n\0",
        b"CONNECT\n\n\0SUBSCRIBE\ndestination:a\nack:never\n\n\0",
        b"CONNECT\n\n\0SUBSCRIBE\ndestination:a\nselector:a +\n\n\0",
        b"CONNECT\n\n\0SUBSCRIBE\ndestination:a\nbrowser:perhaps\n\n\0",
        b"CONNECT\n\n\0SEND\ndestination:/topic/a.>\n\n\0",
        b"CONNECT\n\n\0SEND\ndestination:/queue/a,/exchange/b\n\n\0",
        b"CONNECT\n\n\0SUBSCRIBE\ndestination:a\n\n\0SUBSCRIBE\ndestination:a\n\n\0",
        b"CONNECT\n\n\0UNSUBSCRIBE\ndestination:a\n\n\0",
        b"CONNECT\naccept-version:1.2\n\n\0SUBSCRIBE\ndestination:a\n\n\0",
        b"CONNECT\naccept-version:1.2\n\n\0ACK\nid:1-1\n\n\0",
        b"CONNECT\naccept-version:1.1\n\n\0ACK\nmessage-id:1\n\n\0",
        b"CONNECT\n\n\0ACK\nmessage-id:x\n\n\0",
        b"CONNECT\n\n\0NACK\nmessage-id:1\n\n\0",
        b"CONNECT\n\n\0BEGIN\n\n\0",
        b"CONNECT\n\n\0BEGIN\ntransaction:t\n\n\0BEGIN\ntransaction:t\n\n\0",
        b"CONNECT\n\n\0COMMIT\ntransaction:t\n\n\0",
        b"CONNECT\n\n\0BEGIN\nreceipt:" + b"x" * 2000 + b"\ntransaction:t\n\n\0",
    ],
)
def test_what_is_wrong_is_answered_and_ends_the_connection(world: World, data: bytes) -> None:
    peer = Peer(world)
    *_, (command, headers, body) = peer.send(data + b"SEND\ndestination:behind\n\nx\0")
    assert (command, peer.ended) == ("ERROR", True)
    assert headers["message"] in body.decode()
    assert "behind" not in inside.queues(world.broker), "nothing is acted on that comes behind it"
    assert not inside.connections(world.broker).all


def test_an_error_names_the_receipt_of_its_frame_and_what_was_before_it_is_done(world: World) -> None:
    peer = Peer(world).log_in()
    said = peer.send(b"SEND\ndestination:a\nreceipt:1\n\nx\0SEND\ndestination:a\nreceipt:2\npriority:x\n\ny\0")
    assert sorted((command, headers["receipt-id"]) for command, headers, _ in said) == [("ERROR", "2"), ("RECEIPT", "1")]
    assert counts(world, "a") == (1, 0)


def test_what_is_sent_alike_has_each_its_own_receipt(world: World) -> None:
    peer = Peer(world).log_in()
    sends = [
        frame("SEND", [("receipt", receipt), ("destination", "a"), ("n", "1")], b"x", "1.2") for receipt in ("1", "2", "a:b", "é", "1")
    ]
    sends.append(frame("SEND", [("destination", "a"), ("n", "1")], b"x", "1.2"))
    assert peer.receipts(peer.send(b"".join(sends))) == ["1", "2", "a:b", "é", "1"]
    assert counts(world, "a") == (6, 0)
    twice = frame("SEND", [("receipt", "3"), ("receipt", "4"), ("destination", "a"), ("n", "1")], b"x", "1.2")
    assert peer.receipts(peer.send(twice + twice)) == ["3", "3"]


def test_each_of_many_says_what_was_said_of_it(world: World) -> None:
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a")
    numbered, urgent = {"n": "1"}, {"priority": "9"}
    ways = [{}, numbered, numbered, {"n": "2", **urgent}, urgent, {"persistent": "true"}, {"expires": "9999999999999"}, {}]
    sends = [frame("SEND", [("destination", "a"), *way.items()], b"%d" % place, "1.2") for place, way in enumerate(ways)]
    said = {body: headers for _, headers, body in peer.send(b"".join(sends))}
    told = {body: {name: each[name] for name in ("n", "priority", "persistent", "expires") if name in each} for body, each in said.items()}
    assert told == {b"%d" % place: {"priority": "4", **way} for place, way in enumerate(ways)}
    assert len({each["message-id"] for each in said.values()}) == len(ways)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_acknowledgements_of_several_subscriptions_come_together_and_those_before_a_wrong_one_count(world: World, version: str) -> None:
    peer = Peer(world, version).log_in()
    for name in ("a", "b"):
        peer.call("SUBSCRIBE", id=name, destination=f"/queue/{name}", ack="client-individual")
    said = peer.send(b"".join(frame("SEND", [("destination", f"/queue/{name}")], b"x") for name in "abababa"))
    said.sort(key=lambda each: int(each[1]["message-id"]))
    acks = [f"id:{told['ack']}" if version == "1.2" else f"message-id:{told['message-id']}" for _, told, _ in said]
    of = [f"\nsubscription:{told['subscription']}" if version == "1.1" else "" for _, told, _ in said]
    acks.insert(5, acks[4].replace(acks[4][-1], "99999"))
    of.insert(5, of[4])
    data = "".join(f"ACK\n{ack}{which}\n\n\0" for ack, which in zip(acks, of, strict=True)).encode()
    ended = peer.send(data)
    if version == "1.2":
        assert "99999" in ended[0][1]["message"]
        assert [counts(world, name)[0] for name in ("a", "b")] == [1, 1], "five of seven were acknowledged"
    else:
        assert not ended, "a message that nobody holds any more is passed over"
        assert [counts(world, name) for name in ("a", "b")] == [(0, 0), (0, 0)]


def test_who_fails_many_with_one_nack_kills_none_of_them() -> None:
    world = World({"#": {"redelivery-delay": 0, "max-delivery-attempts": 3}})
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client")
    said = peer.send(b"".join(frame("SEND", [("destination", "/queue/a")], b"%d" % number) for number in range(3)))
    said = peer.call("NACK", id=said[-1][1]["ack"])
    assert bodies(said) == [b"0", b"1", b"2"]
    assert [headers["JMSXDeliveryCount"] for _, headers, _ in said] == ["2", "2", "2"]
    # The next failure would be the last of each: it is looked at alone.
    said = peer.call("NACK", id=said[-1][1]["ack"])
    assert bodies(said) == [b"0"]
    assert bodies(peer.call("ACK", id=said[0][1]["ack"])) == [b"1"]
    assert counts(world, "a") == (1, 1)


def test_a_nack_tells_of_the_failure_and_says_when(world: World) -> None:
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client-individual")
    ((_, first, _),) = peer.call("SEND", b"x", destination="/queue/a", persistent="true")
    assert peer.call("NACK", id=first["ack"], delay="5000", reason="the shop is shut", error_type="ShopError") == []
    (reference,) = inside.queues(world.broker)["a"].references.values()
    assert reference.due_at_ms == world.now_ms() + 5000
    world.time_ms += 5000
    world.turn()
    ((_, second, _),) = peer.frames()
    assert (second["redelivered"], second["JMSXDeliveryCount"]) == ("true", "2")
    peer.call("NACK", id=second["ack"], retryable="false")
    assert counts(world, "DLQ.a") == (1, 0)


def test_a_transaction_is_all_or_nothing(world: World) -> None:
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/in", ack="client-individual")
    said = peer.send(b"".join(frame("SEND", [("destination", "/queue/in")], b"%d" % number) for number in range(3)))
    acks = [headers["ack"] for _, headers, _ in said]
    for ending, out in (("ABORT", 0), ("COMMIT", 2)):
        peer.call("BEGIN", transaction="t")
        for _ in range(2):
            peer.call("SEND", b"x", destination="/queue/out", transaction="t")
        peer.call("ACK", id=acks[0], transaction="t")
        peer.call("NACK", id=acks[1], transaction="t", retryable="false")
        assert counts(world, "in") == (0, 3)
        assert peer.receipts(peer.call(ending, transaction="t", receipt="r")) == ["r"]
        assert sum(counts(world, "out")) if out else "out" not in inside.queues(world.broker)
    assert counts(world, "out") == (2, 0)
    assert (counts(world, "in"), counts(world, "DLQ.in")) == ((0, 1), (1, 0))


def test_topics_give_each_subscription_its_own_and_keep_nothing_for_nobody(world: World) -> None:
    sender, *others = (Peer(world).log_in() for _ in range(3))
    sender.call("SEND", b"0", destination="/topic/news")
    for other in others:
        other.call("SUBSCRIBE", id="s", destination="/topic/news", selector="region = 'eu'")
    sender.call("SEND", b"1", destination="/topic/news", region="eu")
    sender.call("SEND", b"2", destination="/topic/news")
    assert [bodies(other.frames()) for other in others] == [[b"1"], [b"1"]]
    assert len(inside.queues(world.broker)) == 2
    others[0].call("UNSUBSCRIBE", id="s")
    others[1].session.lost()
    assert not inside.queues(world.broker)


def test_what_is_held_goes_back_with_the_connection_and_a_goodbye_is_answered_last(world: World) -> None:
    peer, other = Peer(world).log_in(), Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client")
    peer.call("SEND", b"x", destination="/queue/a")
    peer.call("UNSUBSCRIBE", id="s")
    other.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client")
    assert other.frames() == [], "what was delivered stays with who has it"
    assert peer.receipts(peer.call("DISCONNECT", receipt="bye")) == ["bye"]
    assert peer.ended
    assert [(headers["redelivered"], body) for _, headers, body in other.frames()] == [("true", b"x")]
    assert peer.send(b"SEND\ndestination:b\n\nx\0") == []


def test_who_says_no_more_is_hung_up_on_when_all_that_he_said_is_done(world: World) -> None:
    """What he held counts as lost with him."""
    peer, other = Peer(world).log_in(), Peer(world).log_in()
    assert not Peer(world).session.heard_all(), "there is nothing to answer"
    peer.call("SUBSCRIBE", id="s", destination="/queue/held", ack="client")
    peer.call("SEND", b"x", destination="/queue/held")
    peer.session.receive(b"".join(frame("SEND", [("destination", f"/queue/{number % 2}"), ("receipt", "r")]) for number in range(100)))
    assert (peer.session.heard_all(), peer.ended) == (True, False)
    assert len(peer.receipts(peer.frames())) == 100
    assert (peer.ended, counts(world, "0"), counts(world, "1")) == (True, (50, 0), (50, 0))
    told = other.call("SUBSCRIBE", id="s", destination="/queue/held", ack="client")
    assert [headers["redelivered"] for _, headers, _ in told] == ["true"]
    assert not peer.session.heard_all()


def test_a_send_waits_for_credit_and_what_comes_before_it_does_not() -> None:
    world = World({"#": {"max-length": 2, "overflow": "block"}})
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/other", ack="client")
    ((_, held, _),) = peer.call("SEND", b"y", destination="/queue/other")
    peer.call("SUBSCRIBE", id="a", destination="/queue/a")
    peer.call("UNSUBSCRIBE", id="a")
    sends = [frame("SEND", [("destination", "/queue/a"), ("receipt", str(number))], b"x") for number in range(3)]
    assert peer.receipts(peer.send(sends[0] + sends[1])) == ["0", "1"]
    assert peer.send(frame("ACK", [("id", held["ack"])]) + sends[2]) == []
    assert (counts(world, "other"), counts(world, "a"), peer.reading) == ((0, 0), (2, 0), False)
    other = Peer(world).log_in()
    assert len(bodies(other.call("SUBSCRIBE", id="s", destination="/queue/a"))) >= 2
    world.turn()
    assert (peer.receipts(peer.frames()), peer.reading) == (["2"], True)


def test_much_that_comes_at_once_is_done_in_several_turns(world: World) -> None:
    peer = Peer(world).log_in()
    peer.is_late = True
    peer.session.receive(b"".join(frame("SEND", [("destination", f"/queue/{number % 2}")], b"x") for number in range(100)))
    assert (peer.waits, peer.reading) == (1, False)
    peer.is_late = False
    peer.session.have_turn()
    assert peer.reading
    assert [counts(world, str(number)) for number in range(2)] == [(50, 0), (50, 0)]


def test_what_a_connection_holds_is_bounded_and_given_back(world: World) -> None:
    def charged() -> int:
        kinds = world.broker.memory.by_kind
        return kinds[Kind.SESSIONS] + kinds[Kind.CACHES]

    peer = Peer(world).log_in()
    for number in range(300):
        peer.call("SEND", b"x", destination=f"/queue/{number}")
    (connection,) = inside.connections(world.broker).all.values()
    assert len(connection.producers) == 100
    for number in range(1000):
        peer.call("BEGIN", transaction=str(number))
    peer.call("SEND", b"x" * 1000, destination="/queue/0", transaction="0")
    assert charged() > 1000
    assert peer.call("BEGIN", transaction="one more")[0][0] == "ERROR"
    assert (charged(), peer.ended) == (0, True)


def test_a_message_for_several_and_an_answer_to_a_queue_of_ones_own(world: World) -> None:
    asker, worker = Peer(world).log_in(), Peer(world).log_in()
    asker.call("SUBSCRIBE", id="answers", destination="/temp-queue/mine")
    worker.call("SUBSCRIBE", id="s", destination="b", subscription_type="MULTICAST")
    said = asker.call("SEND", b"?", destination="queue://a, topic://b,/amq/queue/c", reply_to="/temp-queue/mine", receipt="1")
    assert asker.receipts(said) == ["1"]
    assert (counts(world, "a"), counts(world, "c")) == ((1, 0), (1, 0))
    ((_, asked, _),) = worker.frames()
    assert asked["reply-to"].startswith("/queue/")
    worker.call("SEND", b"!", destination=asked["reply-to"])
    assert [(headers["destination"], body) for _, headers, body in asker.frames()] == [("/temp-queue/mine", b"!")]
    asker.call("DISCONNECT")
    assert [name[:2] for name in sorted(inside.queues(world.broker))] == ["a", "b.", "c"], "its own queue went with it"


def test_part_of_what_is_for_several_may_wait(world: World) -> None:
    world = World({"narrow": {"max-length": 1, "overflow": "block"}})
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="narrow")
    peer.call("UNSUBSCRIBE", id="s")
    peer.call("SEND", b"0", destination="narrow")
    assert peer.call("SEND", b"1", destination="wide,narrow", receipt="1") == []
    assert (counts(world, "wide"), counts(world, "narrow")) == ((1, 0), (1, 0))
    Peer(world).log_in().call("SUBSCRIBE", id="s", destination="narrow")
    world.turn()
    assert peer.receipts(peer.frames()) == ["1"]
    assert counts(world, "wide") == (1, 0), "it is not sent there again"


def test_later_and_only_once(world: World) -> None:
    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a")
    at_ms = str(world.now_ms() + 2000)
    for body, header in ((b"1", ("AMQ_SCHEDULED_DELAY", "1000")), (b"2", ("_AMQ_SCHED_DELIVERY", at_ms))):
        assert bodies(peer.send(frame("SEND", [("destination", "/queue/a"), header], body, "1.2"))) == []
    for body in (b"1", b"2"):
        world.time_ms += 1000
        world.turn()
        assert bodies(peer.frames()) == [body]
    once = frame("SEND", [("destination", "/queue/a"), ("_AMQ_DUPL_ID", "x"), ("persistent", "true"), ("receipt", "r")], b"3", "1.2")
    said = peer.send(once + once)
    assert (bodies(said), peer.receipts(said)) == ([b"3"], ["r", "r"])
    ((command, told, _),) = peer.send(frame("SEND", [("destination", "/queue/a"), ("AMQ_SCHEDULED_CRON", "* * * * *")]))
    assert (command, "no calendar here" in told["message"]) == ("ERROR", True)


def test_what_is_repeated_comes_so_often_and_then_no_more(world: World) -> None:
    def repeated(times: str, *more: tuple[str, str]) -> bytes:
        schedule = [("AMQ_SCHEDULED_PERIOD", "300"), ("AMQ_SCHEDULED_REPEAT", times), *more]
        return frame("SEND", [("destination", "/queue/a"), ("receipt", "r"), *schedule], b"x")

    peer = Peer(world).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/a")
    for delay, first_ms in ((), 300), ((("AMQ_SCHEDULED_DELAY", "100"),), 100):
        said = peer.send(repeated("2", *delay))
        assert (peer.receipts(said), bodies(said), inside.queues(world.broker)["a"].waiting) == (["r"], [], 3)
        for after_ms in (first_ms, 300, 300):
            world.time_ms += after_ms - 1
            world.turn()
            assert bodies(peer.frames()) == []
            world.time_ms += 1
            world.turn()
            assert bodies(peer.frames()) == [b"x"]
        assert not inside.queues(world.broker)["a"].count
    for times in ("-1", "1000", "x"):
        assert Peer(world).log_in().send(repeated(times))[0][0] == "ERROR"


def test_of_what_waits_for_a_slow_subscription_the_oldest_may_give_way(world: World) -> None:
    sender, slow = Peer(world).log_in(), Peer(world).log_in()
    limit = {"activemq.prefetchSize": "2", "activemq.maximumPendingMessageLimit": "3"}
    slow.call("SUBSCRIBE", id="s", destination="/topic/t", ack="client-individual", **limit)
    for number in range(10):
        sender.call("SEND", b"%d" % number, destination="/topic/t")
    came, said = [], slow.frames()
    while said:
        came += bodies(said)
        said = [each for _, headers, _ in said for each in slow.call("ACK", id=headers["ack"])]
    assert came == [b"0", b"1", b"5", b"6", b"7", b"8", b"9"], "what its prefetch lets through, and three more"


def test_a_browser_is_shown_what_is_there_and_takes_nothing(world: World) -> None:
    peer, worker = Peer(world).log_in(), Peer(world).log_in()
    for number in range(250):
        peer.call("SEND", b"%d" % number, destination="/queue/a", n=str(number % 2), persistent=["true", "false"][number % 3 == 0])
    worker.call("SUBSCRIBE", id="s", destination="/queue/a", ack="client", **{"activemq.prefetchSize": "3"})
    for selector, wanted in (({}, range(250)), ({"selector": "n = '1'"}, range(1, 250, 2))):
        said = peer.call("SUBSCRIBE", id="b", destination="/queue/a", browser="true", **selector)
        for _ in range(9):
            world.turn()
            said += peer.frames()
        *said, (_, last, _) = said
        assert bodies(said) == [b"%d" % number for number in wanted]
        assert {headers["subscription"] for _, headers, _ in said} == {last["subscription"]} == {"b"}
        assert last["browser"] == "end"
        assert peer.call("UNSUBSCRIBE", id="b") == []
    assert counts(world, "a") == (247, 3)
    ((_, last, _),) = peer.call("SUBSCRIBE", id="c", destination="/queue/none", browser="true")
    assert last["browser"] == "end"
    assert "none" not in inside.queues(world.broker)


def test_a_pattern_is_of_what_there_is_and_of_what_comes(world: World) -> None:
    peer, sender = Peer(world).log_in(), Peer(world).log_in()
    sender.call("SEND", b"0", destination="/queue/orders.eu.paid")
    sender.call("SEND", b"0", destination="/queue/orders")
    sender.call("SEND", b"another", destination="/queue/ordered")
    said = peer.call("SUBSCRIBE", id="q", destination="/queue/orders.>")
    assert sorted(told["destination"] for _, told, _ in said) == ["/queue/orders", "/queue/orders.eu.paid"]
    peer.call("SUBSCRIBE", id="t", destination="/topic/*.eu")
    peer.call("SUBSCRIBE", id="u", destination="/queue/a,/topic/b.#", selector="n = '1'")
    for number, name in enumerate(["queue/orders.us", "topic/prices.eu", "topic/prices.us", "topic/b", "queue/a", "queue/b.c"]):
        sender.call("SEND", b"%d" % number, destination=f"/{name}", n="1")
    came = {body: (told["subscription"], told["destination"]) for _, told, body in peer.frames()}
    assert came == {
        b"0": ("q", "/queue/orders.us"),
        b"1": ("t", "/topic/prices.eu"),
        b"3": ("u", "/topic/b"),
        b"4": ("u", "/queue/a"),
    }
    for name in "qtu":
        peer.call("UNSUBSCRIBE", id=name)
    sender.call("SEND", b"x", destination="/queue/orders.late")
    assert peer.frames() == []
    assert not inside.queues(world.broker)["orders.late"].consumers
    listeners = world.broker.resources
    peer.call("SUBSCRIBE", id="q", destination="/queue/orders.>")
    peer.session.lost()
    assert (listeners.queue_made, listeners.address_made) == ([], [])


@pytest.mark.plain
def test_a_pattern_is_of_so_many_and_of_what_its_user_may_consume(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("homing.broker.protocols.stomp.subscriptions._MOST_MATCHED", 3)
    caplog.set_level("INFO", "homing")
    world = World({})
    sender = Peer(world).log_in()
    for name in ("b.0", *(f"a.{number}" for number in range(4))):
        sender.call("SEND", b"", destination=f"/queue/{name}")
    rights = Rights([read_grant({"rights": ["consume"], "pattern": "a.#"})])
    world.broker.access.users = SimpleNamespace(hashes={"ann": ""}, rights_of=lambda _: rights)
    said = Peer(world).log_in(login="ann").call("SUBSCRIBE", id="s", destination="/queue/*.*")
    assert sorted(told["destination"] for _, told, _ in said) == ["/queue/a.0", "/queue/a.1", "/queue/a.2"]
    left_out = [each.message for each in caplog.records if each.message.startswith("pattern-left-out")]
    assert [next(word for word in ("/queue/b.0", "/queue/a.3") if word in each) for each in left_out] == ["/queue/b.0", "/queue/a.3"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_all_before_it_is_of_all_queues_of_a_pattern_and_so_is_the_window(world: World, version: str) -> None:
    peer = Peer(world, version).log_in()
    peer.call("SUBSCRIBE", id="s", destination="/queue/*", ack="client", **{"activemq.prefetchSize": "4"})
    said = [each for number in range(6) for each in peer.call("SEND", b"%d" % number, destination=f"/queue/{'ab'[number % 2]}")]
    assert bodies(said) == [b"0", b"1", b"2", b"3"]

    def ack(told: dict[str, str]) -> list[tuple[str, dict[str, str], bytes]]:
        name = {"id": told["ack"]} if version == "1.2" else {"message_id": told["message-id"], "subscription": "s"}
        return peer.call("ACK", **name)

    assert bodies(ack(said[2][1])) == [b"4", b"5"]
    assert ack(said[2][1]) == ack(said[0][1]) == [], "named already"
    assert [counts(world, name) for name in "ab"] == [(0, 1), (0, 2)]
    queue = inside.queues(world.broker)["a"]
    inside.removal(world.broker).delete(next(iter(inside.connections(world.broker).all.values())), queue)
    assert not peer.ended, "the others go on"
    assert bodies(peer.call("SEND", b"6", destination="/queue/a")) == [b"6"]


def test_a_durable_subscription_waits_for_its_program_until_that_ends_it(world: World) -> None:
    def program() -> Peer:
        return Peer(world).log_in(client_id="shop")

    subscribe = {"id": "s", "destination": "/topic/news", "durable_subscription_name": "all", "ack": "client-individual"}
    first, sender = program(), Peer(world).log_in()
    first.call("SUBSCRIBE", **subscribe)
    ((command, told, _),) = program().call("SUBSCRIBE", **subscribe)
    assert (command, "is exclusive and has a consumer" in told["message"]) == ("ERROR", True)
    first.call("DISCONNECT")
    sender.call("SEND", b"x", destination="/topic/news", persistent="true")
    second = program()
    # As Artemis called it once.
    said = second.call("SUBSCRIBE", **{name.replace("subscription", "subscriber"): value for name, value in subscribe.items()})
    assert bodies(said) == [b"x"]
    assert second.receipts(second.call("UNSUBSCRIBE", id="s", durable_subscription_name="all", receipt="r")) == ["r"]
    assert "shop.all" not in inside.queues(world.broker)
    # No other queue goes so, whatever the program calls itself.
    made = {"id": "s", "destination": "/queue/shop.orders"}
    assert not second.call("SUBSCRIBE", **made)
    assert second.call("UNSUBSCRIBE", id="s", durable_subscription_name="orders")[0][0] == "ERROR"
    assert "shop.orders" in inside.queues(world.broker)
    assert sender.call("SUBSCRIBE", **subscribe)[0][0] == "ERROR", "it has no client-id"


def test_who_is_served_first_and_how_many_are_on_their_way(world: World) -> None:
    low, high, exclusive = (Peer(world).log_in() for _ in range(3))
    low.call("SUBSCRIBE", id="s", destination="a", ack="client", prefetch_count="2", x_priority="-1")
    high.send(
        frame(
            "SUBSCRIBE", [("id", "s"), ("destination", "a"), ("ack", "client"), ("activemq.priority", "9"), ("consumer-window-size", "0")]
        )
    )
    for number in range(4):
        high.call("SEND", b"%d" % number, destination="a")
    assert (len(bodies(low.frames())), counts(world, "a")) == (2, (1, 3))
    first = frame("SUBSCRIBE", [("id", "s"), ("destination", "b"), ("activemq.exclusive", "true")])
    for peer in (high, exclusive):
        peer.send(first.replace(b"id:s", b"id:t"))
    for number in range(4):
        low.call("SEND", b"%d" % number, destination="b")
    assert [len(bodies(peer.frames())) for peer in (high, exclusive)] == [4, 0]
    high.call("UNSUBSCRIBE", id="t")
    low.call("SEND", b"4", destination="b")
    assert bodies(exclusive.frames()) == [b"4"]
