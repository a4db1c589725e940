"""Policies, and what commands have set of addresses: what holds where, and a change of it, which is shown with what it touches before."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from starlette.responses import Response

from ...answers.administration import PreviewRow
from ...answers.parts import Properties
from ...words.attempts import answered
from ...words.settings import origin_text, settings_in, value_text
from ..asked import Said, lines_in, refused
from ..reads import if_told, listing
from ..tables import Column, link, table
from ..visits import Visit, goes_to

_MOST: Final = 1000
#: Of the journal's, that a dry run looks at.
_ROWS: Final = 300
_POLICIES: Final = (
    Column("Policy", lambda each: each["name"]),
    Column("Virtual host", lambda each: each["virtual_host"]),
    Column("For", lambda each: f"{each['apply_to']} that match {each['pattern']}"),
    Column("Priority", lambda each: each["priority"], is_number=True),
    Column("Sets", lambda each: ", ".join(f"{key} {json.dumps(value)}" for key, value in each["definition"].items())),
    Column("From", lambda each: f"{each['source']}, slow" if each.get("slow") else each["source"]),
)
_COMMANDED: Final = (
    Column("Setting", lambda each: each["key"]),
    Column("Value", lambda each: value_text(each["key"], each["value"])),
    Column("For", lambda each: each["pattern"]),
    Column("", lambda each: link("Take back…", "/settings/change", pattern=each["pattern"], unset=each["key"])),
)
_IN_FORCE: Final = (
    Column("Setting", lambda each: each["key"]),
    Column("Value", lambda each: each["value"]),
    Column("From", lambda each: each["from"]),
)
_TOUCHED: Final = (
    Column("Queue", lambda each: link(each["queue"], "/queue", queue=each["queue"])),
    Column("Setting", lambda each: each["key"]),
    Column("Is", lambda each: value_text(each["key"], each["was"])),
    Column("Would be", lambda each: value_text(each["key"], each["then"])),
)


async def settings(visit: Visit) -> Response:
    address = visit.request.query_params.get("address", "").strip()
    explained = answered(await visit.call("explain", address=address)) if address else None
    in_force: list[Properties] = []
    by_default: list[Properties] = []
    for each in explained.origins if explained else ():
        row = {"key": each.key, "value": value_text(each.key, each.value), "from": origin_text(each)}
        (by_default if each.pattern == "default" else in_force).append(row)
    policies = await if_told(listing(visit.connection, "policies", _MOST))
    commanded = await if_told(listing(visit.connection, "list-settings", _MOST))
    pairs = [
        {"pattern": each["pattern"], "key": key, "value": value}
        for each in (commanded[0] if commanded else ())
        for key, value in each["settings"].items()
    ]
    return visit.page(
        "settings",
        address=address,
        in_force=table("three", f"Settings of {address}", _IN_FORCE, in_force),
        by_default=table("three", "By default", _IN_FORCE, by_default),
        commanded=commanded and table("four", "Set by command", _COMMANDED, pairs),
        policies=policies and table("policies", "Policies", _POLICIES, policies[0]),
    )


class _Change(NamedTuple):
    """``verb``: the broker's call; ``words``: of the command; ``pairs``: of an address or a form."""

    verb: str
    arguments: Properties
    words: list[str]
    pairs: list[tuple[str, str]]


def _change_in(said: Said) -> _Change:
    """Raises Problem."""
    pattern = said.get("pattern", "").strip()
    if not pattern:
        raise refused("no pattern of addresses is named")
    named = [("pattern", pattern)]
    if unset := [each for each in said.getlist("unset") if each]:
        arguments = {"pattern": pattern, "keys": unset}
        return _Change("unset-settings", arguments, ["settings", "unset", pattern, *unset], [*named, *(("unset", each) for each in unset)])
    lines = lines_in(said, "settings")
    try:
        layer = settings_in(lines)
    except ValueError as error:
        raise refused(str(error)) from None
    if not layer:
        raise refused("no setting is given")
    words = ["settings", "set", pattern, *lines]
    return _Change("set-settings", {"layers": {pattern: layer}}, words, [*named, *(("settings", each) for each in lines)])


async def change(visit: Visit) -> Response:
    """A dry run."""
    wanted = _change_in(visit.request.query_params)
    takes_back = wanted.verb == "unset-settings"
    found = await visit.call(wanted.verb, **wanted.arguments, dry_run=True)
    touched = [
        {"queue": each["queue"], "key": key, "was": was, "then": then}
        for each in found["touched"]
        for key, (was, then) in each["changes"].items()
    ]
    preview = None if takes_back else await if_told(visit.call("preview-settings", **wanted.arguments, rows=_ROWS))
    return visit.page(
        "settings_change",
        change=wanted,
        takes_back=takes_back,
        found=found,
        touched=table("four", "What it touches", _TOUCHED, touched),
        left_out=found["queues"] - len(found["touched"]),
        preview=preview and [_previewed(each) for each in preview["rows"]],
        is_whole=preview is None or preview["whole"],
        command=visit.commands.say(*wanted.words),
    )


def _previewed(row: PreviewRow) -> str:
    came, would = (", ".join(f"{number:,} {_FATE[name]}" for name, number in row[key].items()) for key in ("then", "now"))
    return f"{row['queue']}, {row['error_class']}: {came}; would be {would}"


_FATE: Final = {"redeliver": "tried again", "dead-letter": "dead-lettered", "drop": "dropped"}


async def apply(visit: Visit) -> Response:
    wanted = _change_in(await visit.form())
    await visit.call(wanted.verb, **wanted.arguments)
    return goes_to("/settings")
