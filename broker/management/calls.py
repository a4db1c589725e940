"""The table of verbs, and how one is run: most at once on the loop, reads of the journal in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, Final, Protocol

from ..broker import Broker
from ..config.config import Change
from ..connection import Connection
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from . import connections, messages, one_message, policies, queues, settings, virtual_hosts
from .statistics import Meter

log = logging.getLogger("homing")

Answer = Callable[[Any], None]
#: Reads of the journal under way at a time, for all clients together.
_MAX_READS: Final = 256
#: After so long, work that waits for a page from disk is looked at again.
_LOOK_AGAIN_S: Final = 0.001
_BROKEN: Final = Refused("internal-error", "the broker failed on this call", "report it with the broker's log")
_AT_ONCE: Final[dict[str, Callable[[Broker, dict[str, Any]], Any]]] = {
    "consumers": queues.consumers,
    "peek": messages.peek,
    "explain": settings.explain,
    "policies": policies.list_all,
    "list-settings": settings.list_all,
    "vhosts": virtual_hosts.list_all,
}
#: Answered once what they did is on disk.
_CHANGES: Final[dict[str, Callable[[Broker, dict[str, Any]], Any]]] = {
    "create-queue": queues.create,
    "delete-queue": queues.delete,
    "purge": queues.purge,
    "pause": queues.pause,
    "resume": queues.resume,
    "redrive": messages.redrive,
    "set-policy": policies.set_one,
    "clear-policy": policies.clear,
    "add-vhost": virtual_hosts.add,
    "delete-vhost": virtual_hosts.delete,
    "close-connection": connections.close,
}
#: The same of address settings, which exports tell of.
_SETTINGS: Final[dict[str, Callable[[Broker, dict[str, Any]], dict[str, Any]]]] = {
    "set-settings": settings.set_some,
    "unset-settings": settings.unset,
}
#: Of one message: found by the journal and then in memory.
_OF_ONE: Final[dict[str, Callable[[Broker, int, one_message.History, dict[str, Any]], Steps[Any]]]] = {
    "why": one_message.why,
    "delete-message": one_message.delete,
    "move-message": one_message.move,
}
_OTHERS: Final = ("backup", "history", "last-attempts", "reload", "transaction-outcome")


class Host(Protocol):
    """What only the server can do: it knows the files."""

    def history(self, message_id: int) -> dict[str, Any] | None: ...

    def last_attempts(self, stays: list[tuple[int, int]]) -> list[dict[str, Any] | None]: ...

    def committed(self, transaction_id: str) -> bool: ...

    def settings_in_force(self) -> dict[str, Any]: ...

    def record_settings(self) -> None: ...

    def statistics(self) -> dict[str, Any]: ...

    def sockets(self) -> Mapping[Any, connections.Socket]: ...

    async def reload(self) -> list[Change]: ...

    async def backup(self, name: str) -> dict[str, Any]: ...


class Calls:
    def __init__(self, broker: Broker, host: Host) -> None:
        self._broker = broker
        self._host = host
        self._running: set[asyncio.Task[None]] = set()
        self.meter = Meter(broker)
        self._at_once: dict[str, Callable[[dict[str, Any]], Any]] = {
            **{verb: partial(answer, broker) for verb, answer in _AT_ONCE.items()},
            "queue": partial(queues.one, broker, self.meter),
            "queues": partial(queues.list_queues, broker, self.meter),
            "connections": partial(connections.list_all, broker, host.sockets),
            "settings": self._settings,
            "statistics": self._statistics,
        }

    def run(self, connection: Connection, verb: str, arguments: dict[str, Any], answer: Answer) -> None:
        """Runs a verb; ``answer`` gets its value or a Refused, now or later."""
        try:
            if verb in self._at_once:
                self._finish(self._at_once[verb](arguments), answer)
            elif verb in _CHANGES:
                self._finish(_CHANGES[verb](self._broker, arguments), partial(self._when_safe, answer))
            elif verb in _SETTINGS:
                changed = _SETTINGS[verb](self._broker, arguments)
                if not changed["dry_run"]:
                    self._host.record_settings()
                self._when_safe(answer, changed)
            elif verb in _OF_ONE:
                message_id = read.number(arguments, "message_id", 0, 1, read.MOST)
                self._check_room()
                self._when_safe(lambda: self.start(self._of_one(verb, message_id, arguments), partial(self._when_safe, answer)))
            elif verb == "history":
                read.only(arguments, "message_id")
                message_id = read.number(arguments, "message_id", 0, 1, read.MOST)
                self._read(lambda: self._history(message_id), answer)
            elif verb == "last-attempts":
                read.only(arguments, "stays")
                stays = read.stays(arguments)
                self._read(lambda: self._last_attempts(stays), answer)
            elif verb == "transaction-outcome":
                read.only(arguments, "transaction_id")
                transaction_id = read.text(arguments, "transaction_id")
                self._read(lambda: {"outcome": "committed" if self._host.committed(transaction_id) else "unknown"}, answer)
            elif verb == "backup":
                read.only(arguments, "name")
                self.start(self._host.backup(read.text(arguments, "name")), answer)
            elif verb == "reload":
                read.only(arguments)
                self._check_room()
                self.start(self._reload(), partial(self._when_safe, answer))
            else:
                known = ", ".join(sorted([*self._at_once, *_CHANGES, *_SETTINGS, *_OF_ONE, *_OTHERS]))
                raise Refused("unknown-verb", f"there is no verb {verb[:64]!r}", f"verbs: {known}")
        except Exception as error:
            answer(_refusal(error))

    def _settings(self, arguments: dict[str, Any]) -> dict[str, Any]:
        read.only(arguments)
        return self._host.settings_in_force()

    def _statistics(self, arguments: dict[str, Any]) -> dict[str, Any]:
        read.only(arguments)
        return {"messages": self.meter.messages(), **self.meter.open(), **self._host.statistics()}

    def _finish(self, value: Any, answer: Answer) -> None:
        """Answers with the value; work that comes in steps does one now and each of the others in a turn of its own."""
        if not isinstance(value, Generator):
            answer(value)
            return
        try:
            waits = next(value)
        except StopIteration as done:
            answer(done.value)
        else:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S if waits else 0, self._go_on, value, answer)

    def _go_on(self, work: Steps[Any], answer: Answer) -> None:
        try:
            self._finish(work, answer)
        except Exception as error:
            answer(_refusal(error))

    def start(self, work: Coroutine[Any, Any, Any], answer: Answer) -> None:
        """Runs it in a task of its own; ``answer`` gets what it returns, or a Refused."""
        task = asyncio.get_running_loop().create_task(_answered(work, answer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _check_room(self) -> None:
        if len(self._running) >= _MAX_READS:
            raise Refused("too-many-reads", f"{_MAX_READS} reads of the journal or the configuration are under way", "ask again later")

    def _when_safe(self, callback: Callable[..., None], *values: Any) -> None:
        self._broker.when_safe(partial(callback, *values))

    async def _of_one(self, verb: str, message_id: int, arguments: dict[str, Any]) -> Any:
        history = await _read_journal(lambda: self._host.history(message_id))
        steps = _OF_ONE[verb](self._broker, message_id, history, arguments)
        while True:
            try:
                waits = next(steps)
            except StopIteration as done:
                return done.value
            await asyncio.sleep(_LOOK_AGAIN_S if waits else 0)

    async def _reload(self) -> dict[str, Any]:
        return {"changed": [change._asdict() for change in await self._host.reload()]}

    def _read(self, job: Callable[[], Any], answer: Answer) -> None:
        """Asks the journal in a thread, once it knows everything up to now."""
        self._check_room()
        self._broker.when_safe(lambda: self.start(_read_journal(job), answer))

    def _last_attempts(self, stays: list[tuple[int, int]]) -> list[dict[str, Any] | None]:
        """Without tracebacks: ``history`` has them."""
        found = self._host.last_attempts(stays)
        for fault in [each["fault"] for each in found if each is not None and each["fault"]]:
            fault.pop("traceback", None)
        return found

    def _history(self, message_id: int) -> dict[str, Any]:
        found = self._host.history(message_id)
        if found is None:
            raise Refused(
                "no-such-message",
                f"nothing is known of message {message_id}",
                "messages that succeed at the first attempt leave no history unless history: full is set",
            )
        return found


def _refusal(error: Exception) -> Refused:
    """What the caller is told; a fault of ours ends its call and nothing else."""
    if isinstance(error, Refused):
        return error
    log.error("call-failed: a call broke in the middle of its work", exc_info=error)
    return _BROKEN


async def _answered(work: Coroutine[Any, Any, Any], answer: Answer) -> None:
    try:
        answer(await work)
    except Exception as error:
        answer(_refusal(error))


async def _read_journal(job: Callable[[], Any]) -> Any:
    try:
        return await asyncio.to_thread(job)
    except Refused:
        raise
    except Exception as error:  # a damaged row, a closed file: the caller is told, the broker goes on
        log.exception("journal-unreadable: the journal could not be read")
        raise Refused("history-unreadable", f"the journal could not be read: {error}", "run homing journal check") from None
