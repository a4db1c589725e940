"""Names of virtual hosts, and what becomes of one that is deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.broker.auth.access import BROKER
from homing.broker.core.amqp.vhost import DEFAULT, address_and_queue, local_name, prefix_of, split, virtual_host_of
from homing.broker.errors import Refused
from homing.broker.management import virtual_hosts
from homing.broker.steps import at_once
from homing.broker.topology.resources import check_name
from tests import inside
from tests.model.world import ANYBODY, World
from tests.unit.test_amqp_session import Peer, codes

HOSTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


def plain(name: str) -> bool:
    try:
        check_name(name, "queue")
    except Refused:
        return False
    return True


@given(HOSTS, NAMES.filter(plain))
def test_a_full_name_says_which_virtual_host_and_which_name_there(host: str, name: str) -> None:
    full = prefix_of(host) + name
    assert split(full) == (prefix_of(host), name)
    assert local_name(full) == name
    assert virtual_host_of(full) == host
    assert (full == name) is (host == DEFAULT)


@given(HOSTS, NAMES.filter(plain), HOSTS, NAMES.filter(plain))
def test_no_two_names_are_the_same(host: str, name: str, other_host: str, other: str) -> None:
    assert (prefix_of(host) + name == prefix_of(other_host) + other) is ((host, name) == (other_host, other))


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("news::archive", ("news", "::", "archive")),
        ("::shop.news::archive", ("::shop.news", "::", "::shop.archive")),
        ("::shop.news", ("::shop.news", "", "")),
        ("news", ("news", "", "")),
    ],
)
def test_an_address_and_its_queue_are_in_one_virtual_host(name: str, parts: tuple[str, str, str]) -> None:
    assert address_and_queue(name) == parts


def test_one_that_is_being_deleted_lets_nobody_in() -> None:
    world = World({})
    broker = world.broker
    inside.virtual_hosts(broker).add(BROKER, "shop")
    peer = Peer(world)
    peer.log_in(vhost="shop")
    peer.call(1, "channel.open", "")
    for number in range(3):
        peer.call(1, "queue.declare", 0, f"q{number}", False, False, False, False, False, {})
    work = virtual_hosts.delete(broker, ANYBODY, name="shop")
    next(work)
    assert codes(peer.methods()) == [("connection.close", 320)]
    with pytest.raises(Refused, match="vhost shop not found"):
        inside.virtual_hosts(broker).find("shop")
    with pytest.raises(Refused, match="is being deleted"):
        inside.virtual_hosts(broker).add(BROKER, "shop")
    with pytest.raises(Refused, match="cannot name"):
        inside.resources(broker).declare(BROKER, {"queue": "::shop.native"})
    assert codes(Peer(world).log_in(vhost="shop")) == [("connection.close", 530)]
    assert at_once(work) == {"queues": 3, "messages": 0}
    assert not [name for name in inside.addresses(broker) if name.startswith("::")]
    assert inside.virtual_hosts(broker).add(BROKER, "shop").exchanges.queue("q0") is None


def test_a_queue_and_its_address_are_in_one_virtual_host() -> None:
    world = World({})
    inside.virtual_hosts(world.broker).add(BROKER, "shop")
    assert inside.resources(world.broker).declare(BROKER, {"queue": "::shop.q", "address": "::shop.a"}).address == "::shop.a"
    with pytest.raises(Refused, match="two virtual hosts"):
        inside.resources(world.broker).declare(BROKER, {"queue": "q", "address": "::shop.a"})
