"""``homing user``: users by command, of a running broker or, with ``--data``, of a stopped one; passwords are never arguments."""

from __future__ import annotations

import base64
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ..answers.administration import Granted, User
from ..words.amounts import clock
from .output import DEFAULT_URL, CommandError, ExitCode, Json, Url, Yes, confirm, escape, print_json, stdout, unreadable
from .tables import Column, Listing, Wide, print_table
from .times import duration

app = typer.Typer(help="Users, and what they may do.", no_args_is_help=True)

#: Where a new password may stand, for programs.
PASSWORD_VARIABLE: Final = "HOMING_NEW_PASSWORD"
_TOKEN_MS: Final = 90 * 86_400_000

Name = Annotated[str, typer.Argument(help="The user's name.", show_default=False)]
Data = Annotated[Path | None, typer.Option("--data", help="The data directory of a broker that is stopped.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help=f"Its first line is the password; -: standard input's. Without it {PASSWORD_VARIABLE} counts, else it is asked for.",
    ),
]
Words = Annotated[list[str], typer.Argument(metavar="RIGHT...", help="Rights or roles; docs/security.md has them.", show_default=False)]
On = Annotated[str, typer.Option("--on", help="For what matches this pattern: addresses, queues, exchanges.")]
VirtualHost = Annotated[str | None, typer.Option("--vhost", "-p", help="In this virtual host alone.", show_default="in all")]
Keys = Annotated[str | None, typer.Option("--keys", help="On exchanges: under routing keys that match this pattern.", show_default="any")]


def password(file: Path | None) -> str:
    """From the file, the environment or, twice, the terminal. Raises UserError, CommandError or BadParameter."""
    if file is not None:
        try:
            text = sys.stdin.readline() if str(file) == "-" else file.read_text(encoding="utf-8")
            return text.partition("\n")[0].rstrip("\r")
        except OSError as error:
            raise unreadable(file, error) from None
        except UnicodeDecodeError as error:
            raise typer.BadParameter(f"the password cannot be read: {error}") from None
    if PASSWORD_VARIABLE in os.environ:
        return os.environ[PASSWORD_VARIABLE]
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))


def _ask(url: str, data: Path | None, verb: str, **arguments: object) -> Any:
    """One call of the running broker, or the same of the stopped one."""
    if data is None:
        from .client import call

        return call(url, verb, **arguments)
    from ..process import stopped
    from .settings import load_config

    return stopped.call(load_config(None, data=data, only=stopped.SECTIONS), verb, **arguments)


def _hash_for(data: Path | None, file: Path | None) -> str:
    """Of a password: nobody is asked for one in vain where the journal in ``data`` is not to be written."""
    from ..auth.passwords import hash_password

    if data is not None:
        from ..process import stopped

        stopped.check(data)
    return hash_password(password(file))


# -- commands ------------------------------------------------------------------------------------------------------------


