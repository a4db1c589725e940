"""Users of a stopped broker, in its journal and under its lock: so the first administrator is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from homing.journal.contract import DeclarationRecord
from homing.journal.journal import Journal
from homing.journal.options import JournalOptions

from .auth.users import USER, Users, contents
from .clock import BrokerClock
from .config.config import Config
from .declarations import users

T = TypeVar("T")


def with_users(config: Config, act: Callable[[Users], T]) -> T:
    """What ``act`` returns, once what it changed is on disk. Raises JournalError, also where the broker runs, and whatever ``act`` does."""
    return asyncio.run(_with_users(config, act))


async def _with_users(config: Config, act: Callable[[Users], T]) -> T:
    options = JournalOptions(**config.journal.model_dump())
    journal, recovered = await Journal.open(config.data_directory, options, BrokerClock().now_ms())
    try:
        found = Users(lambda name, content: _keep(journal, name, content))
        found.restore(contents(recovered.declarations))
        found.configure(users(config))
        done = act(found)
        await journal.flush()
        return done
    finally:
        await journal.close(clean=recovered.clean_stop)


def _keep(journal: Journal, name: str, content: dict[str, Any] | None) -> None:
    if content is None:
        journal.batch.delete_declaration(USER, name)
    else:
        journal.batch.declare(DeclarationRecord(USER, name, content))
