"""What differs between two configurations, and what of that a reload brings into force."""

from __future__ import annotations

from typing import Final, NamedTuple

from .config import Config
from .cut import signs_of_a_cut
from .source import ConfigError, ConfigProblem, KeyPath, show_path, shown

#: Sections that only a restart can change; the rest takes effect at reload.
RESTART_SECTIONS: Final = frozenset(
    {
        "audit",
        "native",
        "amqp",
        "stomp",
        "http",
        "console",
        "tls",
        "insecure",
        "data_directory",
        "journal",
        "broker",
        "limits",
        "user_limits",
        "peer_limits",
    }
)
#: Of ``limits`` these take effect at reload all the same.
RELOADED_LIMITS: Final = frozenset({"window_messages", "window_bytes", "window_scheduled"})
#: What makes a node the one it is, and what whoever means to change it does.
_OF_A_NODE: Final = {
    "url": "put it back, or restart the node if the same database is reached by it; a cell does not move by its URL",
    "cell": "put it back; a node of another cell is a process of its own, with a data-directory of its own",
    "node": "put it back, or restart the node if it is to have another name; `homing cluster remove` forgets the one that it had",
}
_NODE_BEGINS: Final = ("a broker becomes a node at a start, not while it runs", "stop it, and let `homing cluster init` make the cell")
_NODE_ENDS: Final = ("a node does not cease to be one", "put it back; a journal that several nodes have is written by nodes alone")
_NO_USERS_FIX: Final = "keep at least one; only a restart takes the last user away"


class Change(NamedTuple):
    """One value that differs between two configurations."""

    #: Field names, dotted.
    path: str
    before: object
    after: object
    #: Only a restart brings it into force.
    needs_restart: bool


def check_reload(running: Config, read: Config) -> None:
    """Raises ConfigError where the file that was read again looks cut, would let everybody in, or is another node's."""
    problems = signs_of_a_cut(running._outline, read._outline) + _of_another_node(running, read)
    if running.users and not read.users and not any(each.path == "users" for each in problems):
        problems.append(ConfigProblem("users", read.line_of("users"), "no user is left, and anybody could come in", _NO_USERS_FIX))
    if problems:
        raise ConfigError(problems, str(read.source_path or "broker.yaml"))


def _of_another_node(running: Config, read: Config) -> list[ConfigProblem]:
    before, after = running.journal.replication, read.journal.replication
    path = ("journal", "replication")
    if before is None or after is None:
        if before is after:
            return []
        message, fix = _NODE_BEGINS if before is None else _NODE_ENDS
        return [ConfigProblem(show_path(path), read.line_of(*path), message, fix)]
    return [
        ConfigProblem(
            show_path((*path, name)), read.line_of(*path, name), f"it is {shown(was)} as long as the node runs, got {shown(now)}", fix
        )
        for name, fix in _OF_A_NODE.items()
        for was, now in ((getattr(before, name), getattr(after, name)),)
        if was != now
    ]


def reloaded(running: Config, read: Config) -> Config:
    """What is in force after a reload: what only a restart can change stays as it is, and is shown as it is."""
    kept = {section: getattr(running, section) for section in RESTART_SECTIONS}
    windows = {name: getattr(read.limits, name) for name in RELOADED_LIMITS}
    return read.model_copy(update={**kept, "limits": running.limits.model_copy(update=windows)})


def changes(before: Config, after: Config) -> list[Change]:
    """Every value that differs, by path. Users count by name, hash and grants; a hash itself is never shown."""
    old, new = _flat(before.describe(), ()), _flat(after.describe(), ())
    found = [
        Change(".".join(path), old.get(path), new.get(path), path[0] in RESTART_SECTIONS and path[-1] not in RELOADED_LIMITS)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
    both = [(f"users.{name}", before.users[name], after.users[name]) for name in sorted(before.users.keys() & after.users.keys())]
    found += [Change(path, "a hash", "another hash", False) for path, was, is_now in both if was.hash != is_now.hash]
    return found + [Change(f"{path}.grants", was.said(), is_now.said(), False) for path, was, is_now in both if was.grants != is_now.grants]


def _flat(value: object, path: KeyPath) -> dict[KeyPath, object]:
    if not isinstance(value, dict) or not value:
        return {path: value} if path else {}
    return {inner: leaf for key, each in value.items() for inner, leaf in _flat(each, (*path, key)).items()}
