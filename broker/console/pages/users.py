"""Users, and what each may do where."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from ...answers.administration import User
from ...answers.parts import Properties
from ..reads import listing
from ..tables import Column, over, table
from ..templates import moment
from ..visits import Visit

_MOST: Final = 1000
_GRANTS: Final = (
    Column("User", lambda each: over(each["name"], each["ends"])),
    Column("May", lambda each: ", ".join(each["rights"])),
    Column("On", lambda each: each.get("pattern")),
    Column("In", lambda each: each.get("virtual_host", "all virtual hosts")),
    Column("Under keys", lambda each: each.get("keys")),
    Column("From", lambda each: each["source"]),
)


def _ends(user: User) -> Markup | None:
    return Markup("until {}").format(moment(user["ends_ms"])) if "ends_ms" in user else None


async def users(visit: Visit) -> Response:
    found, more = await listing(visit.connection, "users", _MOST)
    rows: list[Properties] = [
        {"name": each["name"], "source": each["source"], "ends": _ends(each), **grant}
        for each in found
        for grant in each["grants"] or ({"rights": ["nothing"]},)
    ]
    return visit.page("users", number=len(found), grants=table("users", "Users and what they may do", _GRANTS, rows), more=more)
