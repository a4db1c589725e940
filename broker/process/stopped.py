"""Users of a stopped broker, in its journal and under its lock: so the first administrator is made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from homing.journal.declarations import DeclarationRecord, UserContent
from homing.journal.journal import Journal
from homing.journal.opening import check_may_change
from homing.journal.options import JournalOptions

from ..answers.parts import Named, Properties
from ..auth.access import BROKER
from ..auth.users import USER, Users, contents
from ..clock import BrokerClock
from ..config.config import Config
from ..core.rights import read_grant
from ..errors import Refused
from ..logs import audit, files
from .declarations import users

#: All that is read of broker.yaml.
SECTIONS: Final = frozenset({"audit", "journal", "log", "users"})


def _delete(users: Users, name: str) -> Named:
    users.delete(BROKER, name)
    return {"name": name}


_VERBS: Final[Mapping[str, Callable[..., Any]]] = {
    "users": lambda users: [user.describe() for user in users.all(BROKER)],
    "add-user": lambda users, name, grants, ends_ms=None, **said: users.add(
        BROKER, name, said["hash"], tuple(map(read_grant, grants)), ends_ms
    ).describe(),
    "change-password": lambda users, name, **said: users.change_password(BROKER, name, said["hash"]).describe(),
    "delete-user": _delete,
    "grant": lambda users, name, **said: users.grant(BROKER, name, read_grant(said)).describe(),
    "revoke": lambda users, name, **said: users.revoke(BROKER, name, read_grant(said)).describe(),
}


def check(directory: Path) -> None:
    """Before somebody is asked for what ``call`` is called with. Raises JournalError where the journal there is not to be written."""
    check_may_change(directory)


def call(config: Config, verb: str, **arguments: Any) -> Any:
    """As the running broker answers ``verb``, once what it changed is on disk; audited.

    Raises JournalError, also where the broker runs, Refused and GrantError.
    """
    with files.opened(config):
        return asyncio.run(_call(config, verb, arguments))


async def _call(config: Config, verb: str, arguments: Properties) -> Any:
    options = JournalOptions(**config.journal.model_dump(exclude={"replication"}))
    clock = BrokerClock()
    journal, recovered = await Journal.open(config.data_directory, options, clock.now_ms())
    try:
        found = Users(lambda name, content: _keep(journal, name, content), clock.now_ms)
        found.restore(contents(recovered.declarations))
        found.configure(users(config))
        result = "refused"
        try:
            answer = _VERBS[verb](found, **arguments)
            await journal.flush()
            result = "done"
        except Refused as refusal:
            result = refusal.code
            raise
        finally:
            if "name" in arguments and found.hashes:
                origin = f"offline, uid {os.getuid()}"
                audit.write({"action": verb, "user": None, "from": origin, "on": [arguments["name"]], "result": result})
        return answer
    finally:
        await journal.close(clean=recovered.clean_stop)


def _keep(journal: Journal, name: str, content: UserContent | None) -> None:
    if content is None:
        journal.batch.delete_declaration(USER, name)
    else:
        journal.batch.declare(DeclarationRecord(USER, name, content))
