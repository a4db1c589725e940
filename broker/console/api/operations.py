"""Every operation of the API, in one table: routes and document are made of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel

import homing
from homing.client.patch import Patch

from ...words.edits import Change
from ...words.redrives import against
from .. import edits, reads
from ..actions import retry_fault
from ..commands import Commands
from ..files import HTML, TAR, export_file, report_file
from . import answers, asked

A = TypeVar("A", bound=asked.Asked)

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


class Asker:
    """Who asks: a connection with his rights; and how commands find the broker."""

    def __init__(self, connection: homing.Connection, commands: Commands) -> None:
        self.connection = connection
        self.commands = commands

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Raises homing.HomingError."""
        return await self.connection.call(verb, **arguments)


@dataclass(frozen=True)
class Operation:
    """``path`` is behind ``/api/v1``; ``asks`` and ``answers``: models of what comes and goes. ``media``: of what is answered, JSON or, of
    what goes on, server-sent events, each of which is of that model, and ``run`` has a page of them; else ``run`` answers with a file."""

    method: Literal["GET", "POST"]
    path: str
    summary: str
    asks: type[asked.Asked]
    answers: type[BaseModel]
    run: Callable[[Asker, Any], Awaitable[Any]]
    media: str = JSON

    @property
    def streams(self) -> bool:
        return self.media == EVENTS

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def reads(self) -> bool:
        """Whether it changes nothing: what is asked for may be more than an address holds."""
        return self.method == "GET" or self.path.endswith(("/plan", "/preview"))


OPERATIONS: Final[list[Operation]] = []


def _operation(
    method: Literal["GET", "POST"], path: str, summary: str, answer: type[BaseModel], media: str = JSON
) -> Callable[[Callable[[Asker, A], Awaitable[Any]]], Callable[[Asker, A], Awaitable[Any]]]:
    """``summary``: what it shows or does. What it asks for is the type of the function's second argument, which its name is of, too."""

    def put(run: Callable[[Asker, A], Awaitable[Any]]) -> Callable[[Asker, A], Awaitable[Any]]:
        asks = getattr(asked, run.__annotations__["said"].removeprefix("asked."))
        OPERATIONS.append(Operation(method, path, summary, asks, answer, run, media))
        return run

    return put


