"""Virtual hosts, policies, addresses and queues that broker.yaml names: whether they can be made, and making them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ..auth.access import BROKER
from ..auth.users import User
from ..broker import Broker
from ..config.config import Config, ConfigProblem
from ..core.amqp.policy import Policy
from ..core.amqp.vhost import prefix_of
from ..core.routing import RoutingTypes
from ..errors import Refused
from ..steps import at_once

log = logging.getLogger("homing")
T = TypeVar("T")


def users(config: Config) -> list[User]:
    """Those of the file."""
    return [User(name, each.hash, each.grants, configured=True) for name, each in config.users.items()]


def policies_of(config: Config) -> list[Policy]:
    """Those of the file."""
    return [policy.read(name) for name, policy in config.policies.items()]


def problems(broker: Broker, config: Config) -> list[ConfigProblem]:
    """Everything that could not be made now. Changes nothing."""
    found: list[ConfigProblem] = []

    def check(path: str, job: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return job(*arguments)
        except Refused as refusal:
            found.append(ConfigProblem(path, config.line_of(*path.split(".", 1)), refusal.message, refusal.fix))
            return None

    hosts, resources = broker.virtual_hosts, broker.resources
    new_hosts = [name for name in config.virtual_hosts if check("virtual-hosts", hosts.check, name)]
    if new_hosts:
        check("virtual-hosts", hosts.check_room, len(new_hosts))
    prefixes = {prefix_of(name) for name in new_hosts}
    for name in config.addresses:
        check(f"addresses.{name}", resources.check_name, name, "address", prefixes)
    for name, queue in config.queues.items():
        check(f"queues.{name}", resources.read_declaration, queue.arguments(name), prefixes)
    if new_queues := config.queues.keys() - broker.post_office.queues.keys():
        check("queues", resources.check_room, len(new_queues))
    return found


def declare(broker: Broker, config: Config) -> None:
    """Makes them. What cannot be made is logged and left out: at a start the others are wanted all the same."""

    def make(path: str, job: Callable[..., object], *arguments: Any) -> None:
        try:
            job(*arguments)
        except Refused as refusal:
            log.error("declaration-refused: %s of broker.yaml: %s; %s", path, refusal.message, refusal.fix)

    broker.users.configure(users(config))
    for name in config.virtual_hosts:
        make(f"virtual host {name}", broker.virtual_hosts.add, BROKER, name)
    if (policies := broker.policies.configured(policies_of(config))) is not None:
        # At a start; a reload has them taken up already.
        at_once(broker.changes.bring(broker.settings.repository, policies))
    for name, address in config.addresses.items():
        types = RoutingTypes(0)
        for routing_type in address.routing_types:
            types |= RoutingTypes[routing_type.upper()]
        make(f"address {name}", broker.resources.declare_address, name, types)
    for name, queue in config.queues.items():
        make(f"queue {name}", broker.resources.declare, BROKER, queue.arguments(name))
