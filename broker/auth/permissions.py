"""Who may do what. Until users have permissions, one default that allows everything stands where they will be asked."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from ..errors import Refused


class Action(StrEnum):
    """RabbitMQ's three."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


#: (user, action, "queue" or "exchange", virtual host, name there) -> whether it may be done.
Permitted = Callable[[str, Action, str, str, str], bool]


def everybody(_user: str, _action: Action, _kind: str, _virtual_host: str, _name: str) -> bool:
    """The default: whoever may log in may do everything."""
    return True


def check(permitted: Permitted, user: str, action: Action, kind: str, virtual_host: str, name: str) -> None:
    """Raises Refused with RabbitMQ's sentence."""
    if not permitted(user, action, kind, virtual_host, name):
        refusal = f"{action} access to {kind} '{name}' in vhost '{virtual_host}' refused for user '{user}'"
        raise Refused("access-refused", refusal, f"give the user {action} permission there")
