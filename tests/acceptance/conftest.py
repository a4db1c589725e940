"""What every part of the semantics begins with; each module has a ``server`` of its own settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import client
from client import Connection
from tests.process import Server


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    async with client.connect(server.url) as opened:
        yield opened
