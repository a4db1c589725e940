"""Every operation of the API, in one table: routes and document are made of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeVar

import homing
from homing.client.patch import Patch

from ...answers.administration import (
    Backup,
    BrokerEvent,
    ChangedSettings,
    Explained,
    Export,
    Policy,
    PreviewedSettings,
    Reports,
    SetOfPattern,
    User,
)
from ...answers.failures import DeadQueue, Done, Due, Fault, FaultOfList, Muted, Redrive, RepeatedSends, RetryingQueue, SaidFixed
from ...answers.inventory import (
    Binding,
    BriefQueue,
    ClosedConnection,
    Connection,
    Consumer,
    Counts,
    Exchange,
    Queue,
    RemovedVirtualHost,
    Statistics,
    VirtualHost,
)
from ...answers.lives import DeletedMessage, MovedMessage, Why
from ...answers.parts import Named, NumberedPage, Page, Removed
from ...words.edits import Change
from ...words.redrives import against
from .. import edits, reads
from ..actions import retry_fault
from ..commands import Commands
from ..files import HTML, TAR, export_file, report_file
from . import answers, asked

A = TypeVar("A", bound=asked.Asked)
Method = Literal["GET", "POST"]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


class Asker:
    """Who asks: a connection with his rights; and how commands find the broker."""

    def __init__(self, connection: homing.Connection, commands: Commands) -> None:
        self.connection = connection
        self.commands = commands


@dataclass(frozen=True)
class Operation:
    """``path`` is behind ``/api/v1``; ``asks`` and ``answers``: shapes of what comes and goes. ``media``: of what is answered, JSON or, of
    what goes on, server-sent events, each of which is of that shape, and ``run`` has a page of them; else ``run`` answers with a file."""

    name: str
    method: Method
    path: str
    summary: str
    asks: type[asked.Asked]
    answers: Any
    run: Callable[[Asker, Any], Awaitable[Any]]
    media: str = JSON

    @property
    def streams(self) -> bool:
        return self.media == EVENTS

    @property
    def reads(self) -> bool:
        """Whether it changes nothing: what is asked for may be more than an address holds."""
        return self.method == "GET" or self.path.endswith(("/plan", "/preview"))


OPERATIONS: Final[list[Operation]] = []


def _operation(
    method: Method, path: str, summary: str, answer: Any, media: str = JSON
) -> Callable[[Callable[[Asker, A], Awaitable[Any]]], Callable[[Asker, A], Awaitable[Any]]]:
    """``summary``: what it shows or does. What it asks for is the type of the function's second argument, which its name is of, too."""

    def put(run: Callable[[Asker, A], Awaitable[Any]]) -> Callable[[Asker, A], Awaitable[Any]]:
        asks = getattr(asked, run.__annotations__["said"].removeprefix("asked."))
        OPERATIONS.append(Operation(run.__name__, method, path, summary, asks, answer, run, media))
        return run

    return put


def _call(
    method: Method, name: str, path: str, summary: str, asks: type[asked.Asked], answer: Any, call: str = "", media: str = JSON
) -> None:
    """What one ``call`` of the broker answers, that of the operation's name where there is none."""
    verb = call or name.replace("_", "-")

    async def run(asker: Asker, said: asked.Asked) -> Any:
        return await asker.connection.call(verb, **said.model_dump())

    OPERATIONS.append(Operation(name, method, path, summary, asks, answer, run, media))


_get, _post = partial(_call, "GET"), partial(_call, "POST")


