"""A message with another body or other properties: the form, the difference, and then sent in the place of the one that failed."""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.datastructures import MultiDict
from starlette.responses import Response

from homing.journal import json_text

from ...answers.parts import Properties
from ...words.edits import Change
from ...words.filters import property_of
from ...words.safe_text import safe
from ..asked import number, refused
from ..edits import Found, find, send
from ..visits import Visit, goes_to

#: What names of properties begin with that the broker sets.
_ITS_OWN: Final = ("_AMQ_", "JMSX", "_HOMING_")
#: Of a body that a form has room for.
_MOST_BYTES: Final = 256 * 1024


class _Form(NamedTuple):
    """What it says. ``body``: None where it is to stay, or cannot be shown as a text that comes back as it was."""

    body: str | None
    properties: str
    to: str
    keep_original: bool

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The same once more, of a form that nobody can change."""
        body = [] if self.body is None else [("body", self.body)]
        kept = [("keep_original", "1")] if self.keep_original else []
        return [*body, ("properties", self.properties), ("to", self.to), *kept]


def _text_of(body: bytes) -> str | None:
    """What a form gives back as it was given: a browser makes every line end its own."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    plain = text.replace("\r\n", "\n")
    mixed = "\r" in plain or ("\r\n" in text and text.count("\r\n") != text.count("\n"))
    return None if mixed or len(body) > _MOST_BYTES or safe(plain, lines=True) != plain else plain


def _line(name: str, value: object) -> str:
    return f"{name}={value}" if isinstance(value, str) else f"{name}:={json_text.dumps(value)}"


def _properties(found: Found) -> Properties:
    """Those that are not the broker's own."""
    return {name: value for name, value in (found.message["properties"] or {}).items() if not name.startswith(_ITS_OWN)}


def _lines(properties: Properties) -> str | None:
    """A property a line; None where they would not come back as they are."""
    lines = [_line(name, value) for name, value in properties.items()]
    try:
        same = dict(map(property_of, lines)) == properties
    except ValueError:
        return None
    return "\n".join(lines) if same and all(line == safe(line) and line == line.strip() for line in lines) else None


def _change(found: Found, said: MultiDict) -> Change:
    """Raises Problem."""
    for name in ("body", "properties", "to"):
        text = said.get(name, "").replace("\r\n", "\n")
        if safe(text, lines=True) != text:
            raise refused(f"{name} has letters that cannot be seen, which a form does not keep")
    before = _properties(found)
    body = None
    if "body" in said and _text_of(found.message["body"]) is not None:
        text = said["body"].replace("\r\n", "\n")
        body = (text.replace("\n", "\r\n") if b"\r\n" in found.message["body"] else text).encode()
    if "properties" not in said or _lines(before) is None:
        return Change({}, [], None, body)
    try:
        after = dict(property_of(line) for line in said["properties"].splitlines() if line.strip())
    except ValueError as error:
        raise refused(str(error)) from None
    changed = {name: value for name, value in after.items() if name not in before or _line(name, before[name]) != _line(name, value)}
    return Change(changed, [name for name in before if name not in after], None, body)


async def edit(visit: Visit) -> Response:
    found = await _found(visit, visit.request.query_params.get("queue"))
    form = _Form(_text_of(found.message["body"]), _lines(_properties(found)) or "", "", False)
    return _page(visit, found, form, None)


async def _found(visit: Visit, queue: str | None) -> Found:
    return await find(visit.connection, number(visit.request.path_params["message_id"], "a message's number"), queue or None)


def _page(visit: Visit, found: Found, form: _Form, change: Change | None) -> Response:
    message = found.message
    words = ["edit", str(message["message_id"]), "--queue", found.queue]
    if change is not None:
        words += [word for name, value in change.set.items() for word in ("--set", _line(name, value))]
        words += [word for name in change.unset for word in ("--unset", name)]
        words += ["--body", "FILE"] if change.of(message).get("body") is not None else []
    words += ["--to", form.to] if form.to else []
    words += ["--keep-original"] if form.keep_original else []
    return visit.page(
        "edit",
        message_id=message["message_id"],
        queue=found.queue,
        form=form,
        whole_properties=_lines(_properties(found)) is not None,
        signed_by=message["signed_by"],
        difference=None if change is None else change.difference(message),
        command=visit.commands.say(*words),
    )


async def act(visit: Visit) -> Response:
    """``act=send`` sends it; without, the difference is shown."""
    said = await visit.form()
    found = await _found(visit, said.get("queue"))
    change = _change(found, said)
    texts = {name: said[name].replace("\r\n", "\n") for name in ("body", "properties") if name in said}
    form = _Form(texts.get("body"), texts.get("properties", ""), said.get("to", "").strip(), said.get("keep_original") == "1")
    if said.get("act") != "send":
        return _page(visit, found, form, change)
    made = await send(visit.connection, found, change, to=form.to or None, keep_original=form.keep_original, signed=True)
    return goes_to(f"/messages/{made}")
