"""Tests of programs that use Homing: a broker in the test's own process, whose time can be advanced.

With pytest and pytest-asyncio the fixture ``homing_broker`` is there wherever Homing is installed::

    @pytest.mark.asyncio
    async def test_a_poison_order_dies(homing_broker):
        async with homing_broker.connect() as connection:
            ...
            await homing_broker.advance("4h")
        await homing_broker.assert_dead_lettered("orders", reason="delivery_limit")

Elsewhere ``async with homing.testing.Broker("broker.yaml") as broker:`` is the same. docs/testing.md is the guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import Broker, Given

    __all__ = ["Broker", "Given"]
else:

    def __getattr__(name: str) -> Any:
        """A broker is imported when one is asked for: pytest loads this package at each of its starts."""
        if name in ("Broker", "Given"):
            from . import broker

            return getattr(broker, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