def _text(body: bytes) -> str | bytes:
    """A body as text; what is none goes as base64."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


@_operation("GET", "/overview", "What is wrong now, worst first, each with its next step", answers.Overview)
async def overview(asker: Asker, said: asked.Nothing) -> object:
    seen = await reads.overview(asker.connection, time.time_ns() // 1_000_000)
    found = [
        {
            "level": each.level.name.lower(),
            "sentence": each.sentence,
            "since_ms": each.since_ms,
            "page": each.where or None,
            "command": asker.commands.say(*each.command),
        }
        for each in seen.findings
    ]
    return {"findings": found, "untold": seen.untold, "looked_at_queues": seen.looked_at_queues}


_get("statistics", "/statistics", "How much there is of all, and the rates of the whole broker", asked.Nothing, Statistics)
_get("queues", "/queues", "Queues, in the order of their names", asked.Page, Page[Queue])
_get("queue", "/queue", "One queue", asked.OfQueue, Queue)
_get(
    "queue_counts",
    "/queue/counts",
    "What became of the messages of a durable queue, by the minute or longer",
    asked.CountsOfQueue,
    Counts,
    call="counts",
)
_post("pause_queue", "/queue/pause", "Hand nothing more of a queue out, until it is resumed", asked.OfQueue, BriefQueue, call="pause")
_post("resume_queue", "/queue/resume", "Hand out again what is in a queue", asked.OfQueue, BriefQueue, call="resume")
_post("purge_queue", "/queue/purge", "Remove all messages of a queue but those that consumers hold", asked.OfQueue, Removed, call="purge")
_get("consumers", "/consumers", "Consumers, of a queue or of all", asked.ConsumersPage, Page[Consumer])
_get("connections", "/connections", "Connections, with what each costs in memory", asked.Page, Page[Connection])
_post(
    "close_connection",
    "/connections/{connection}/close",
    "Close a connection; what it holds goes back to its queues",
    asked.OfConnection,
    ClosedConnection,
)
_get("explain", "/explain", "Each setting of an address, and where it comes from", asked.OfAddress, Explained)
_get("dead_letters", "/dead-letters", "Queues that have dead letters", asked.NumberedPage, NumberedPage[DeadQueue])


@_operation("GET", "/messages", "Messages of a queue that a filter takes, each with why it is a dead letter", answers.MessagePage)
async def messages(asker: Asker, said: asked.Messages) -> object:
    page = {"limit": said.limit, "after": said.after, "newest_first": said.newest_first}
    found = await reads.letters(asker.connection, said.queue, said.chosen, **page)
    rows = [{**each, "body": _text(each["body"]), "dead_letter": death and death.shown()} for each, death in found.rows]
    return {"messages": rows, "looked_at": found.looked_at, "next": found.next}


_post(
    "delete_messages",
    "/messages/delete",
    "Delete the dead letters of a queue that a filter takes, a step of them; `next` goes on",
    asked.DeleteMessages,
    Done,
    call="delete-dead-letters",
)
_post(
    "move_messages",
    "/messages/move",
    "Move them to another queue, a step of them; `next` goes on",
    asked.MoveMessages,
    Done,
    call="move-dead-letters",
)


@_operation("GET", "/messages/{message_id}", "The life of a message", answers.Life)
async def message(asker: Asker, said: asked.OfMessage) -> object:
    seen = await reads.life_of(asker.connection, said.message_id, time.time_ns() // 1_000_000)
    kept = seen.found["message"]
    events = [{"at_ms": each.at_ms, "title": each.title, "details": each.details} for each in seen.events]
    shown = kept and {**kept, "body": _text(kept["body"])}
    return {**seen.found, "message": shown, "life": events, "if_sent_back": seen.sources, "verdict": seen.verdict}


_get("why", "/messages/{message_id}/why", "Why it is not delivered now", asked.OfMessage, Why)
_post("delete_message", "/messages/{message_id}/delete", "Delete one message", asked.DeleteMessage, DeletedMessage)


@_operation("POST", "/messages/{message_id}/move", "Move one message to another queue", MovedMessage)
async def move_message(asker: Asker, said: asked.MoveMessage) -> object:
    return await asker.connection.call("move-message", message_id=said.message_id, queue=said.to, source=said.source)


@_operation("POST", "/messages/{message_id}/edit", "Send a message again with another body or other properties", answers.EditedMessage)
async def edit_message(asker: Asker, said: asked.EditMessage) -> object:
    found = await edits.find(asker.connection, said.message_id, said.queue)
    patch = None if said.patch is None else Patch(said.patch)
    change = Change(dict(said.set), said.unset, patch, None if said.body is None else said.body.encode())
    how = {"to": said.to, "keep_original": said.keep_original, "signed": said.signed}
    made = None if said.dry_run else await edits.send(asker.connection, found, change, **how)
    return {"message_id": said.message_id, "edited": made, "difference": change.difference(found.message)}


_get("faults", "/faults", "Faults, those first that most messages are dead of or wait for", asked.FaultsPage, NumberedPage[FaultOfList])
_get("fault", "/faults/{fault}", "One fault: its traceback, its last 24 hours, and its group in each queue", asked.OfFault, Fault)
_post("mute_fault", "/faults/{fault}/mute", "Report nothing more of it, or report it again", asked.Mute, Muted)
_post("fault_fixed", "/faults/{fault}/fixed", "Say that it is fixed, or take that back", asked.Fixed, SaidFixed)


@_operation("POST", "/faults/{fault}/retry", "Try again now what failed so last and waits", answers.Retried)
async def fault_retry(asker: Asker, said: asked.OfFault) -> object:
    return {"queues": await retry_fault(asker.connection, said.fault)}


@_operation("GET", "/redrives", "Redrives at work, and the last that have ended", answers.Items[Redrive])
async def redrives(asker: Asker, said: asked.Nothing) -> object:
    return {"items": await asker.connection.call("redrives")}


@_operation("POST", "/redrives/plan", "What a redrive would do: a dry run", answers.DoubtedPlan)
async def plan_redrive(asker: Asker, said: asked.Plan) -> object:
    found = await asker.connection.call("reckon-redrive", **said.model_dump())
    return {**found, "against": [each._asdict() for each in against(found)]}


_post("start_redrive", "/redrives", "Begin a redrive", asked.Plan, Redrive)
_get("redrive", "/redrives/{redrive}", "How far a redrive is", asked.OfRedrive, Redrive, call="redrive-status")
_post("pause_redrive", "/redrives/{redrive}/pause", "Send nothing more until it is resumed", asked.OfRedrive, Redrive)
_post("resume_redrive", "/redrives/{redrive}/resume", "Go on where it was paused", asked.OfRedrive, Redrive)
_post("cancel_redrive", "/redrives/{redrive}/cancel", "End it; what it has sent stays where it went", asked.OfRedrive, Redrive)


@_operation("GET", "/retrying", "Queues in which something waits to be tried again", answers.Items[RetryingQueue])
async def retrying(asker: Asker, said: asked.Nothing) -> object:
    return {"items": await asker.connection.call("retrying")}


_get(
    "repeated",
    "/repeated",
    "What is to come again in a queue, by the sends that asked for it; the next page may have more of one",
    asked.RepeatedPage,
    RepeatedSends,
)
_post("retry", "/retry", "What failed and waits: due now, held, or released, a step of them", asked.Retry, Done)
_get("due", "/due", "How many messages are due when", asked.OfQueueOrAll, Due)
_get("events", "/events", "The last events of each kind, in the order in which they happened", asked.EventsPage, NumberedPage[BrokerEvent])
_get(
    "event_stream",
    "/events/stream",
    "Events as they happen, server-sent, each with its number as id",
    asked.EventStream,
    BrokerEvent,
    call="events",
    media=EVENTS,
)
_get("settings", "/settings", "What commands have set of addresses, over the file", asked.Page, Page[SetOfPattern], call="list-settings")
_post("set_settings", "/settings", "Set settings of addresses: all of them or nothing", asked.SetSettings, ChangedSettings)
_post(
    "preview_settings", "/settings/preview", "What the last day's failures would have got by them", asked.PreviewSettings, PreviewedSettings
)
_post("unset_settings", "/settings/unset", "Take back what commands have set", asked.UnsetSettings, ChangedSettings)
_get("exchanges", "/exchanges", "AMQP's exchanges, with how much is bound to each", asked.Page, Page[Exchange])
_get("bindings", "/bindings", "What leads to a queue, or from an exchange", asked.Bindings, Page[Binding])
_get("policies", "/policies", "Policies, those of the file and those of commands", asked.Page, Page[Policy])
_post("set_policy", "/policies", "Set a policy; one of the same name is replaced", asked.SetPolicy, Policy)
_post("clear_policy", "/policies/clear", "Clear a policy", asked.OfPolicy, Named)
_get("virtual_hosts", "/virtual-hosts", "Virtual hosts, with how much is in each", asked.Page, Page[VirtualHost], call="vhosts")
_post(
    "add_virtual_host",
    "/virtual-hosts",
    "Add a virtual host; one that is there already is no error",
    asked.OfVirtualHost,
    VirtualHost,
    call="add-vhost",
)
_post(
    "delete_virtual_host",
    "/virtual-hosts/delete",
    "Delete a virtual host with all that is in it",
    asked.OfVirtualHost,
    RemovedVirtualHost,
    call="delete-vhost",
)
_get("users", "/users", "Users, with what each may do where", asked.Page, Page[User])
_post("add_user", "/users", "Make a user", asked.AddUser, User)
_post("delete_user", "/users/delete", "Delete a user, whose connections end", asked.OfUser, Named)
_post("grant", "/users/grant", "Allow a user something", asked.Grant, User)
_post("revoke", "/users/revoke", "Take back what was granted, in the same words", asked.Grant, User)
_post("backup", "/journal/backup", "Copy the journal while the broker goes on", asked.BackupName, Backup)
_get("export", "/export", "How far the export is that was asked for last", asked.Nothing, Export)
_post("start_export", "/export", "Begin an export of the journal, which takes the place of the one before", asked.StartExport, Export)
_post(
    "discard_export",
    "/export/discard",
    "End the export that is being made, and remove the file of one that is there",
    asked.Nothing,
    Export,
)


@_operation("GET", "/export/{name}", "The export, as a file", answers.Bytes, TAR)
async def download_export(asker: Asker, said: asked.OfFile) -> object:
    return await export_file(asker.connection, said.name)


_get("reports", "/reports", "Reports that were made beside the broker, the latest first", asked.Nothing, Reports)


@_operation("GET", "/reports/{name}", "The page of a report, as a file", answers.Bytes, HTML)
async def download_report(asker: Asker, said: asked.OfFile) -> object:
    return await report_file(asker.connection, said.name, shown=False)
