"""Rights: what a user may do, and where. Pure; who has which is kept by ``auth/users.py`` and asked for by ``auth/access.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from homing.journal.declarations import GrantContent

from .amqp.vhost import DEFAULT, name_problem, split, virtual_host_of
from .settings.wildcard import ANY_WORDS, pattern_matches, pattern_problem


class Right(StrEnum):
    SEND = "send"
    CONSUME = "consume"
    #: See bodies without taking them.
    BROWSE = "browse"
    CREATE = "create"
    #: Settings, policies, purge, delete, edit.
    MANAGE = "manage"
    MONITOR = "monitor"
    #: Users, reload, backups, virtual hosts.
    ADMINISTER = "administer"


ADMINISTRATOR: Final = "administrator"
#: Named sets of rights; the last three are RabbitMQ's permissions.
ROLES: Final[Mapping[str, frozenset[Right]]] = {
    ADMINISTRATOR: frozenset(Right),
    "operator": frozenset({Right.BROWSE, Right.CREATE, Right.MANAGE, Right.MONITOR}),
    "monitoring": frozenset({Right.MONITOR}),
    "producer": frozenset({Right.SEND, Right.CREATE}),
    "consumer": frozenset({Right.CONSUME, Right.CREATE}),
    "configure": frozenset({Right.CREATE, Right.MANAGE}),
    "write": frozenset({Right.SEND}),
    "read": frozenset({Right.CONSUME, Right.BROWSE}),
}
#: Answers of one user that are remembered.
_REMEMBERED: Final = 10_000


class GrantError(ValueError):
    """A grant that cannot be one. ``fix``: what to do about it."""

    code = "invalid-grant"

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class Place(NamedTuple):
    """What a right is asked for: a thing by its names in full, of which any will do; without names the whole broker."""

    #: queue | address | exchange | virtual host | user | broker
    kind: str
    names: tuple[str, ...] = ()
    #: Of an exchange: the routing key, or the key of a binding.
    key: str | None = None


class Grant(NamedTuple):
    """Rights, by themselves or by roles, on what matches ``pattern`` in a virtual host (None: in all), under keys that match ``keys``
    (None: under any, and where there is none).
    """

    rights: frozenset[str]
    pattern: str = ANY_WORDS
    virtual_host: str | None = None
    keys: str | None = None

    def describe(self) -> GrantContent:
        said = GrantContent(rights=sorted(self.rights), pattern=self.pattern)
        if self.virtual_host is not None:
            said["virtual_host"] = self.virtual_host
        if self.keys is not None:
            said["keys"] = self.keys
        return said


def read_grant(said: Mapping[str, Any]) -> Grant:
    """What ``describe`` gave; only ``rights`` must be there. Raises GrantError."""
    rights, pattern, host, keys = said.get("rights"), said.get("pattern", ANY_WORDS), said.get("virtual_host"), said.get("keys")
    if unknown := said.keys() - {"rights", "pattern", "virtual_host", "keys"}:
        raise GrantError(f"a grant has no {min(map(str, unknown))}", "it has rights, pattern, virtual_host and keys")
    if isinstance(rights, str):
        rights = [rights]
    if not isinstance(rights, list | tuple | frozenset) or not rights:
        raise GrantError("a grant needs rights", "name rights or roles: " + _known())
    for right in rights:
        if not isinstance(right, str) or (right not in ROLES and right not in tuple(Right)):
            raise GrantError(f"there is no right or role {right!r:.80}", "there are " + _known())
    for name, value in (("pattern", pattern), ("keys", keys)):
        if value is not None and (problem := pattern_problem(value) if isinstance(value, str) else "a pattern is text"):
            raise GrantError(f"{value!r:.80} cannot be the {name} of a grant", problem)
    if host is not None and (problem := name_problem(host) if isinstance(host, str) else "the name of a virtual host is text"):
        raise GrantError(problem, "leave it out for all virtual hosts")
    return Grant(frozenset(rights), pattern, host, keys)


def _known() -> str:
    return ", ".join([*Right, *ROLES])


class Rights:
    """All grants of one user, ready to be asked; every answer is remembered."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._grants: dict[Right, list[Grant]] = {right: [] for right in Right}
        for grant in grants:
            for right in frozenset[Right]().union(*(ROLES.get(word) or {Right(word)} for word in grant.rights)):
                self._grants[right].append(grant)
        self._keyed = any(grant.keys is not None for grants in self._grants.values() for grant in grants)
        self._known: dict[tuple[Right, bool, tuple[str, ...], str | None], bool] = {}

    def may(self, right: Right, place: Place) -> bool:
        asked = right, place.kind == "user", place.names, place.key if self._keyed else None
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[asked] = self._look_up(right, place)
        return known

    def _look_up(self, right: Right, place: Place) -> bool:
        if not place.names or place.kind == "user":
            return any(grant.pattern == ANY_WORDS and grant.virtual_host is None and grant.keys is None for grant in self._grants[right])
        return any(_covers(grant, name, place.key) for grant in self._grants[right] for name in place.names)

    def anything_on(self, place: Place) -> bool:
        """Whether there is anything that may be done with it, under whatever key."""
        grants = [grant._replace(keys=None) for grants in self._grants.values() for grant in grants]
        return any(_covers(grant, name, None) for grant in grants for name in place.names)

    def somewhere_in(self, virtual_host: str) -> bool:
        """Whether there is anything that may be done there."""
        return any(grant.virtual_host in (None, virtual_host) for grants in self._grants.values() for grant in grants)


def _covers(grant: Grant, name: str, key: str | None) -> bool:
    if grant.virtual_host is not None and grant.virtual_host != virtual_host_of(name):
        return False
    if grant.keys is not None and (key is None or not pattern_matches(grant.keys, key)):
        return False
    return pattern_matches(grant.pattern, split(name)[1])


def everything_in(prefix: str) -> Place:
    """All that is in the virtual host whose names begin so."""
    return Place("virtual host", (prefix + ANY_WORDS,))


def shown(place: Place) -> str:
    """As RabbitMQ's sentences have it."""
    if not place.names:
        return "the broker"
    name = place.names[0]
    if place.kind == "user":
        return f"user '{name}'"
    if place.kind == "virtual host":
        return f"vhost '{virtual_host_of(name)}'"
    key = f" with routing key '{place.key}'" if place.key is not None else ""
    return f"{place.kind} '{split(name)[1]}'{key} in vhost '{virtual_host_of(name)}'"


def command_for(user: str, right: Right, place: Place) -> str:
    """What an administrator would type to allow it."""
    said = f"homing user grant {user} {right}"
    if not place.names or place.kind == "user":
        return said
    host = virtual_host_of(place.names[0])
    return f"{said} --on '{split(place.names[0])[1]}'" + (f" --vhost '{host}'" if host != DEFAULT else "")
