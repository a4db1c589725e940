"""The pytest plugin. It imports nothing of ours until a fixture is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .broker import Broker, Given

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    # Whatever runs the async tests, such as anyio's plugin, knows what to do with plain ones.
    async_fixture = pytest.fixture  # type: ignore[assignment]


@pytest.fixture
def homing_config() -> Given:
    """What ``homing_broker`` is configured by: override it to return the path of your broker.yaml, or its sections as a dict."""
    return None


@async_fixture
async def homing_broker(homing_config: Given) -> AsyncIterator[Broker]:
    """A broker in this process, fresh for each test, whose time can be advanced (homing.testing.Broker)."""
    from .broker import Broker

    async with Broker(homing_config) as broker:
        yield broker
