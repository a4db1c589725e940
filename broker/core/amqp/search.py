"""Where a message goes, through exchanges that lead to others: each is visited once, for all keys; its alternate where it found nothing.

Most searches are over at once. A long one goes in steps, so that nobody waits for it; what is bound meanwhile may be found, or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..routing import Route
from ..standing import Standing
from .exchange import HEADERS, Compared, Destination, Exchange


class Search:
    """``keys``: the routing key, then CC and BCC. ``described``: makes the route of a search that is over."""

    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        first: Exchange,
        keys: Sequence[str],
        headers: Compared,
        described: Callable[[Search], Route],
    ) -> None:
        #: By name, each once, in the order they were found.
        self.queues: dict[str, None] = {}
        #: Other headers may go elsewhere.
        self.by_headers = False
        #: An exchange was meant that is not there.
        self.misses = False
        #: Of the exchanges on the way.
        self.standings: list[Standing] = []
        #: Once it is over.
        self.route: Route | None = None
        self._described = described
        self._steps = self._follow(exchanges, first, keys, headers)

    def go_on(self, most: int) -> int:
        """Until it has cost so much, or is over: ``route`` is there. Returns what it cost (Exchange.matches)."""
        cost = 0
        for step in self._steps:
            cost += step
            if cost >= most:
                return cost
        self.route = self._described(self)
        return cost

    def _follow(self, exchanges: Mapping[str, Exchange], first: Exchange, keys: Sequence[str], headers: Compared) -> Iterator[int]:
        waiting, seen = deque([first]), {first.name}
        while waiting:
            exchange = waiting.popleft()
            self.by_headers = self.by_headers or exchange.kind == HEADERS
            self.standings.append(exchange.standing)
            found: dict[Destination, None] = {}
            yield from exchange.matches(keys, headers, found)
            following = [each.name for each in found if not each.is_queue]
            self.queues.update((each.name, None) for each in found if each.is_queue)
            if not found and exchange.alternate is not None:
                following.append(exchange.alternate)
            for name in following:
                target = exchanges.get(name)
                if target is None:
                    self.misses = True
                elif name not in seen:
                    seen.add(name)
                    waiting.append(target)
