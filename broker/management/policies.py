"""Policies: list, set, clear."""

from __future__ import annotations

from typing import Any

from ..auth.access import Who, asks, everywhere, needs
from ..broker import Broker
from ..core.amqp.policy import ALL, Policy, PolicyError, read_policy
from ..core.amqp.vhost import DEFAULT
from ..core.rights import Right
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .pages import Listed, listed


def describe(policy: Policy, configured: bool) -> dict[str, Any]:
    """``slow``: its pattern ran out of time on some name, and does not hold there."""
    source = "broker.yaml" if configured else "command"
    return {**policy.describe(), "source": source, **({"slow": True} if policy.pattern.slow else {})}


@needs((Right.MONITOR, everywhere), action="policies")
def list_all(broker: Broker, who: Who, arguments: dict[str, Any]) -> Listed:
    read.only(arguments, "limit", "after")
    # As they are sorted: by virtual host, then by name. No name of either holds a zero.
    found = {f"{policy.virtual_host}\0{policy.name}": (policy, configured) for policy, configured in broker.policies.all()}
    return listed(broker, arguments, found, lambda each: describe(*each))


@asks("set_policy")
def set_one(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    """Holds at once, for queues and exchanges that are there too."""
    read.only(arguments, "name", "pattern", "definition", "apply_to", "priority", "virtual_host")
    try:
        policy = read_policy(
            arguments.get("name"),
            arguments.get("pattern"),
            arguments.get("definition"),
            arguments.get("apply_to", ALL),
            arguments.get("priority", 0),
            _virtual_host(arguments),
        )
    except PolicyError as error:
        raise Refused("invalid-policy", error.message, error.fix) from None
    yield from broker.set_policy(who, policy)
    return describe(policy, False)


@asks("clear_policy")
def clear(broker: Broker, who: Who, arguments: dict[str, Any]) -> Steps[dict[str, Any]]:
    read.only(arguments, "name", "virtual_host")
    name = read.text(arguments, "name")
    yield from broker.clear_policy(who, _virtual_host(arguments), name)
    return {"name": name}


def _virtual_host(arguments: dict[str, Any]) -> str:
    return read.text(arguments, "virtual_host") if "virtual_host" in arguments else DEFAULT
