"""The table of verbs, and how one is run: most at once on the loop, reads of the journal in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar

from ..answers.administration import ChangedSettings
from ..answers.lives import History
from ..answers.parts import Properties
from ..broker import Broker
from ..connection import Connection
from ..errors import Refused
from ..steps import Steps
from . import arguments as read
from . import (
    connections,
    dead_letters,
    edits,
    events,
    exchanges,
    faults,
    files,
    histories,
    messages,
    one_message,
    policies,
    preview,
    process,
    queues,
    redrives,
    retries,
    settings,
    users,
    virtual_hosts,
)
from .process import Process, in_steps, in_thread
from .statistics import Meter

log = logging.getLogger("homing")

T = TypeVar("T")

Answer = Callable[[object], None]
#: Called with the broker, whoever asks, and its arguments by name.
Handler = Callable[..., Any]
#: Reads of the journal under way at a time, for all clients together.
_MAX_READS: Final = 256
#: Lists are worked on for so long in a turn of the loop, one after the other.
_LISTS_S: Final = 0.002
_BROKEN: Final = Refused("internal-error", "the broker failed on this call", "report it with the broker's log")
#: Made an entry at a time.
LISTS: Final[dict[str, Handler]] = {
    "queues": queues.list_queues,
    "consumers": queues.consumers,
    "connections": connections.list_all,
    "exchanges": exchanges.list_all,
    "bindings": exchanges.bindings,
    "policies": policies.list_all,
    "list-settings": settings.list_all,
    "vhosts": virtual_hosts.list_all,
    "users": users.list_all,
}
AT_ONCE: Final[dict[str, Handler]] = {
    "queue": queues.one,
    "peek": messages.peek,
    "peek-dead-letters": dead_letters.peek,
    "peek-retrying": retries.peek,
    "repeated": retries.repeated,
    "explain": settings.explain,
    "redrives": redrives.list_all,
    "redrive-status": redrives.one,
    "settings": process.settings,
    "statistics": process.statistics,
    "start-export": files.start_export,
    "export": files.export,
}
#: Answered once what they did is on disk.
CHANGES: Final[dict[str, Handler]] = {
    "create-queue": queues.create,
    "delete-queue": queues.delete,
    "purge": queues.purge,
    "pause": queues.pause,
    "resume": queues.resume,
    "redrive": messages.redrive,
    "start-redrive": redrives.start,
    "pause-redrive": redrives.pause,
    "resume-redrive": redrives.resume,
    "cancel-redrive": redrives.cancel,
    "delete-dead-letters": dead_letters.delete,
    "move-dead-letters": dead_letters.move,
    "retry": retries.retry,
    "edit": edits.edit,
    "mute-fault": faults.mute,
    "fault-fixed": faults.fixed,
    "set-policy": policies.set_one,
    "clear-policy": policies.clear,
    "add-vhost": virtual_hosts.add,
    "delete-vhost": virtual_hosts.delete,
    "close-connection": connections.close,
    "add-user": users.add,
    "change-password": users.change_password,
    "delete-user": users.delete,
    "grant": users.grant,
    "revoke": users.revoke,
}
#: Calls that change address settings, which exports record.
SETTINGS: Final[dict[str, Handler]] = {
    "set-settings": settings.set_some,
    "unset-settings": settings.unset,
}
#: Of one message: found by the journal and then in memory.
OF_ONE: Final[dict[str, Handler]] = {
    "why": one_message.why,
    "delete-message": one_message.delete,
    "move-message": one_message.move,
}
#: Read from the journal, in a thread, once it knows everything up to now.
READS: Final[dict[str, Handler]] = {
    "history": histories.one,
    "histories": histories.of_queue,
    "last-attempts": process.last_attempts,
    "transaction-outcome": process.transaction_outcome,
    "dead-letters": dead_letters.list_all,
    "reckon-redrive": redrives.reckon,
    "retrying": retries.list_all,
    "due": retries.due,
    "counts": queues.counts,
    "preview-settings": preview.preview,
    "faults": faults.list_all,
    "fault": faults.one,
    "events": events.list_all,
}
#: Of the process: answered when they have come to an end, and what they changed is on disk.
PROCESS: Final[dict[str, Handler]] = {
    "backup": process.backup,
    "reload": process.reload,
}
#: Files, a part at a time.
FILES: Final[dict[str, Handler]] = {
    "discard-export": files.discard_export,
    "export-part": files.export_part,
    "reports": files.reports,
    "report-part": files.report_part,
}
VERBS: Final[dict[str, Handler]] = {**LISTS, **AT_ONCE, **CHANGES, **SETTINGS, **OF_ONE, **READS, **FILES, **PROCESS}


class Calls:
    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._running: set[asyncio.Task[None]] = set()
        #: Lists that are asked for; the first is worked on.
        self._lists: deque[tuple[Steps[object], Answer]] = deque()
        self._listing = False
        self.meter = Meter(broker)
        #: What some handlers are given besides.
        self._given: dict[Handler, Properties] = {
            queues.one: {"meter": self.meter},
            queues.list_queues: {"meter": self.meter},
            connections.list_all: {"sockets": process.sockets},
            queues.consumers: {"sockets": process.sockets},
            **{VERBS[verb]: {"process": process} for verb in ("settings", "start-export", "export")},
            VERBS["statistics"]: {"process": process, "meter": self.meter},
            **{handler: {"process": process} for handler in (*READS.values(), *FILES.values(), *PROCESS.values())},
        }

    def run(self, connection: Connection, verb: str, arguments: Properties, answer: Answer) -> bool:
        """Runs a verb; ``answer`` gets its value or a Refused, now or later. Returns whether that may be much: then nothing more is to be
        asked on this connection before."""
        try:
            handler = VERBS.get(verb)
            if handler is None:
                raise Refused("unknown-verb", f"there is no verb {verb[:64]!r}", f"verbs: {', '.join(sorted(VERBS))}")
            asked = partial(self._ask, verb, connection, arguments)
            if verb in LISTS:
                self._lists.append((asked(), answer))
                if not self._listing:
                    self._list()
            elif verb in AT_ONCE:
                self._finish(asked(), answer)
            elif verb in CHANGES:
                self._finish(asked(), partial(self._when_safe, answer))
            elif verb in SETTINGS:
                self._finish(asked(), partial(self._settings_set, answer))
            elif verb in OF_ONE:
                message_id: int = read.number(0, read.MOST)(self._broker, "message_id", arguments.get("message_id") or 0)
                self._check_room()
                self._broker.journal.when_readable(lambda: self.start(self._of_one(asked, message_id), partial(self._when_safe, answer)))
            elif verb in READS:
                self._check_room()
                self._broker.fault_groups.put_on_record()
                self._broker.journal.when_readable(lambda: self.start(_later(asked), partial(self._when_safe, answer)))
            elif verb in FILES:
                self._check_room()
                self._broker.journal.when_readable(lambda: self.start(_later(asked), answer))
            else:
                self._check_room()
                self.start(asked(), partial(self._when_safe, answer))
        except Exception as error:
            answer(_refusal(error))
        return verb in LISTS or verb in AT_ONCE or verb in READS or verb in FILES

    def _ask(self, verb: str, connection: Connection, arguments: Properties, *more: History | None) -> Any:
        handler, times = VERBS[verb], self._broker.step_times
        named = {**self._given.get(handler, {}), **read.taken(self._broker, handler, arguments)}
        value = times.call(verb, partial(handler, self._broker, connection, *more, **named))
        return times.of(verb, value) if isinstance(value, Generator) and verb not in LISTS else value

    def _list(self) -> None:
        self._broker.step_times.call("lists", self._list_for_a_turn)

    def _list_for_a_turn(self) -> None:
        """Another turn's worth of the lists that are asked for."""
        until_s = time.monotonic() + _LISTS_S
        self._listing = True
        while self._lists and time.monotonic() < until_s:
            self._go_on_with_list(until_s)
        self._listing = bool(self._lists)
        if self._lists:
            asyncio.get_running_loop().call_soon(self._list)

    def _go_on_with_list(self, until_s: float) -> None:
        steps, answer = self._lists[0]
        try:
            while time.monotonic() < until_s:
                next(steps)
        except StopIteration as done:
            self._lists.popleft()
            answer(done.value)
        except Exception as error:
            self._lists.popleft()
            answer(_refusal(error))

    def _finish(self, value: object, answer: Answer) -> None:
        """Answers with the value; work that comes in steps does one now and each of the others when it is its turn."""
        if isinstance(value, Generator):
            self._broker.work.begin(value, answer, lambda error: answer(_refusal(error)))
        else:
            answer(value)

    def start(self, work: Coroutine[object, object, object], answer: Answer) -> None:
        """Runs it in a task of its own; ``answer`` gets what it returns, or a Refused."""
        task = asyncio.get_running_loop().create_task(_answered(work, answer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _settings_set(self, answer: Answer, changed: ChangedSettings | Refused) -> None:
        if not isinstance(changed, Refused) and not changed["dry_run"]:
            self._process.record_settings()
        self._when_safe(answer, changed)

    def _check_room(self) -> None:
        if len(self._running) >= _MAX_READS:
            raise Refused("too-many-reads", f"{_MAX_READS} reads of the journal or the configuration are under way", "ask again later")

    def _when_safe(self, callback: Callable[..., None], *values: object) -> None:
        self._broker.journal.when_safe(partial(callback, *values))

    async def _of_one(self, asked: Callable[..., Steps[T]], message_id: int) -> T:
        history = await in_thread(lambda: self._process.past().history(message_id))
        return await in_steps(self._broker, asked(history))


async def _later(asked: Callable[[], Awaitable[T]]) -> T:
    return await asked()


def _refusal(error: Exception) -> Refused:
    """What the caller is answered; a fault of ours ends its call and nothing else."""
    if isinstance(error, Refused):
        return error
    log.error("call-failed: a call broke in the middle of its work", exc_info=error)
    return _BROKEN


async def _answered(work: Coroutine[object, object, object], answer: Answer) -> None:
    try:
        answer(await work)
    except Exception as error:
        answer(_refusal(error))
