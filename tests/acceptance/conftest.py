"""What every part of the semantics begins with; each module has a ``server`` of its own settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import homing
from homing.client import Connection
from tests.process import Server


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    async with homing.connect(server.url) as opened:
        yield opened
