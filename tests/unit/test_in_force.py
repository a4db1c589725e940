"""Settings and policies for very many queues are worked out in steps, and hold for all of them from one turn to the next."""

from __future__ import annotations

from typing import Any

import pytest

from homing.broker.auth.access import BROKER
from homing.broker.broker import Broker
from homing.broker.config.config import parse
from homing.broker.core.amqp.policy import read_policy
from homing.broker.errors import Refused
from homing.broker.management import settings as settings_calls
from homing.broker.process.reload import take_up
from homing.broker.steps import Steps, at_once
from tests import inside
from tests.model.world import ANYBODY, World

QUEUES = 230
#: How many queues one step may ask about.
A_STEP = 50


def crowded() -> Broker:
    broker = World({}).broker
    for number in range(QUEUES):
        inside.resources(broker).declare(BROKER, {"queue": f"many.{number}"})
    return broker


def limits(broker: Broker) -> set[int]:
    return {queue.settings.max_delivery_attempts for queue in inside.queues(broker).values()}


def set_settings(broker: Broker, attempts: int, **more: Any) -> Steps[Any]:
    return settings_calls.set_some(broker, ANYBODY, layers={"#": {"max-delivery-attempts": attempts}}, **more)


def by_command(broker: Broker) -> Steps[Any]:
    return set_settings(broker, 7)


def by_policy(broker: Broker) -> Steps[Any]:
    return inside.changes(broker).set_policy(ANYBODY, read_policy("p", "^(many|new)", {"delivery-limit": 6}))


def by_reload(broker: Broker) -> Steps[Any]:
    return take_up(broker, parse("limits: {}\n"), parse('limits: {}\naddress-settings: {"#": {max-delivery-attempts: 7}}\n'))


def by_policy_of_the_file(broker: Broker) -> Steps[Any]:
    text = 'limits: {}\npolicies: {p: {pattern: "^(many|new)", definition: {delivery-limit: 6}}}\n'
    return take_up(broker, parse("limits: {}\n"), parse(text))


@pytest.mark.parametrize("way", [by_command, by_policy, by_reload, by_policy_of_the_file])
def test_it_holds_for_all_queues_at_once_and_for_those_that_come_meanwhile(way: Any) -> None:
    broker = crowded()
    seen: list[set[int]] = [limits(broker)]
    for number, _ in enumerate(way(broker)):
        seen.append(limits(broker))
        if number == 1:
            inside.resources(broker).declare(BROKER, {"queue": "new"})
            inside.deletion(broker).delete_queue(inside.queues(broker)["many.3"])
    assert limits(broker) == {7}
    assert all(len(each) == 1 for each in seen), "some had it before others"
    assert seen.count(seen[0]) > QUEUES // A_STEP


def test_a_dry_run_goes_in_steps_and_changes_nothing() -> None:
    broker = crowded()
    before = limits(broker)
    seen: list[set[int]] = []
    steps, answers = set_settings(broker, 7, dry_run=True), list[Any]()
    while not answers:
        try:
            next(steps)
            seen.append(limits(broker))
        except StopIteration as done:
            answers.append(done.value)
    assert answers[0]["queues"] == QUEUES
    assert len(seen) >= QUEUES // A_STEP
    assert [*seen, limits(broker)] == [before] * (len(seen) + 1)


def test_two_commands_follow_one_another_and_neither_is_lost() -> None:
    broker = crowded()
    first = set_settings(broker, 7)
    second = settings_calls.set_some(broker, ANYBODY, layers={"#": {"redelivery-delay": 5}})
    going_on = [first, second]
    while going_on:
        for each in list(going_on):
            try:
                next(each)
            except StopIteration:
                going_on.remove(each)
    found = {(queue.settings.max_delivery_attempts, queue.settings.redelivery_delay_ms) for queue in inside.queues(broker).values()}
    assert found == {(7, 5)}
    assert broker.commanded.layers["#"].keys() == {"max_delivery_attempts", "redelivery_delay_ms"}


def test_what_is_refused_in_the_middle_changes_nothing_and_keeps_nobody_out() -> None:
    broker = crowded()
    running = parse("limits: {}\n")
    read = parse('limits: {}\naddress-settings: {"#": {max-delivery-attempts: 7}}\nqueues: {late: {durable: true}}\n')
    before = limits(broker)
    steps = broker.in_force.alone(take_up(broker, running, read))
    next(steps)
    # Somebody has made one of that name otherwise, after it was looked at.
    inside.resources(broker).declare(BROKER, {"queue": "late", "durable": False})
    with pytest.raises(Refused, match="declared otherwise"):
        at_once(steps)
    assert limits(broker) == before
    at_once(set_settings(broker, 9))
    assert limits(broker) == {9}
