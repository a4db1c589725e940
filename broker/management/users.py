"""Users: list, add, delete, passwords, grants. Passwords come as hashes; none is ever in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ..answers.administration import User as DescribedUser
from ..answers.parts import Named
from ..auth.access import Who, asks
from ..auth.users import User
from ..broker import Broker
from ..core.rights import Grant, GrantError, read_grant
from ..errors import Refused
from . import arguments as read
from .pages import Asked, Listed, listed


@asks(Broker.list_users)
def list_all(broker: Broker, who: Who, *, page: Asked) -> Listed[DescribedUser]:
    return listed(broker, page, {user.name: user for user in broker.list_users(who)}, User.describe)


def _grants(_: Broker, name: str, value: Any) -> tuple[Grant, ...]:
    if type(value) is not list or any(type(each) is not dict for each in value):
        raise Refused("invalid-argument", f"{name} must be a list of maps", "see docs/protocol.md, 2.7")
    return tuple(map(_grant, value))


@asks(Broker.add_user)
def add(
    broker: Broker,
    who: Who,
    *,
    name: read.Text,
    hash_: read.Text,
    grants: Annotated[tuple[Grant, ...], _grants] = (),
    ends_ms: read.Number | None = None,
) -> DescribedUser:
    return broker.add_user(who, name, hash_, grants, ends_ms).describe()


@asks(Broker.change_password)
def change_password(broker: Broker, who: Who, *, name: read.Text, hash_: read.Text) -> DescribedUser:
    return broker.change_password(who, name, hash_).describe()


@asks(Broker.delete_user)
def delete(broker: Broker, who: Who, *, name: read.Text) -> Named:
    broker.delete_user(who, name)
    return {"name": name}


@asks(Broker.grant)
def grant(broker: Broker, who: Who, /, *, name: read.Text, **said: object) -> DescribedUser:
    return broker.grant(who, name, _grant(said)).describe()


@asks(Broker.revoke)
def revoke(broker: Broker, who: Who, /, *, name: read.Text, **said: object) -> DescribedUser:
    return broker.revoke(who, name, _grant(said)).describe()


def _grant(said: Mapping[str, object]) -> Grant:
    try:
        return read_grant({name: value for name, value in said.items() if value is not None})
    except GrantError as error:
        raise Refused("invalid-grant", error.message, error.fix) from None
