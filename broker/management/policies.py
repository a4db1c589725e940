"""Policies: list, set, clear."""

from __future__ import annotations

from typing import Annotated

from ..answers.administration import Policy as DescribedPolicy
from ..answers.parts import Named
from ..auth.access import Who, asks, everywhere, needs
from ..broker import Broker
from ..core.amqp.policy import ALL, Policy, PolicyError, read_policy
from ..core.amqp.vhost import DEFAULT
from ..core.rights import Right
from ..delivery.changes import Changes
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from .pages import Asked, Listed, listed

#: By the rules of policies, with those of files.
_Unread = Annotated[object, lambda broker, name, value: value]


def describe(policy: Policy, configured: bool) -> DescribedPolicy:
    described: DescribedPolicy = {
        "name": policy.name,
        "virtual_host": policy.virtual_host,
        "pattern": policy.pattern.pattern,
        "apply_to": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
        "source": "broker.yaml" if configured else "command",
    }
    if policy.pattern.slow:
        described["slow"] = True
    return described


@needs((Right.MONITOR, everywhere), action="policies")
def list_all(broker: Broker, who: Who, *, page: Asked) -> Listed[DescribedPolicy]:
    # As they are sorted: by virtual host, then by name. No name of either holds a zero.
    found = {f"{policy.virtual_host}\0{policy.name}": (policy, configured) for policy, configured in broker.policies.all()}
    return listed(broker, page, found, lambda each: describe(*each))


@asks(Changes.set_policy)
def set_one(
    broker: Broker,
    who: Who,
    *,
    name: _Unread = None,
    pattern: _Unread = None,
    definition: _Unread = None,
    apply_to: _Unread = ALL,
    priority: _Unread = 0,
    virtual_host: read.Text = DEFAULT,
) -> Steps[DescribedPolicy]:
    """Holds at once, for queues and exchanges that are there too."""
    try:
        policy = read_policy(name, pattern, definition, apply_to, priority, virtual_host)
    except PolicyError as error:
        raise Refused("invalid-policy", error.message, error.fix) from None
    yield from broker.changes.set_policy(who, policy)
    return describe(policy, False)


@asks(Changes.clear_policy)
def clear(broker: Broker, who: Who, *, name: read.Text, virtual_host: read.Text = DEFAULT) -> Steps[Named]:
    yield from broker.changes.clear_policy(who, virtual_host, name)
    return {"name": name}
