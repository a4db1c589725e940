"""Access: each verb says beside itself which rights it asks for, where, and whether it is audited; here they are asked. The one check.

``needs`` goes before verbs of the broker's services and handlers of management alike: no front end goes around it (docs/decisions/0020).
What every message passes asks once: a producer when it is opened, a consumer when it subscribes, a route when it is worked out. Another
right makes routes anew and ends connections that have open what their user may no longer do (``Broker``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import iscoroutine, signature
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from ..core.amqp.vhost import split
from ..core.queue import Queue
from ..core.rights import Place, Right, Rights, command_for, shown
from ..core.seldom import APART
from ..core.settings.wildcard import ANY_WORDS, ONE_WORD
from ..errors import Refused

log = logging.getLogger("homing")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

#: Of one line of the audit: names, and what of a text that nobody has checked.
_MOST_NAMES: Final = 20
_MOST_CHARACTERS: Final = 128
_REMEMBERED: Final = 10_000
#: Of a line of the log: names, and what else it tells.
_MOST_SHOWN: Final = 5
_TOLD: Final = ("paused", "policy", "settings", "job", "fault", "muted", "fixed", "to", "rate", "limit", "canary", "messages")
#: Says for what a right is asked, of those arguments of a call that it names; ``owner``: whose verb it is.
Find = Callable[..., Iterable[Place]]
#: Of one line of the audit what it tells, and the line: see Access.record.
Told: TypeAlias = dict[str, object]
WriteLine = Callable[[Told], None]


class Who(Protocol):
    """Whoever asks: a connection, or a request of another kind."""

    @property
    def user(self) -> str: ...

    @property
    def peer(self) -> str:
        """Where from: an address, with the port."""


class _Itself(NamedTuple):
    user: str = ""
    peer: str = ""


#: Whoever owns the broker: nobody asks him, and no line says what he does.
BROKER: Final[Who] = _Itself()


class Known(Protocol):
    """Who there is: password hashes by name, and what each may do."""

    @property
    def hashes(self) -> Mapping[str, str]: ...

    def rights_of(self, name: str) -> Rights | None: ...


class AccessRefused(Refused):
    """A right is missing, and the audit has it."""


class Needs(NamedTuple):
    """What a verb declares. Without a ``Find`` it asks itself, when it has found out for what."""

    asks: tuple[tuple[Right, Find | None], ...] = ()
    audited: bool = False
    #: What the verb declares that asks for it.
    by: Needs | None = None
    #: Its name in the audit.
    action: str = ""


#: Raises Refused where whoever asks may make no more.
CheckRoom = Callable[[Who, Sequence[Place]], None]


def room_for_all(who: Who, places: Sequence[Place]) -> None:
    """Nothing is bounded."""


def no_audit(line: dict[str, object]) -> None:
    """Nothing is kept."""


class Access:
    """``audit`` gets one map for each management action, login and refusal, where there are users."""

    def __init__(self, users: Known, check_room: CheckRoom = room_for_all, audit: WriteLine = no_audit) -> None:
        self.users = users
        self._check_room = check_room
        self._audit = audit
        #: What need not be asked again: see ``needs``.
        self.allowed: set[Hashable] = set()

    def remember(self, known: Hashable) -> None:
        if len(self.allowed) >= _REMEMBERED:
            self.allowed.clear()
        self.allowed.add(known)

    def may(self, who: Who, right: Right, place: Place) -> bool:
        """Where there are no users, everybody may do everything."""
        if not self.users.hashes:
            return True
        rights = self.users.rights_of(who.user)
        return rights is not None and rights.may(right, place)

    def check(self, who: Who, right: Right, *places: Place, verb: str) -> None:
        """Raises Refused, ``access-refused``, unless it may; the audit has it."""
        for place in places:
            if not self.may(who, right, place):
                self.record(who, verb, places, "access-refused", right=str(right))
                raise _refusal(f"{right} access", who, right, place)
        if right is Right.CREATE:
            self._check_room(who, places)

    def check_queue(self, who: Who, right: Right, name: str, address: str, *, verb: str) -> None:
        """As ``check``, of a queue that may be gone."""
        self.check(who, right, place_named(name, address), verb=verb)

    def check_any(self, who: Who, *places: Place, verb: str) -> None:
        """Raises Refused, ``access-refused``, unless it has some right or other there; the audit has it."""
        rights = self.users.rights_of(who.user) if self.users.hashes else None
        for place in places if self.users.hashes else ():
            if rights is None or not rights.anything_on(place):
                self.record(who, verb, places, "access-refused")
                raise _refusal("access", who, Right.MONITOR, place)

    def check_login(self, user: str, virtual_host: str | None) -> None:
        """Raises Refused: there is no such user any more, or, with RabbitMQ's sentence, one that may do nothing in the virtual host."""
        if not self.users.hashes:
            return
        rights = self.users.rights_of(user)
        if rights is None:
            raise Refused("login-refused", f"there is no user '{user}' any more", "log in as another one")
        if virtual_host is not None and not rights.somewhere_in(virtual_host):
            raise Refused(
                "virtual-host-refused",
                f"access to vhost '{virtual_host}' refused for user '{user}'",
                f"an administrator may allow it: homing user grant {user} RIGHT --vhost '{virtual_host}'",
            )

    def record(self, who: Who, action: str, places: Iterable[Place], result: str, **more: object) -> None:
        """``action``: the verb; ``result``: ``done``, or the code of a refusal."""
        on = dict.fromkeys(name for place in places for name in place.names[:1])
        if self.users.hashes:
            line = {"action": action, "user": who.user, "from": who.peer, "on": list(on)[:_MOST_NAMES], "result": result}
            self._audit({**line, **{name: _brief(value) for name, value in more.items()}})

    def record_login(self, name: str | None, peer: str, came: str | Refused, protocol: str) -> None:
        """``name``: as it was given; ``came``: as whom, or why not."""
        if self.users.hashes:
            result = came.code if isinstance(came, Refused) else "done"
            user = came if isinstance(came, str) else name and name[:_MOST_CHARACTERS]
            self._audit({"action": "login", "user": user, "from": peer, "protocol": protocol, "result": result})