def _text(body: bytes) -> Any:
    """A body as text; what is none goes as base64."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


@_operation("GET", "/overview", "What is wrong now, worst first, each with its next step", answers.Overview)
async def overview(asker: Asker, said: asked.Nothing) -> Any:
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


@_operation("GET", "/statistics", "How much there is of all, and the rates of the whole broker", answers.Statistics)
async def statistics(asker: Asker, said: asked.Nothing) -> Any:
    return await asker.call("statistics")


@_operation("GET", "/queues", "Queues, in the order of their names", answers.Queues)
async def queues(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("queues", limit=said.limit, after=said.after)


@_operation("GET", "/queue", "One queue", answers.Queue)
async def queue(asker: Asker, said: asked.OfQueue) -> Any:
    return await asker.call("queue", queue=said.queue)


@_operation("GET", "/queue/counts", "What became of the messages of a durable queue, by the minute or longer", answers.Counts)
async def queue_counts(asker: Asker, said: asked.Counts) -> Any:
    return await asker.call("counts", **said.model_dump())


@_operation("POST", "/queue/pause", "Hand nothing more of a queue out, until it is resumed", answers.Queue)
async def pause_queue(asker: Asker, said: asked.OfQueue) -> Any:
    return await asker.call("pause", queue=said.queue)


@_operation("POST", "/queue/resume", "Hand out again what is in a queue", answers.Queue)
async def resume_queue(asker: Asker, said: asked.OfQueue) -> Any:
    return await asker.call("resume", queue=said.queue)


@_operation("POST", "/queue/purge", "Remove all messages of a queue but those that consumers hold", answers.Removed)
async def purge_queue(asker: Asker, said: asked.OfQueue) -> Any:
    return await asker.call("purge", queue=said.queue)


@_operation("GET", "/consumers", "Consumers, of a queue or of all", answers.Entries)
async def consumers(asker: Asker, said: asked.ConsumersPage) -> Any:
    return await asker.call("consumers", queue=said.queue, limit=said.limit, after=said.after)


@_operation("GET", "/connections", "Connections, with what each costs in memory", answers.Entries)
async def connections(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("connections", limit=said.limit, after=said.after)


@_operation(
    "POST", "/connections/{connection}/close", "Close a connection; what it holds goes back to its queues", answers.ClosedConnection
)
async def close_connection(asker: Asker, said: asked.OfConnection) -> Any:
    return await asker.call("close-connection", connection=said.connection)


@_operation("GET", "/explain", "Each setting of an address, and where it comes from", answers.Explained)
async def explain(asker: Asker, said: asked.OfAddress) -> Any:
    return await asker.call("explain", address=said.address)


@_operation("GET", "/dead-letters", "Queues that have dead letters", answers.DeadQueues)
async def dead_letters(asker: Asker, said: asked.NumberedPage) -> Any:
    return await asker.call("dead-letters", limit=said.limit, after=said.after)


@_operation("GET", "/messages", "Messages of a queue that a filter takes, each with why it is a dead letter", answers.MessagePage)
async def messages(asker: Asker, said: asked.Messages) -> Any:
    page = {"limit": said.limit, "after": said.after, "newest_first": said.newest_first}
    found = await reads.letters(asker.connection, said.queue, said.chosen, **page)
    rows = [{**each, "body": _text(each["body"]), "dead_letter": death and death.shown()} for each, death in found.rows]
    return {"messages": rows, "looked_at": found.looked_at, "next": found.next}


@_operation("POST", "/messages/delete", "Delete those of a queue that a filter takes, a step of them; `next` goes on", answers.Done)
async def delete_messages(asker: Asker, said: asked.SomeMessages) -> Any:
    return await asker.call("delete-dead-letters", queue=said.queue, filter=said.filter.chosen, after=said.after)


@_operation("POST", "/messages/move", "Move them to another queue, a step of them; `next` goes on", answers.Done)
async def move_messages(asker: Asker, said: asked.MoveMessages) -> Any:
    return await asker.call("move-dead-letters", queue=said.queue, to=said.to, filter=said.filter.chosen, after=said.after)


@_operation("GET", "/messages/{message_id}", "The life of a message", answers.Life)
async def message(asker: Asker, said: asked.OfMessage) -> Any:
    seen = await reads.life_of(asker.connection, said.message_id, time.time_ns() // 1_000_000)
    kept = seen.found["message"]
    events = [{"at_ms": each.at_ms, "title": each.title, "details": each.details} for each in seen.events]
    shown = kept and {**kept, "body": _text(kept["body"])}
    return {**seen.found, "message": shown, "life": events, "if_sent_back": seen.sources, "verdict": seen.verdict}


@_operation("GET", "/messages/{message_id}/why", "Why it is not delivered now", answers.Why)
async def why(asker: Asker, said: asked.OfMessage) -> Any:
    return await asker.call("why", message_id=said.message_id)


@_operation("POST", "/messages/{message_id}/delete", "Delete one message", answers.DeletedMessage)
async def delete_message(asker: Asker, said: asked.DeleteMessage) -> Any:
    return await asker.call("delete-message", message_id=said.message_id, queue=said.queue)


@_operation("POST", "/messages/{message_id}/move", "Move one message to another queue", answers.MovedMessage)
async def move_message(asker: Asker, said: asked.MoveMessage) -> Any:
    return await asker.call("move-message", message_id=said.message_id, queue=said.to, source=said.source)


@_operation("POST", "/messages/{message_id}/edit", "Send a message again with another body or other properties", answers.EditedMessage)
async def edit_message(asker: Asker, said: asked.EditMessage) -> Any:
    found = await edits.find(asker.connection, said.message_id, said.queue)
    patch = None if said.patch is None else Patch(said.patch)
    change = Change(dict(said.set), said.unset, patch, None if said.body is None else said.body.encode())
    how = {"to": said.to, "keep_original": said.keep_original, "signed": said.signed}
    made = None if said.dry_run else await edits.send(asker.connection, found, change, **how)
    return {"message_id": said.message_id, "edited": made, "difference": change.difference(found.message)}


@_operation("GET", "/faults", "Faults, those first that most messages are dead of or wait for", answers.Faults)
async def faults(asker: Asker, said: asked.FaultsPage) -> Any:
    return await asker.call("faults", queue=said.queue, limit=said.limit, after=said.after)


@_operation("GET", "/faults/{fault}", "One fault: its traceback, its last 24 hours, and its group in each queue", answers.Fault)
async def fault(asker: Asker, said: asked.OfFault) -> Any:
    return await asker.call("fault", fault=said.fault)


@_operation("POST", "/faults/{fault}/mute", "Report nothing more of it, or report it again", answers.Muted)
async def mute_fault(asker: Asker, said: asked.Mute) -> Any:
    return await asker.call("mute-fault", fault=said.fault, muted=said.muted)


@_operation("POST", "/faults/{fault}/fixed", "Say that it is fixed, or take that back", answers.SaidFixed)
async def fault_fixed(asker: Asker, said: asked.Fixed) -> Any:
    return await asker.call("fault-fixed", fault=said.fault, version=said.version, fixed=said.fixed)


@_operation("POST", "/faults/{fault}/retry", "Try again now what failed so last and waits", answers.Retried)
async def fault_retry(asker: Asker, said: asked.OfFault) -> Any:
    return {"queues": await retry_fault(asker.connection, said.fault)}


@_operation("GET", "/redrives", "Redrives at work, and the last that have ended", answers.Redrives)
async def redrives(asker: Asker, said: asked.Nothing) -> Any:
    return {"items": await asker.call("redrives")}


def _job(said: asked.Plan) -> dict[str, Any]:
    how = said.model_dump(exclude={"filter"})
    return {**how, "filter": said.filter.chosen}


@_operation("POST", "/redrives/plan", "What a redrive would do: a dry run", answers.RedrivePlan)
async def plan_redrive(asker: Asker, said: asked.Plan) -> Any:
    found = await asker.call("reckon-redrive", **_job(said))
    return {**found, "against": [each._asdict() for each in against(found)]}


@_operation("POST", "/redrives", "Begin a redrive", answers.Redrive)
async def start_redrive(asker: Asker, said: asked.Plan) -> Any:
    return await asker.call("start-redrive", **_job(said))


@_operation("GET", "/redrives/{redrive}", "How far a redrive is", answers.Redrive)
async def redrive(asker: Asker, said: asked.OfRedrive) -> Any:
    return await asker.call("redrive-status", redrive=said.redrive)


@_operation("POST", "/redrives/{redrive}/pause", "Send nothing more until it is resumed", answers.Redrive)
async def pause_redrive(asker: Asker, said: asked.OfRedrive) -> Any:
    return await asker.call("pause-redrive", redrive=said.redrive)


@_operation("POST", "/redrives/{redrive}/resume", "Go on where it was paused", answers.Redrive)
async def resume_redrive(asker: Asker, said: asked.OfRedrive) -> Any:
    return await asker.call("resume-redrive", redrive=said.redrive)


@_operation("POST", "/redrives/{redrive}/cancel", "End it; what it has sent stays where it went", answers.Redrive)
async def cancel_redrive(asker: Asker, said: asked.OfRedrive) -> Any:
    return await asker.call("cancel-redrive", redrive=said.redrive)


@_operation("GET", "/retrying", "Queues in which something waits to be tried again", answers.Retrying)
async def retrying(asker: Asker, said: asked.Nothing) -> Any:
    return {"items": await asker.call("retrying")}


@_operation("POST", "/retry", "What failed and waits: due now, held, or released, a step of them", answers.Done)
async def retry(asker: Asker, said: asked.Retry) -> Any:
    return await asker.call("retry", queue=said.queue, filter=said.filter.chosen, after=said.after, **{said.act: True})


@_operation("GET", "/due", "How many messages are due when", answers.Due)
async def due(asker: Asker, said: asked.OfQueueOrAll) -> Any:
    return await asker.call("due", queue=said.queue)


@_operation("GET", "/events", "The last events of each kind, in the order in which they happened", answers.Events)
async def events(asker: Asker, said: asked.EventsPage) -> Any:
    return await asker.call("events", kinds=said.kinds or None, since_ms=said.since_ms, limit=said.limit, after=said.after)


@_operation("GET", "/events/stream", "Events as they happen, server-sent, each with its number as id", answers.BrokerEvent, media=EVENTS)
async def event_stream(asker: Asker, said: asked.EventStream) -> Any:
    return await asker.call("events", kinds=said.kinds or None, since_ms=said.since_ms, after=said.after)


@_operation("GET", "/settings", "What commands have set of addresses, over the file", answers.Entries)
async def settings(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("list-settings", limit=said.limit, after=said.after)


@_operation("POST", "/settings", "Set settings of addresses: all of them or nothing", answers.ChangedSettings)
async def set_settings(asker: Asker, said: asked.SetSettings) -> Any:
    return await asker.call("set-settings", layers=said.layers, dry_run=said.dry_run)


@_operation("POST", "/settings/preview", "What the last day's failures would have got by them", answers.PreviewedSettings)
async def preview_settings(asker: Asker, said: asked.PreviewSettings) -> Any:
    return await asker.call("preview-settings", layers=said.layers)


@_operation("POST", "/settings/unset", "Take back what commands have set", answers.ChangedSettings)
async def unset_settings(asker: Asker, said: asked.UnsetSettings) -> Any:
    return await asker.call("unset-settings", pattern=said.pattern, keys=said.keys, dry_run=said.dry_run)


@_operation("GET", "/exchanges", "AMQP's exchanges, with how much is bound to each", answers.Entries)
async def exchanges(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("exchanges", limit=said.limit, after=said.after)


@_operation("GET", "/bindings", "What leads to a queue, or from an exchange", answers.Entries)
async def bindings(asker: Asker, said: asked.Bindings) -> Any:
    return await asker.call("bindings", **said.model_dump())


@_operation("GET", "/policies", "Policies, those of the file and those of commands", answers.Entries)
async def policies(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("policies", limit=said.limit, after=said.after)


@_operation("POST", "/policies", "Set a policy; one of the same name is replaced", answers.Policy)
async def set_policy(asker: Asker, said: asked.SetPolicy) -> Any:
    return await asker.call("set-policy", **said.model_dump())


@_operation("POST", "/policies/clear", "Clear a policy", answers.Named)
async def clear_policy(asker: Asker, said: asked.OfPolicy) -> Any:
    return await asker.call("clear-policy", **said.model_dump())


@_operation("GET", "/virtual-hosts", "Virtual hosts, with how much is in each", answers.Entries)
async def virtual_hosts(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("vhosts", limit=said.limit, after=said.after)


@_operation("POST", "/virtual-hosts", "Add a virtual host; one that is there already is no error", answers.VirtualHost)
async def add_virtual_host(asker: Asker, said: asked.OfVirtualHost) -> Any:
    return await asker.call("add-vhost", name=said.name)


@_operation("POST", "/virtual-hosts/delete", "Delete a virtual host with all that is in it", answers.RemovedVirtualHost)
async def delete_virtual_host(asker: Asker, said: asked.OfVirtualHost) -> Any:
    return await asker.call("delete-vhost", name=said.name)


@_operation("GET", "/users", "Users, with what each may do where", answers.Entries)
async def users(asker: Asker, said: asked.Page) -> Any:
    return await asker.call("users", limit=said.limit, after=said.after)


@_operation("POST", "/users", "Make a user", answers.User)
async def add_user(asker: Asker, said: asked.AddUser) -> Any:
    grants = [each.model_dump(exclude_none=True) for each in said.grants]
    return await asker.call("add-user", name=said.name, hash=said.hash, grants=grants, ends_ms=said.ends_ms)


@_operation("POST", "/users/delete", "Delete a user, whose connections end", answers.Named)
async def delete_user(asker: Asker, said: asked.OfUser) -> Any:
    return await asker.call("delete-user", name=said.name)


@_operation("POST", "/users/grant", "Allow a user something", answers.User)
async def grant(asker: Asker, said: asked.Grant) -> Any:
    return await asker.call("grant", **said.model_dump())


@_operation("POST", "/users/revoke", "Take back what was granted, in the same words", answers.User)
async def revoke(asker: Asker, said: asked.Grant) -> Any:
    return await asker.call("revoke", **said.model_dump())


@_operation("POST", "/journal/backup", "Copy the journal while the broker goes on", answers.Backup)
async def backup(asker: Asker, said: asked.Backup) -> Any:
    return await asker.call("backup", name=said.name)


@_operation("GET", "/export", "How far the export is that was asked for last", answers.Export)
async def export(asker: Asker, said: asked.Nothing) -> Any:
    return await asker.call("export")


@_operation("POST", "/export", "Begin an export of the journal, which takes the place of the one before", answers.Export)
async def start_export(asker: Asker, said: asked.StartExport) -> Any:
    return await asker.call("start-export", with_tracebacks=said.with_tracebacks)


@_operation("POST", "/export/discard", "End the export that is being made, and remove the file of one that is there", answers.Export)
async def discard_export(asker: Asker, said: asked.Nothing) -> Any:
    return await asker.call("discard-export")


@_operation("GET", "/export/{name}", "The export, as a file", answers.File, TAR)
async def download_export(asker: Asker, said: asked.OfFile) -> Any:
    return await export_file(asker.connection, said.name)


@_operation("GET", "/reports", "Reports that were made beside the broker, the latest first", answers.Reports)
async def reports(asker: Asker, said: asked.Nothing) -> Any:
    return await asker.call("reports")


@_operation("GET", "/reports/{name}", "The page of a report, as a file", answers.File, HTML)
async def download_report(asker: Asker, said: asked.OfFile) -> Any:
    return await report_file(asker.connection, said.name, shown=False)
