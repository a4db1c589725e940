"""Browser: a look at a queue that takes nothing."""

from __future__ import annotations

from collections import deque
from typing import Any

from .link import Link
from .validation import check_text, check_whole


class Browser:
    """Pages through a queue with the call ``peek``; every entry is the broker's map of one message (message_id, state, counts, …).

    Not a snapshot: what comes or goes meanwhile may or may not be seen.
    """

    def __init__(self, link: Link, queue: str, page: int) -> None:
        self._link = link
        self._queue = check_text("a queue", queue)
        self._page = check_whole("page", page, 1, 1000)
        self._entries: deque[dict[str, Any]] = deque()
        self._after: Any = None
        self._finished = False

    def __aiter__(self) -> Browser:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._entries:
            if self._finished:
                raise StopAsyncIteration
            answer = await self._link.call("peek", queue=self._queue, limit=self._page, after=self._after)
            self._entries.extend(answer["messages"])
            self._after = answer.get("next")
            self._finished = self._after is None
        return self._entries.popleft()
