"""What one user, or one address, may have: which entry counts, and that a refusal counts nothing."""

from __future__ import annotations

import pytest

from homing.broker.errors import Refused
from homing.broker.shares import Allowance, Shares, give_back, least, take


def test_the_nearest_entry_that_names_a_limit_counts() -> None:
    users = {"*": Allowance(max_connections=9, max_channels=5), "ann": Allowance(max_channels=50, max_message_bytes=100)}
    peers = {
        "10.1.0.0/16": Allowance(max_channels=3),
        "10.0.0.0/8": Allowance(max_connections=2, max_channels=4),
        "*": Allowance(max_queues=1),
    }
    shares = Shares(users, peers)
    assert shares.of_user("ann").allowance == Allowance(max_connections=9, max_channels=50, max_message_bytes=100)
    assert shares.of_user("bob").allowance == users["*"]
    assert shares.of_peer("10.1.2.3").allowance == Allowance(max_connections=2, max_channels=3, max_queues=1)
    assert shares.of_peer("::1").allowance == peers["*"]
    assert least(5000, [shares.of_user("ann"), shares.of_peer("::1")]) == 100


def test_what_one_of_two_refuses_is_counted_by_neither() -> None:
    shares = Shares({"*": Allowance(max_channels=5)}, {"*": Allowance(max_channels=1)})
    both = [shares.of_user("ann"), shares.of_peer("127.0.0.1")]
    take(both, "channels")
    with pytest.raises(Refused, match=r"127\.0\.0\.1 may have 1 channels"):
        take(both, "channels")
    assert [each.channels for each in both] == [1, 1]
    give_back(both, "channels")
    assert [each.channels for each in both] == [0, 0]


def test_queues_that_are_gone_make_room() -> None:
    share, there = Shares({"*": Allowance(max_queues=2)}, {}).of_user("ann"), {"old"}
    share.make_queues(["old", "one"], there.__contains__)
    share.make_queues(["two"], there.__contains__)
    there |= {"one", "two"}
    with pytest.raises(Refused, match="may have 2 queues"):
        share.make_queues(["three"], there.__contains__)
    there.remove("one")
    share.make_queues(["three"], there.__contains__)


def test_logins_of_a_minute() -> None:
    share = Shares({"*": Allowance(max_logins_per_minute=2)}, {}).of_user("ann")
    share.log_in(0)
    share.log_in(30_000)
    with pytest.raises(Refused, match="may log in 2 times a minute"):
        share.log_in(59_999)
    share.log_in(60_000)
