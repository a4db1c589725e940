"""Homing: a message broker whose messages always find their way home, and its client.

What a program needs is here; what each name does is described in ``homing.client`` and in docs/client.md::

    import homing

    async with homing.connect("homing://127.0.0.1:7171") as connection:
        async with connection.session(homing.AckMode.INDIVIDUAL) as session:
            await session.producer("orders").send(b"hello")

The folders beside this one (broker, client, journal, analytics) are linked here, so that nothing of ours is imported under a name
that a user's own file may have.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """The client's names, when first asked for: a broker, or Spark, imports packages from here without loading the client."""
        client = import_module(".client", __name__)
        if name in client.__all__:
            return getattr(client, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *import_module(".client", __name__).__all__]
