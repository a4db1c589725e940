"""What every part of the semantics begins with: a broker for each module, and a connection for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

import homing
from homing.client import Connection
from tests.acceptance.semantics_support import running
from tests.process import Server


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the module's SETTINGS, and its OPTIONS (of ``running``)."""
    settings, options = (getattr(request.module, name, None) for name in ("SETTINGS", "OPTIONS"))
    with running(tmp_path_factory.mktemp(request.module.__name__.rpartition("_")[2]), settings, **(options or {})) as started:
        yield started


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    async with homing.connect(server.url) as opened:
        yield opened
