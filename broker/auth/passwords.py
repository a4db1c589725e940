"""Passwords and their argon2 hashes. Pure functions that take tens of milliseconds: the server runs them in a bounded pool of threads."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ..errors import Refused

if TYPE_CHECKING:
    from argon2 import PasswordHasher

_MAX_NAME: Final = 128
#: Longer ones are refused before they are hashed.
MAX_PASSWORD_BYTES: Final = 1024


class UserError(ValueError):
    """A password that cannot be one. The connection that brought it ends like any failed login."""

    code = "invalid-password"

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@lru_cache(maxsize=1)
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher()


@lru_cache(maxsize=1)
def _nobodys_hash() -> str:
    """A hash to compare with when there is no such user, so that the answer takes as long."""
    return _hasher().hash("no password hashes to this by chance, and none is ever accepted by it")


def hash_password(password: str) -> str:
    """The argon2id hash of ``password`` with a fresh salt, for ``users:`` in broker.yaml. Raises UserError for an empty or overlong one."""
    if not password:
        raise UserError("a password must not be empty", "choose a longer one")
    if not _fits(password):
        raise UserError(f"a password has at most {MAX_PASSWORD_BYTES} bytes of UTF-8", "choose a shorter one")
    return _hasher().hash(password)


def verify_password(hashed: str | None, password: str) -> bool:
    """Whether ``password`` is the one of ``hashed``. ``None`` (no such user) takes as long and is never right. Raises nothing."""
    from argon2.exceptions import InvalidHash, VerificationError

    if not password or not _fits(password):
        return False
    try:
        right = _hasher().verify(hashed if hashed is not None else _nobodys_hash(), password)
    except (VerificationError, InvalidHash):
        return False
    return hashed is not None and right


def check_login(users: dict[str, str], user: str, password: str) -> bool:
    """Whether ``user`` may come in. ``users`` maps name to argon2 hash; without any, everybody is anonymous and may."""
    return not users or verify_password(users.get(user), password)


def check_hash(hashed: str) -> None:
    """Raises Refused for what is no argon2id hash; a password in the clear is the likely mistake, so it is never repeated."""
    from argon2 import Type, extract_parameters
    from argon2.exceptions import InvalidHash

    try:
        argon2id = extract_parameters(hashed).type is Type.ID
    except InvalidHash:
        argon2id = False
    if not argon2id:
        raise Refused("invalid-hash", "expected an argon2id hash", "make one with: homing user hash")


def check_name(name: str) -> None:
    """Raises Refused for what cannot be a user's name."""
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise Refused("invalid-name", f"{name!r:.80} cannot name a user", f"use 1 to {_MAX_NAME} printable characters")


def _fits(password: str) -> bool:
    try:
        return len(password.encode()) <= MAX_PASSWORD_BYTES
    except UnicodeEncodeError:
        return False
