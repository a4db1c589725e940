"""Users, the groups or roles they are in, and what these may do: from where ActiveMQ has each, as users with grants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..auth.passwords import UserError, hash_password
from .translation import Translation, Value


class Security:
    """``folder``: where files stand that the configuration does not name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._users: dict[str, tuple[str, set[str], str]] = {}
        #: Group -> pattern -> rights, and where each was given.
        self._grants: dict[str, dict[str, dict[str, str]]] = {}

    def user(self, name: str, password: str, groups: list[str], origin: str) -> None:
        self._users.setdefault(name, (password, set(groups), origin))

    def grant(self, group: str, rights: list[str], pattern: str, origin: str) -> None:
        given = self._grants.setdefault(group, {}).setdefault(pattern, {})
        for right in rights:
            given.setdefault(right, origin)

    def from_files(self, users: str, groups: str, origin: str, found: Translation) -> None:
        """``name=password`` and ``group=name,name``, beside the configuration."""
        passwords = read_properties(self._folder / users)
        if passwords is None:
            found.miss(
                origin, users, f"there is no such file beside it; homing user add NAME makes each user, or name a folder that has {users}"
            )
            return
        members: dict[str, list[str]] = {}
        for group, names in (read_properties(self._folder / groups) or {}).items():
            for name in names[0].split(","):
                members.setdefault(name.strip(), []).append(group)
        for name, (password, line) in passwords.items():
            self.user(name, password, members.get(name, []), f"{users}:{line}")

    def write(self, found: Translation) -> None:
        for name, (password, groups, origin) in self._users.items():
            grants, origins = self._of(sorted(groups))
            if not self._grants:
                grants = [{"rights": ["administrator"]}]
            self._write_user(name, password, grants, [origin, *origins], found)
        members = {group for _, groups, _ in self._users.values() for group in groups}
        for group in sorted(self._grants.keys() - members):
            grants, origins = self._of([group])
            found.miss(_together(origins), f"group {group}", f"no user here is in it, who might {_told(grants)} (homing user grant)")
        if self._users and not self._grants:
            found.differ(
                next(iter(self._users.values()))[2], "users without rules", "everybody may do everything, as before: administrator"
            )

    def _of(self, groups: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """What they may together, and where that is said."""
        given: dict[str, set[str]] = {}
        origins: dict[str, None] = {}
        for group in groups:
            for pattern, rights in self._grants.get(group, {}).items():
                given.setdefault(pattern, set()).update(rights)
                origins.update(dict.fromkeys(rights.values()))
        return [{"rights": sorted(rights), "pattern": pattern} for pattern, rights in given.items()], list(origins)

    @staticmethod
    def _write_user(name: str, password: str, grants: list[dict[str, Any]], origins: list[str], found: Translation) -> None:
        then = f"; homing user add {name} makes the user" + (f", homing user grant lets it {_told(grants)}" if grants else "")
        if password.startswith("ENC(") or "${" in password:
            found.miss(_together(origins), f"password of {name}", f"it is not in the file{then}")
            return
        try:
            hashed = hash_password(password)
        except UserError as error:
            found.miss(_together(origins), f"user {name}", f"{error.message}: {error.fix}{then}")
            return
        found.sections.setdefault("users", {})[name] = {"hash": Value(hashed, origins[0]), "grants": Value(grants, _together(origins))}


def _together(origins: list[str]) -> str:
    """``a.xml:3 5, b.xml:1``."""
    lines: dict[str, list[str]] = {}
    for file, _, line in (each.rpartition(":") for each in origins):
        lines.setdefault(file, []).append(line)
    return ", ".join(f"{file}:{' '.join(found)}" for file, found in lines.items())


def _told(grants: list[dict[str, Any]]) -> str:
    return "; ".join(f"{', '.join(each['rights'])} on {each.get('pattern', '#')}" for each in grants)


def read_properties(path: Path) -> dict[str, tuple[str, int]] | None:
    """Key -> (value, line) of a file of Java's properties; None where there is none that can be read."""
    if not path.is_file() or path.stat().st_size > 1 << 20:
        return None
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        key, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", "!")):
            found[key.strip()] = (value.strip(), number)
    return found