class _Owner(Protocol):
    @property
    def access(self) -> Access: ...


def needs(
    *asks: tuple[Right, Find],
    audited: bool = False,
    action: str = "",
    same: Callable[..., Hashable] | None = None,
    tells: Callable[..., Told] | None = None,
    counts: Callable[[Any], int] | None = None,
) -> Callable[[F], F]:
    """The verb is called with whoever asks first; each of ``asks`` is checked before anything of it happens.

    ``audited``: it is an action of management, of which there is a line whether it was done or not. ``action``: its name there, where the
    verb's own is not that of the call. ``tells``: what else stands in the line; ``counts``: how many ``messages`` its value stands for,
    where it is work in steps. ``same``: what it gives (None: nothing) stands for a call that was allowed. Another that gives the same is
    not asked again before users or their rights change. Each of these is called as a ``Find`` is.
    """

    def declare(verb: F) -> F:
        name = action or verb.__name__.replace("_", "-")
        finds = [(right, _by_names(verb, find)) for right, find in asks]
        same_of = None if same is None else _by_names(verb, same)
        told_of = None if tells is None else _by_names(verb, tells)
        # Room to make more is asked for where there are no users, too.
        acts = any(right not in (Right.BROWSE, Right.MONITOR) for right, _ in asks)
        users_alone = not audited and Right.CREATE not in [right for right, _ in asks]

        @wraps(verb)
        def guarded(owner: _Owner, who: Who, *arguments: object, **named: object) -> object:
            access = owner.access
            if who is BROKER or (users_alone and not access.users.hashes):
                return verb(owner, who, *arguments, **named)
            known = None if same_of is None else same_of(owner, who, *arguments, **named)
            if known in access.allowed:
                return verb(owner, who, *arguments, **named)
            places = list[Place]()
            for right, find in finds:
                found = tuple(find(owner, who, *arguments, **named))
                access.check(who, right, *found, verb=name)
                places += found
            if known is not None:
                access.remember(known)
            if not audited:
                return verb(owner, who, *arguments, **named)
            told = told_of(owner, who, *arguments, **named) if told_of is not None else {}

            def record(result: str, **more: object) -> None:
                access.record(who, name, places, result, **told, **more)
                if acts and result == "done":
                    _log_action(who, name, places, {**told, **more})

            try:
                value = verb(owner, who, *arguments, **named)
            except AccessRefused:
                raise
            except Refused as refusal:
                record(refusal.code)
                raise
            if isinstance(value, Generator):
                return _audited(value, record, counts)
            if iscoroutine(value):
                return _audited_later(value, record)
            record("done")
            return value

        return _declares(guarded, Needs(asks, audited, action=name))  # type: ignore[return-value]

    return declare


def needs_any(find: Find, action: str) -> Callable[[F], F]:
    """The verb shows something that whoever has any right there may see; nobody else hears whether it is there."""

    def declare(verb: F) -> F:
        places_of = _by_names(verb, find)

        @wraps(verb)
        def guarded(owner: _Owner, who: Who, *arguments: object) -> object:
            owner.access.check_any(who, *places_of(owner, who, *arguments), verb=action)
            return verb(owner, who, *arguments)

        return _declares(guarded, Needs(action=action))  # type: ignore[return-value]

    return declare


