"""Broker: its services, each by its name. docs/architecture.md has on one page what a front end may call of them.

Nothing here waits: what must be on disk first is answered through ``when_safe`` callbacks.
"""

from __future__ import annotations

from .engine import Engine


class Broker(Engine):
    """Whole in ``process/`` alone; a front end takes from it the services that it uses."""
