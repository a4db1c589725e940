"""Users: list, add, delete, passwords, grants. Passwords come as hashes; none is ever in an answer."""

from __future__ import annotations

from typing import Any

from ..auth.access import Who, asks
from ..auth.users import User
from ..broker import Broker
from ..core.rights import Grant, GrantError, read_grant
from ..errors import Refused
from . import arguments as read
from .pages import Listed, listed


@asks("list_users")
def list_all(broker: Broker, who: Who, arguments: dict[str, Any]) -> Listed:
    read.only(arguments, "limit", "after")
    return listed(broker, arguments, {user.name: user for user in broker.list_users(who)}, User.describe)


@asks("add_user")
def add(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    read.only(arguments, "name", "hash", "grants", "ends_ms")
    given = arguments.get("grants", [])
    if type(given) is not list or any(type(each) is not dict for each in given):
        raise Refused("invalid-argument", "grants must be a list of maps", "see docs/protocol.md, 2.7")
    grants = tuple(_grant(each) for each in given)
    ends_ms = None if arguments.get("ends_ms") is None else read.number(arguments, "ends_ms", 0, 0, read.MOST)
    return broker.add_user(who, read.text(arguments, "name"), read.text(arguments, "hash"), grants, ends_ms).describe()


@asks("change_password")
def change_password(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    read.only(arguments, "name", "hash")
    return broker.change_password(who, read.text(arguments, "name"), read.text(arguments, "hash")).describe()


@asks("delete_user")
def delete(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    read.only(arguments, "name")
    name = read.text(arguments, "name")
    broker.delete_user(who, name)
    return {"name": name}


@asks("grant")
def grant(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    return broker.grant(who, *_named_grant(arguments)).describe()


@asks("revoke")
def revoke(broker: Broker, who: Who, arguments: dict[str, Any]) -> dict[str, Any]:
    return broker.revoke(who, *_named_grant(arguments)).describe()


def _named_grant(arguments: dict[str, Any]) -> tuple[str, Grant]:
    said = {name: value for name, value in arguments.items() if name != "name" and value is not None}
    return read.text(arguments, "name"), _grant(said)


def _grant(said: dict[str, Any]) -> Grant:
    try:
        return read_grant(said)
    except GrantError as error:
        raise Refused("invalid-grant", error.message, error.fix) from None
