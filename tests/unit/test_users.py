"""Passwords and their hashes."""

from __future__ import annotations

import pytest

from homing.broker.auth import passwords as users


def test_a_password_is_right_only_for_its_own_hash() -> None:
    hashed = users.hash_password("correct horse")
    assert hashed.startswith("$argon2id$")
    assert "correct horse" not in hashed
    assert users.hash_password("correct horse") != hashed, "each hash has its own salt"
    assert users.verify_password(hashed, "correct horse")
    assert not users.verify_password(hashed, "Correct horse")
    assert not users.verify_password(hashed, "")


def test_nobody_is_never_right() -> None:
    assert not users.verify_password(None, "anything")
    assert not users.verify_password(None, "no password hashes to this by chance, and none is ever accepted by it")


@pytest.mark.parametrize("hashed", ["", "plain", "$argon2id$", "$2b$12$abcdefghijklmnopqrstuv"])
def test_what_is_no_hash_lets_nobody_in(hashed: str) -> None:
    assert not users.verify_password(hashed, "plain")


@pytest.mark.parametrize("password", ["", "x" * 1025, "\ud800"])
def test_passwords_that_cannot_be_one(password: str) -> None:
    with pytest.raises(users.UserError) as caught:
        users.hash_password(password)
    assert caught.value.code == "invalid-password"
    assert caught.value.fix
    assert not users.verify_password(users.hash_password("other"), password)


def test_who_may_come_in() -> None:
    known = {"bob": users.hash_password("secret")}
    assert users.check_login({}, "", "")
    assert users.check_login(known, "bob", "secret")
    assert not users.check_login(known, "bob", "wrong")
    assert not users.check_login(known, "eve", "secret")
    assert not users.check_login(known, "", "")
