"""What a grant covers, what a user may, and what happens to what is open when that changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from homing.broker.auth.access import BROKER, everywhere, needs
from homing.broker.auth.passwords import check_login
from homing.broker.auth.users import User, Users
from homing.broker.core.amqp.vhost import prefix_of
from homing.broker.core.consumer import ConsumerOptions
from homing.broker.core.message import Message
from homing.broker.core.rights import Grant, GrantError, Place, Right, Rights, everything_in, read_grant
from homing.broker.errors import Refused
from homing.journal.declarations import UserContent
from tests import inside
from tests.model.world import World
from tests.unit.test_amqp_session import Peer

SHOP = prefix_of("shop")
HASH = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzb21lc2FsdA$tZ8yTh8nK5Sn1HWQjNmFqgJvAYWfSHrH0TtN1cXGLmk"
ALL = (Grant(frozenset({"administrator"})),)
(WHOLE,) = everywhere()


def queue(*names: str) -> Place:
    return Place("queue", names)


@pytest.mark.parametrize(
    ("grant", "place", "covered"),
    [
        ({"rights": ["send"]}, queue("orders.eu"), True),
        ({"rights": ["send"]}, queue(f"{SHOP}orders"), True),
        ({"rights": ["send"]}, WHOLE, True),
        ({"rights": ["consume"]}, queue("orders"), False),
        ({"rights": ["write"]}, queue("orders"), True),
        ({"rights": ["send"], "pattern": "orders.#"}, queue("orders.eu"), True),
        ({"rights": ["send"], "pattern": "orders.#"}, queue("orders"), True),
        ({"rights": ["send"], "pattern": "orders.*"}, queue("orders"), False),
        ({"rights": ["send"], "pattern": "orders.#"}, queue(f"{SHOP}orders"), True),
        ({"rights": ["send"], "pattern": "orders", "virtual_host": "/"}, queue(f"{SHOP}orders"), False),
        ({"rights": ["send"], "pattern": "orders", "virtual_host": "shop"}, queue(f"{SHOP}orders"), True),
        ({"rights": ["send"], "pattern": "orders", "virtual_host": "shop"}, queue("orders"), False),
        ({"rights": ["send"], "pattern": "billing"}, queue("orders", "billing"), True),
        ({"rights": ["send"], "pattern": "orders"}, WHOLE, False),
        ({"rights": ["send"], "virtual_host": "/"}, WHOLE, False),
        ({"rights": ["send"], "virtual_host": "shop"}, everything_in(SHOP), True),
        ({"rights": ["send"], "pattern": "*", "virtual_host": "shop"}, everything_in(SHOP), False),
        ({"rights": ["send"], "keys": "eu.#"}, Place("exchange", ("x",), "eu.orders"), True),
        ({"rights": ["send"], "keys": "eu.#"}, Place("exchange", ("x",), "us.orders"), False),
        ({"rights": ["send"], "keys": "eu.#"}, Place("exchange", ("x",), "#"), False),
        ({"rights": ["send"], "keys": "*.orders"}, Place("exchange", ("x",), "*.orders"), True),
        ({"rights": ["send"], "keys": "*.orders"}, Place("exchange", ("x",), "#.orders"), False),
        ({"rights": ["send"], "keys": "eu.#"}, queue("x"), False),
        ({"rights": ["send"], "keys": "#"}, WHOLE, False),
        ({"rights": ["send"], "pattern": "x"}, Place("exchange", ("x",), "any"), True),
    ],
)
def test_what_a_grant_covers(grant: dict[str, Any], place: Place, covered: bool) -> None:
    rights = Rights([read_grant(grant)])
    assert rights.may(Right.SEND, place) is covered
    assert rights.may(Right.SEND, place) is covered, "and what is remembered says the same"
    assert read_grant(read_grant(grant).describe()) == read_grant(grant)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"rights": []},
        {"rights": ["sned"]},
        {"rights": [["send"]]},
        {"rights": ["send"], "pattern": "a..b"},
        {"rights": ["send"], "pattern": "a*"},
        {"rights": ["send"], "pattern": 5},
        {"rights": ["send"], "virtual_host": ""},
        {"rights": ["send"], "virtual_host": 5},
        {"rights": ["send"], "keys": ""},
        {"rights": ["send"], "colour": "red"},
    ],
)
def test_what_is_no_grant_is_refused_in_a_sentence(said: dict[str, Any]) -> None:
    with pytest.raises(GrantError) as error:
        read_grant(said)
    assert error.value.message
    assert error.value.fix


class Kept:
    """Users, what the journal would hold of them, and what listeners were told."""

    def __init__(self) -> None:
        self.journal: dict[str, UserContent] = {}
        self.reported: list[tuple[list[str] | None, list[str]]] = []
        self.now_ms = 0
        self.users = Users(self._keep, lambda: self.now_ms)
        self.users.changed.append(lambda over, others: self.reported.append((None if over is None else sorted(over), sorted(others))))

    def _keep(self, name: str, content: UserContent | None) -> None:
        if content is None:
            del self.journal[name]
        else:
            self.journal[name] = content

    def refused(self, act: Any, *arguments: Any) -> str:
        before = dict(self.journal), self.users.all(BROKER), list(self.reported)
        with pytest.raises(Refused) as refused:
            act(BROKER, *arguments)
        assert (dict(self.journal), self.users.all(BROKER), list(self.reported)) == before
        return refused.value.code


def test_users_by_command_are_kept_and_come_back() -> None:
    kept = Kept()
    users = kept.users
    assert kept.refused(users.add, "shop", HASH, (Grant(frozenset({"send"})),)) == "administrator-needed"
    users.add(BROKER, "anna", HASH, ALL)
    users.add(BROKER, "shop", HASH, ())
    users.grant(BROKER, "shop", Grant(frozenset({"send"}), "orders.#"))
    users.grant(BROKER, "shop", Grant(frozenset({"create"}), "orders.#"))
    users.revoke(BROKER, "shop", Grant(frozenset({"send"}), "orders.#"))
    assert kept.reported == [(None, []), ([], []), ([], ["shop"]), ([], ["shop"]), ([], ["shop"])]
    again = Kept()
    again.users.restore(kept.journal)
    assert (
        again.users.all(BROKER)
        == users.all(BROKER)
        == [User("anna", HASH, ALL), User("shop", HASH, (Grant(frozenset({"create"}), "orders.#"),))]
    )
    assert kept.refused(users.add, "shop", HASH, ()) == "user-exists"
    assert kept.refused(users.add, "", HASH, ()) == "invalid-name"
    assert kept.refused(users.add, "eve", "secret", ()) == "invalid-hash"
    assert kept.refused(users.revoke, "shop", Grant(frozenset({"send"}), "orders.#")) == "no-such-grant"
    assert kept.refused(users.grant, "eve", ALL[0]) == "no-such-user"
    other = HASH[:-1] + "g"
    users.change_password(BROKER, "shop", other)
    users.delete(BROKER, "anna")
    assert kept.reported[-2:] == [(["shop"], []), (["anna"], [])]
    assert kept.refused(users.delete, "shop") == "last-user"
    assert users.hashes == {"shop": other}
    assert (users.find("shop"), users.find("anna"), users.rights_of("anna")) == (users.all(BROKER)[0], None, None)


def test_a_programs_user_ends_and_lets_nobody_in_by_that(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    kept = Kept()
    users = kept.users
    assert kept.refused(users.add, "ci", HASH, ALL, 1000) == "administrator-needed"
    users.add(BROKER, "anna", HASH, ALL)
    users.add(BROKER, "ci", HASH, (), 1000)
    users.add(BROKER, "cd", HASH, (), 3000)
    assert kept.refused(users.delete, "anna") == "last-user"
    kept.now_ms = 999
    users.look(kept.now_ms)
    assert users.hashes == {"anna": HASH, "ci": HASH, "cd": HASH}
    kept.now_ms = 1500
    users.look(kept.now_ms)
    assert kept.reported[-1] == (["ci"], [])
    assert "the time of ci is over" in caplog.text
    kept.now_ms = 4000
    users.look(kept.now_ms)
    assert kept.reported[-1] == (["cd"], [])
    assert not any(check_login(dict(users.hashes), name, text) for name in ("ci", "cd", "") for text in (HASH, "", "secret"))
    again = Kept()
    again.now_ms = 1500
    again.users.restore(kept.journal)
    assert (again.users.all(BROKER), again.users.hashes) == (users.all(BROKER), {"anna": HASH, "ci": "", "cd": HASH})
    reported = list(kept.reported)
    users.look(5000)
    assert kept.reported == reported, "it has ended once"


def test_of_the_same_name_the_files_user_counts_and_no_command_changes_it(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.users.add(BROKER, "anna", HASH, ALL)
    kept.users.configure([User("anna", HASH[:-1] + "g", (), configured=True)])
    assert "user anna is in broker.yaml and was made by homing user add as well" in caplog.text
    assert kept.reported[-1] == (["anna"], ["anna"])
    for act, arguments in (
        (kept.users.change_password, (HASH,)),
        (kept.users.delete, ()),
        (kept.users.grant, ALL),
        (kept.users.revoke, ALL),
    ):
        assert kept.refused(act, "anna", *arguments) == "user-of-the-file"
    kept.users.configure([])
    assert kept.users.all(BROKER) == [User("anna", HASH, ALL)]


def test_a_grant_of_the_journal_that_nobody_understands_gives_nothing(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.users.restore({"anna": {"hash": HASH, "grants": [{"rights": ["fly"]}, {"rights": ["send"]}]}})
    assert kept.users.all(BROKER) == [User("anna", HASH, (Grant(frozenset({"send"})),))]
    assert "a grant of user anna in the journal is not understood any more" in caplog.text


def test_the_first_user_ends_everybody_who_had_no_name_and_nobody_is_blamed() -> None:
    world = World({})
    client = world.client("anonymous", lambda delivery: None)
    assert client.connection is not None
    producer = inside.producers(world.broker).open(client.connection, 1, "a")
    inside.subscriptions(world.broker).subscribe(client.connection, 1, "a", ConsumerOptions(10))
    world.send(producer, [Message(0, "a", b"one", None, 4, True, world.now_ms())])
    world.turn()
    peer = Peer(world)
    peer.log_in()
    world.broker.users.add(client.connection, "anna", HASH, ALL)
    assert client.ended
    assert [(name, values[0]) for name, values in peer.methods()] == [("connection.close", 320)]
    assert not inside.connections(world.broker).all
    queue = inside.queues(world.broker)["a"]
    (reference,) = queue.references.values()
    assert (queue.ready, reference.failed) == (1, 0)
    with pytest.raises(Refused, match="there is no user"):
        world.client("somebody", lambda delivery: None)


def test_whoever_makes_the_first_user_hears_of_it_and_may_do_nothing_more() -> None:
    world = World({})
    client = world.client("anonymous", lambda delivery: None)
    assert client.connection is not None
    world.broker.users.add(client.connection, "anna", HASH, ALL)
    assert len(inside.connections(world.broker).all) == 1
    with pytest.raises(Refused, match="send access to address 'a' in vhost '/' refused for user ''"):
        inside.producers(world.broker).open(client.connection, 1, "a")
    with pytest.raises(Refused, match="administer access"):
        world.broker.users.delete(client.connection, "anna")
    world.commit()
    world.turn()
    assert client.ended
    assert not inside.connections(world.broker).all


def test_a_place_is_found_by_the_names_of_a_calls_arguments_however_it_is_called() -> None:
    kept = Kept()
    kept.users.add(BROKER, "anna", HASH, ALL)
    asked: list[tuple[object, ...]] = []

    def at(queue: str, owner: object, count: int) -> list[Place]:
        asked.append((queue, owner, count))
        return []

    def move(owner: object, who: object, count: int, queue: str = "a", *, to: str = "b") -> str:
        return f"{count} of {queue} to {to}"

    def tells(to: str) -> dict[str, object]:
        asked.append((to,))
        return {}

    verb = needs((Right.SEND, at), tells=tells, audited=True)(move)
    anna, owner = SimpleNamespace(user="anna", peer=""), SimpleNamespace(access=kept.users.access)
    assert verb(owner, anna, 5, "q", to="c") == "5 of q to c"
    assert verb(owner, anna, count=6) == "6 of a to b"
    assert asked == [("q", owner, 5), ("c",), ("a", owner, 6), ("b",)]
    with pytest.raises(TypeError, match="move takes no address"):
        needs((Right.SEND, lambda address="one that is not asked about": []))(move)
