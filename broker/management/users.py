"""Users: list, add, delete, passwords, grants. Passwords come as hashes; none is ever in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from ..answers.administration import User as DescribedUser
from ..answers.parts import Named
from ..auth.access import Who, asks
from ..auth.users import User, Users
from ..broker import Broker
from ..core.rights import Grant, GrantError, read_grant
from ..errors import Refused
from . import arguments as read
from .pages import Asked, Listed, listed


@asks(Users.all)
def list_all(broker: Broker, who: Who, *, page: Asked) -> Listed[DescribedUser]:
    return listed(broker, page, {user.name: user for user in broker.users.all(who)}, User.describe)


def _grants(_: Broker, name: str, value: object) -> tuple[Grant, ...]:
    if type(value) is not list or any(type(each) is not dict for each in value):
        raise Refused("invalid-argument", f"{name} must be a list of maps", "see docs/protocol.md, 2.7")
    return tuple(map(_grant, value))


@asks(Users.add)
def add(
    broker: Broker,
    who: Who,
    *,
    name: read.Text,
    hash_: read.Text,
    grants: Annotated[tuple[Grant, ...], _grants] = (),
    ends_ms: read.Number | None = None,
) -> DescribedUser:
    return broker.users.add(who, name, hash_, grants, ends_ms).describe()


@asks(Users.change_password)
def change_password(broker: Broker, who: Who, *, name: read.Text, hash_: read.Text) -> DescribedUser:
    return broker.users.change_password(who, name, hash_).describe()


@asks(Users.delete)
def delete(broker: Broker, who: Who, *, name: read.Text) -> Named:
    broker.users.delete(who, name)
    return {"name": name}


@asks(Users.grant)
def grant(broker: Broker, who: Who, /, *, name: read.Text, **said: object) -> DescribedUser:
    return broker.users.grant(who, name, _grant(said)).describe()


@asks(Users.revoke)
def revoke(broker: Broker, who: Who, /, *, name: read.Text, **said: object) -> DescribedUser:
    return broker.users.revoke(who, name, _grant(said)).describe()


def _grant(said: Mapping[str, object]) -> Grant:
    try:
        return read_grant({name: value for name, value in said.items() if value is not None})
    except GrantError as error:
        raise Refused("invalid-grant", error.message, error.fix) from None
