"""Heartbeats that are asked for often are sent often: an idle connection stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import homing
from tests.pauses import tried_again
from tests.process import Server

StartServer = Callable[..., Server]


@pytest.mark.parametrize("limits", [{}, {"heartbeat": "300ms"}], ids=["the client wants it", "the broker wants it"])
async def test_an_idle_connection_with_short_heartbeats_stays(start_server: StartServer, limits: dict[str, Any]) -> None:
    server = start_server({"limits": limits})

    @tried_again
    async def idle() -> None:
        states: list[homing.ConnectionState] = []
        async with homing.connect(server.url, heartbeat_ms=300) as connection:
            connection.on_state.append(states.append)
            await asyncio.sleep(2.5)  # eight heartbeats
            assert not states

    await idle()
