"""A message: its life as a timeline, what it says, and where it would go back to."""

from __future__ import annotations

import time

from starlette.responses import Response

from ...words.timeline import sent_at_ms
from .. import reads
from ..asked import number
from ..problems import Problem
from ..templates import a_time, body_shown, image_kind
from ..visits import Visit


async def message(visit: Visit) -> Response:
    number_of = number(visit.request.path_params["message_id"], "a message's number")
    seen = await reads.life_of(visit.connection, number_of, time.time_ns() // 1_000_000, a_time)
    found = seen.found
    kept = found["message"]
    kind, text = body_shown(kept["body"]) if kept else ("", "")
    faults = [each["fault"] or {} for each in found["attempts"]]
    tracebacks = {each["fingerprint"]: each["traceback"] for each in faults if each.get("traceback") and each.get("fingerprint")}
    return visit.page(
        "message",
        message_id=number_of,
        seen=seen,
        kept=kept,
        sent_at_ms=sent_at_ms(found),
        body_kind=kind,
        body_text=text,
        is_image=bool(kept and image_kind(kept["body"])),
        tracebacks=tracebacks,
        places=[each["queue"] for each in found["references"]],
    )


async def body(visit: Visit) -> Response:
    """As a file, never as something that a browser would show by itself; an image can stand in a page of ours."""
    number_of = number(visit.request.path_params["message_id"], "a message's number")
    found = await visit.call("history", message_id=number_of)
    if not found["message"]:
        raise Problem("no-such-message", f"message {number_of} is gone: only its history is here", "a redrive or an edit keeps it", 404)
    name = {"content-disposition": f'attachment; filename="message-{number_of}.bin"'}
    content = found["message"]["body"]
    image = image_kind(content)
    return Response(content, media_type=f"image/{image}" if image else "application/octet-stream", headers=name)