@app.command()
def add(
    name: Name,
    role: Annotated[
        list[str] | None, typer.Option("--role", help="What the user may do everywhere. The first is an administrator.")
    ] = None,
    password_file: PasswordFile = None,
    data: Data = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Make a user. Without a role the user may log in, and nothing else until something is granted."""
    hashed = _hash_for(data, password_file)
    grants = [{"rights": role}] if role else []
    _show(_ask(url, data, "add-user", name=name, hash=hashed, grants=grants), as_json, "is a user")


@app.command()
def token(
    name: Name,
    role: Annotated[list[str] | None, typer.Option("--role", help="What the program may do everywhere.")] = None,
    ends: Annotated[int, typer.Option("--ends", parser=duration, metavar="DURATION", help="How long it holds.", show_default="90d")] = (
        _TOKEN_MS
    ),
    data: Data = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Make a user for a program, whose password is made here and shown this once. At its end the program's connections end, too.

    Over HTTP the token has both, as [bold]Authorization: Bearer[/]. Without a role it may do nothing until something is granted.
    """
    from ..auth.passwords import hash_password

    secret = secrets.token_urlsafe(32)
    ends_ms = time.time_ns() // 1_000_000 + ends
    found = _ask(url, data, "add-user", name=name, hash=hash_password(secret), grants=[{"rights": role}] if role else [], ends_ms=ends_ms)
    bearer = base64.urlsafe_b64encode(f"{name}:{secret}".encode()).decode()
    if as_json:
        print_json({**found, "password": secret, "token": bearer})
        return
    _show(found, False, f"is a user until {clock(ends_ms, date=True)}")
    stdout.print(f"password  {secret}\ntoken     {bearer}", markup=False, soft_wrap=True)


@app.command()
def passwd(name: Name, password_file: PasswordFile = None, data: Data = None, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Give a user another password. The user's connections end."""
    hashed = _hash_for(data, password_file)
    _show(_ask(url, data, "change-password", name=name, hash=hashed), as_json, "has another password")


@app.command()
def delete(name: Name, yes: Yes = False, data: Data = None, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Delete a user, whose connections end."""
    if not yes and name not in {each["name"] for each in _all(url, data)}:
        raise CommandError(ExitCode.NOT_FOUND, f"there is no user {name}", "homing user list shows all", code="no-such-user")
    confirm(f"The user {name} goes, and the user's connections end", yes)
    _show(_ask(url, data, "delete-user", name=name), as_json, "is gone")


def _granting(verb: str, done: str, help_text: str) -> None:
    """The command of this name; ``done`` is what is then so, of rights and a pattern."""

    @app.command(verb, help=help_text)
    def command(
        name: Name,
        rights: Words,
        on: On = "#",
        vhost: VirtualHost = None,
        keys: Keys = None,
        data: Data = None,
        url: Url = DEFAULT_URL,
        as_json: Json = False,
    ) -> None:
        said = {"rights": rights, "pattern": on, "virtual_host": vhost, "keys": keys}
        _show(_ask(url, data, verb, name=name, **said), as_json, done.format(", ".join(rights), on))


_granting("grant", "may {} on {}", "Allow a user something, on everything unless --on, --vhost or --keys narrow it.")
_granting(
    "revoke",
    "may not {} on {} any more",
    "Take back what was granted, in the same words. Connections that have open what is not allowed any more end.",
)


_NO_GRANT: Final[list[Granted]] = [{"rights": ["–"]}]


def _all(url: str, data: Path | None) -> list[User]:
    from .client import listing

    found: list[User] = listing(url, "users") if data is None else _ask(url, data, "users")
    return found


@app.command("list")
def list_all(data: Data = None, wide: Wide = False, url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """All users with what they may do."""
    found = _all(url, data)
    if as_json:
        print_json(found)
        return
    ranks = {"user": 0, "rights": 0, "on": 0, "virtual host": 1, "keys": 2, "from": 3}
    if any("ends_ms" in each for each in found):
        ranks["until"] = 1
    rows = []
    for each in found:
        for number, said in enumerate(each["grants"] or _NO_GRANT):
            who, source, until = (each["name"], each["source"], clock(each.get("ends_ms"), date=True)) if not number else ("", "", "")
            row = [", ".join(said["rights"]), said.get("pattern", ""), said.get("virtual_host", ""), said.get("keys", "")]
            rows.append([escape(cell) for cell in (who, *row, source, until)][: len(ranks)])
    print_table(Listing([Column(heading, rank) for heading, rank in ranks.items()], rows), wide)


@app.command("hash")
def hash_one(
    source: Annotated[
        str | None, typer.Argument(metavar="-", help="-: read the password from standard input, up to its first line end.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The argon2 hash of a password, for users: in broker.yaml."""
    if source not in (None, "-"):
        raise typer.BadParameter("give -, which reads standard input, or nothing")
    hashed = _hash_for(None, Path("-") if source else None)
    if as_json:
        print_json({"hash": hashed})
    else:
        stdout.print(hashed, markup=False)


def _show(found: User, as_json: bool, what: str) -> None:
    if as_json:
        print_json(found)
    else:
        stdout.print(f"[bold]{escape(found['name'])}[/] {escape(what)}")
