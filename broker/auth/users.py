"""Users: those of broker.yaml, and those that commands made, which the journal keeps. Of the same name the file's wins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, cast

from homing.journal.declarations import DeclarationRecord, UserContent

from ..answers.administration import Granted
from ..answers.administration import User as Described
from ..core.rights import Grant, GrantError, Place, Right, Rights, read_grant
from ..errors import Refused
from .access import Access, CheckRoom, Who, WriteLine, everywhere, needs, no_audit, room_for_all
from .passwords import check_hash, check_name

log = logging.getLogger("homing")

#: The kind of users' declarations in the journal.
USER: Final = "user"
_MOST: Final = 10_000
#: Of a user who comes in no more: no password has it, and there is a user still.
_ENDED: Final = ""


class User(NamedTuple):
    name: str
    #: Of the password, argon2id.
    hashed: str
    grants: tuple[Grant, ...]
    #: In broker.yaml, and so not a command's to change.
    configured: bool = False
    #: From then on nobody comes in so: a program's token.
    ends_ms: int | None = None

    def content(self) -> UserContent:
        """For the journal."""
        content = UserContent(hash=self.hashed, grants=[grant.describe() for grant in self.grants])
        if self.ends_ms is not None:
            content["ends_ms"] = self.ends_ms
        return content

    def describe(self) -> Described:
        """For people: no hash."""
        grants: list[Granted] = [{**grant.describe()} for grant in self.grants]
        described: Described = {"name": self.name, "grants": grants, "source": "broker.yaml" if self.configured else "command"}
        return described if self.ends_ms is None else {**described, "ends_ms": self.ends_ms}


def contents(declarations: Iterable[DeclarationRecord]) -> dict[str, UserContent]:
    """Those of users, by name."""
    return {record.name: cast(UserContent, record.content) for record in declarations if record.kind == USER}


def _named(name: str) -> tuple[Place]:
    return (Place("user", (name,)),)


class Users:
    def __init__(
        self,
        keep: Callable[[str, UserContent | None], None],
        now_ms: Callable[[], int],
        check_room: CheckRoom = room_for_all,
        audit: WriteLine = no_audit,
    ) -> None:
        """``keep``: writes a user's content into the journal, or takes the user out of it (None)."""
        #: Who of them may do what: each verb asks.
        self.access = Access(self, check_room, audit)
        self._keep = keep
        self._now_ms = now_ms
        #: When the next one ends.
        self._next_end_ms: int | None = None
        self._configured: Mapping[str, User] = {}
        self._commanded: dict[str, User] = {}
        #: In force, and name -> argon2 hash of these; empty: everybody is anonymous.
        self._users: Mapping[str, User] = {}
        self.hashes: Mapping[str, str] = {}
        self._rights: dict[str, Rights] = {}
        #: Called with whose logins are over (None: everybody's, as there are users now), and whose rights are others.
        self.changed: list[Callable[[frozenset[str] | None, frozenset[str]], None]] = []

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    @needs((Right.ADMINISTER, everywhere), action="list-users")
    def all(self, who: Who) -> list[User]:
        """By name; those of broker.yaml too."""
        return sorted(self._users.values())

    def rights_of(self, name: str) -> Rights | None:
        return self._rights.get(name)

    # -- of broker.yaml, and of the journal --------------------------------------------------------------------------

    def configure(self, users: Iterable[User]) -> None:
        """Those of the file as it is now."""
        self._configured = {user.name: user for user in users}
        for name in sorted(self._configured.keys() & self._commanded.keys()):
            log.warning(
                "user-shadowed: user %s is in broker.yaml and was made by homing user add as well: the one of broker.yaml counts", name
            )
        self._take_up()

    def restore(self, contents: Mapping[str, UserContent]) -> None:
        """What the journal kept. A grant that is not understood any more is logged and left out."""
        for name, content in contents.items():
            grants = list[Grant]()
            for said in content["grants"]:
                try:
                    grants.append(read_grant(said))
                except GrantError as error:
                    log.error("grant-unreadable: a grant of user %s in the journal is not understood any more (%s)", name, error)
            self._commanded[name] = User(name, content["hash"], tuple(grants), ends_ms=content.get("ends_ms"))
        self._take_up()

    def _take_up(self) -> None:
        before, hashes, now_ms = self._users, self.hashes, self._now_ms()
        self._users = {**self._commanded, **self._configured}
        ends = {name: user.ends_ms for name, user in self._users.items() if user.ends_ms is not None}
        self.hashes = {name: _ENDED if ends.get(name, now_ms + 1) <= now_ms else user.hashed for name, user in self._users.items()}
        self._next_end_ms = min((end_ms for end_ms in ends.values() if end_ms > now_ms), default=None)
        over = frozenset(name for name, hashed in hashes.items() if self.hashes.get(name) != hashed)
        others = frozenset(name for name, user in self._users.items() if name in before and before[name].grants != user.grants)
        for name in before.keys() - self._users.keys():
            del self._rights[name]
        for name, user in self._users.items():
            if name not in before or name in others:
                self._rights[name] = Rights(user.grants)
        if not before and not self._users:
            return
        self.access.allowed.clear()
        for listener in self.changed:
            listener(over if before else None, others)

    def look(self, now_ms: int) -> None:
        """Now and then: whoever's time is over comes in no more, and the connections end."""
        if self._next_end_ms is not None and now_ms >= self._next_end_ms:
            before = self.hashes
            self._take_up()
            ended = ", ".join(name for name, hashed in self.hashes.items() if hashed != before.get(name))
            log.info("user-ended: the time of %s is over: nobody comes in so any more", ended)

    # -- of commands -------------------------------------------------------------------------------------------------

    @needs((Right.ADMINISTER, _named), audited=True, action="add-user")
    def add(self, who: Who, name: str, hashed: str, grants: tuple[Grant, ...], ends_ms: int | None = None) -> User:
        """Raises Refused: there is one, or it is the first and no administrator for good, and nobody could let in a second."""
        check_name(name)
        check_hash(hashed)
        if name in self._users:
            raise Refused("user-exists", f"there is a user {name}", f"homing user passwd {name} gives another password")
        if len(self._commanded) >= _MOST:
            raise Refused("too-many-users", f"there are {_MOST} users, as many as there may be", "delete some")
        if not self._users and (ends_ms is not None or not Rights(grants).may(Right.ADMINISTER, Place("broker"))):
            said = "the first user must be an administrator: from then on nobody comes in without a user"
            raise Refused("administrator-needed", said, "homing user add NAME --role administrator")
        return self._put(User(name, hashed, grants, ends_ms=ends_ms))

    @needs((Right.ADMINISTER, _named), audited=True)
    def change_password(self, who: Who, name: str, hashed: str) -> User:
        """The user's connections end. Raises Refused."""
        check_hash(hashed)
        return self._put(self._own(name)._replace(hashed=hashed))

    @needs((Right.ADMINISTER, _named), audited=True, action="delete-user")
    def delete(self, who: Who, name: str) -> None:
        """The user's connections end. Raises Refused: the last one without an end stays, or everybody could come in, or nobody."""
        self._own(name)
        if all(user.ends_ms is not None for user in self._users.values() if user.name != name):
            said = f"{name} is the last user without an end, and without one anybody could come in, or nobody"
            raise Refused("last-user", said, "add another one first")
        del self._commanded[name]
        self._keep(name, None)
        self._take_up()

    @needs((Right.ADMINISTER, _named), audited=True)
    def grant(self, who: Who, name: str, grant: Grant) -> User:
        """Adds to what the user has at the same place. Raises Refused."""
        user = self._own(name)
        others = tuple(each for each in user.grants if each[1:] != grant[1:])
        same = frozenset[str]().union(*(each.rights for each in user.grants if each[1:] == grant[1:]))
        return self._put(user._replace(grants=(*others, grant._replace(rights=same | grant.rights))))

    @needs((Right.ADMINISTER, _named), audited=True)
    def revoke(self, who: Who, name: str, grant: Grant) -> User:
        """Takes rights away that were granted in the same words at the same place. Raises Refused: there is no such grant."""
        user = self._own(name)
        others = tuple(each for each in user.grants if each[1:] != grant[1:])
        same = frozenset[str]().union(*(each.rights for each in user.grants if each[1:] == grant[1:]))
        if missing := sorted(grant.rights - same):
            has = f"has {', '.join(sorted(same))} there" if same else "has nothing there"
            said = f"{name} was not granted {', '.join(missing)} in these words: the user {has}"
            raise Refused("no-such-grant", said, "homing user list shows all grants")
        left = same - grant.rights
        return self._put(user._replace(grants=(*others, grant._replace(rights=left)) if left else others))

    def _own(self, name: str) -> User:
        """One that a command may change."""
        user = self._users.get(name)
        if user is None:
            raise Refused("no-such-user", f"there is no user {name}", "homing user list shows all")
        if user.configured:
            raise Refused("user-of-the-file", f"user {name} is in broker.yaml, which counts", "change it there, then homing reload")
        return user

    def _put(self, user: User) -> User:
        self._commanded[user.name] = user
        self._keep(user.name, user.content())
        self._take_up()
        return user
