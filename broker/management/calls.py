"""The table of verbs, and how one is run: most at once on the loop, reads of the journal in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol

from broker.broker import Broker
from broker.connection import Connection
from broker.errors import Refused
from broker.management import arguments as read
from broker.management import messages, queues, settings
from broker.steps import Steps

log = logging.getLogger("homing")

Answer = Callable[[Any], None]
_AT_ONCE: Final[dict[str, Callable[[Broker, dict[str, Any]], Any]]] = {
    "queues": queues.list_queues,
    "consumers": queues.consumers,
    "peek": messages.peek,
    "explain": settings.explain,
}
#: Answered once what they did, or speak of, is on disk.
_CHANGES: Final[dict[str, Callable[[Broker, dict[str, Any]], Any]]] = {
    "create-queue": queues.create,
    "delete-queue": queues.delete,
    "purge": queues.purge,
    "pause": queues.pause,
    "resume": queues.resume,
    "redrive": messages.redrive,
    # A commit that is known here may still be on its way to the disk.
    "transaction-outcome": messages.transaction_outcome,
}


class Host(Protocol):
    """What only the server can do: it knows the files."""

    def history(self, message_id: int) -> dict[str, Any] | None: ...

    def settings_in_force(self) -> dict[str, Any]: ...

    def statistics(self) -> dict[str, Any]: ...

    def reload(self) -> list[dict[str, Any]]: ...


class Calls:
    def __init__(self, broker: Broker, host: Host) -> None:
        self._broker = broker
        self._host = host
        self._running: set[asyncio.Task[None]] = set()

    def run(self, connection: Connection, verb: str, arguments: dict[str, Any], answer: Answer) -> None:
        """Runs a verb; ``answer`` gets its value or a Refused, now or later."""
        try:
            if verb in _AT_ONCE:
                self._finish(_AT_ONCE[verb](self._broker, arguments), answer)
            elif verb in _CHANGES:
                self._finish(_CHANGES[verb](self._broker, arguments), lambda value: self._broker.ledger.when_safe(lambda: answer(value)))
            elif verb == "history":
                read.only(arguments, "message_id")
                self._history(read.number(arguments, "message_id", 0, 1, (1 << 63) - 1), answer)
            elif verb == "settings":
                read.only(arguments)
                answer(self._host.settings_in_force())
            elif verb == "statistics":
                read.only(arguments)
                answer(self._host.statistics())
            elif verb == "reload":
                read.only(arguments)
                changed = {"changed": self._host.reload()}
                self._broker.ledger.when_safe(lambda: answer(changed))
            else:
                known = ", ".join(sorted([*_AT_ONCE, *_CHANGES, "history", "settings", "statistics", "reload"]))
                raise Refused("unknown-verb", f"there is no verb {verb[:64]!r}", f"verbs: {known}")
        except Refused as refusal:
            answer(refusal)

    def _finish(self, value: Any, answer: Answer) -> None:
        """Answers with the value; work that comes in steps does one now and each of the others in a turn of its own."""
        if not isinstance(value, Generator):
            answer(value)
            return
        try:
            next(value)
        except StopIteration as done:
            answer(done.value)
        else:
            asyncio.get_running_loop().call_soon(self._go_on, value, answer)

    def _go_on(self, work: Steps[Any], answer: Answer) -> None:
        try:
            self._finish(work, answer)
        except Refused as refusal:
            answer(refusal)
        except Exception:
            log.exception("a call broke in the middle of its work")
            answer(Refused("internal-error", "the broker failed on this call", "report it with the broker's log"))

    def _history(self, message_id: int, answer: Answer) -> None:
        """What the journal knows, once it knows everything up to now."""

        def start() -> None:
            task = asyncio.get_running_loop().create_task(self._read_history(message_id, answer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        self._broker.ledger.when_safe(start)

    async def _read_history(self, message_id: int, answer: Answer) -> None:
        try:
            found = await asyncio.to_thread(self._host.history, message_id)
        except Exception as error:  # a damaged row, a closed file: the caller is told, the broker goes on
            log.exception("history of message %d could not be read", message_id)
            answer(Refused("history-unreadable", f"the history could not be read: {error}", "run homing journal check"))
            return
        if found is None:
            answer(
                Refused(
                    "no-such-message",
                    f"nothing is known of message {message_id}",
                    "messages that succeed at the first attempt leave no history unless history: full is set",
                )
            )
            return
        answer(found)