def _by_names(verb: Callable[..., object], find: Callable[..., T]) -> Callable[..., T]:
    """To be called like the verb: calls ``find`` with what it names of that. Raises TypeError where the verb takes no such argument."""
    at = {each.name: (number, each.default) for number, each in enumerate(signature(verb).parameters.values())} | {"owner": (0, None)}
    wants = signature(find).parameters
    if unknown := [name for name in wants if name not in at]:
        raise TypeError(f"{verb.__name__} takes no {', '.join(unknown)}")
    picked = [(name, *at[name]) for name in wants]

    def call(*given: object, **named: object) -> T:
        return find(**{name: given[number] if number < len(given) else named.get(name, default) for name, number, default in picked})

    return call


def _refusal(access: str, who: Who, right: Right, place: Place) -> AccessRefused:
    refusal = f"{access} to {shown(place)} refused for user '{who.user}'"
    return AccessRefused("access-refused", refusal, f"an administrator may allow it: {command_for(who.user, right, place)}")


def _log_action(who: Who, action: str, places: Iterable[Place], told: Told) -> None:
    """What was done by hand, and by whom; of what else there is to tell only what has no message's content in it."""
    on = list(dict.fromkeys(name for place in places for name in place.names[:1]))
    names = ", ".join(on[:_MOST_SHOWN]) + (f" and {len(on) - _MOST_SHOWN} more" if len(on) > _MOST_SHOWN else "")
    by = f"{who.user} ({who.peer})" if who.user and who.peer else who.user or who.peer
    more = "".join(f", {name.replace('_', ' ')} {told[name]}" for name in _TOLD if name in told)
    log.info("action: %s%s by %s%s", action, f" of {names}" if names else "", by or "the broker", more, extra=APART)


def asks(verb: Callable[..., object]) -> Callable[[F], F]:
    """A handler of management whose rights are asked for, and audited, by that verb."""
    return lambda handler: _declares(handler, Needs(by=verb.__dict__["needs"]))


def shown_only(right: Right) -> Callable[[F], F]:
    """A list that anybody may ask for and that has only what this right is there for."""
    return lambda handler: _declares(handler, Needs(((right, None),)))


def found_later(right: Right) -> Callable[[F], F]:
    """What is asked for is known only when the journal was read; then it calls ``check``."""
    return lambda handler: _declares(handler, Needs(((right, None),)))


def free(handler: F) -> F:
    """Whoever has logged in may."""
    return _declares(handler, Needs())


def _declares(verb: F, what: Needs) -> F:
    verb.__dict__["needs"] = what
    return verb


def _audited(
    steps: Generator[object, None, T], record: Callable[..., None], counts: Callable[[T], int] | None
) -> Generator[object, None, T]:
    """Long work, whose line comes when it has ended."""
    try:
        value = yield from steps
    except AccessRefused:
        raise
    except Refused as refusal:
        record(refusal.code)
        raise
    record("done", **({} if counts is None else {"messages": counts(value)}))
    return value


async def _audited_later(work: Coroutine[object, None, T], record: Callable[..., None]) -> T:
    try:
        value = await work
    except AccessRefused:
        raise
    except Refused as refusal:
        record(refusal.code)
        raise
    record("done")
    return value


def _brief(value: object) -> object:
    """Fit for one line: of long texts the beginning, of lists the first."""
    match value:
        case bytes():
            return _brief(value.decode(errors="replace"))
        case str():
            return value[:_MOST_CHARACTERS]
        case list() | tuple():
            return [_brief(each) for each in value[:_MOST_NAMES]]
        case dict():
            return {_brief(name): _brief(value[name]) for name in list(value)[:_MOST_NAMES]}
        case _:
            return value


def declared(verb: Callable[..., object]) -> Needs | None:
    """None where it declares nothing."""
    found: Needs | None = getattr(verb, "needs", None)
    return found


# -- where -----------------------------------------------------------------------------------------------------------------


def queue_place(queue: Queue) -> Place:
    """A right on a queue is one on its name, or on its address."""
    names = (queue.name,) if queue.name == queue.address else (queue.name, queue.address)
    return Place("queue", names)


def place_named(name: str, address: str) -> Place:
    """Of a queue that may be gone."""
    return Place("queue", (name,) if name == address or split(name)[1] == split(address)[1] else (name, address))


def at_queue(queue: Queue) -> tuple[Place]:
    return (queue_place(queue),)


def at_target(target: Queue | None) -> tuple[Place, ...]:
    """Where messages go, if that is said."""
    return () if target is None else (queue_place(target),)


def at_address(address: str) -> tuple[Place]:
    return (Place("address", (address,)),)


_BROKER: Final = (Place("broker"),)


def pattern_place(pattern: str) -> Place:
    """Of address settings: a pattern that begins with a wildcard holds in all virtual hosts."""
    return _BROKER[0] if pattern.split(".")[0] in (ANY_WORDS, ONE_WORD) else Place("address", (pattern,))


def everywhere() -> tuple[Place]:
    """The whole broker."""
    return _BROKER
