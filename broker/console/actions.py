"""What pages and the API do where that takes more than one call of the broker."""

from __future__ import annotations

import homing


async def to_its_end(connection: homing.Connection, verb: str, **arguments: object) -> int:
    """With all that is meant, a step after the other; how many messages that were."""
    messages: int = 0
    after = None
    while True:
        answer = await connection.call(verb, **arguments, after=after)
        messages += answer["messages"]
        after = answer["next"]
        if after is None:
            return messages


async def retry_fault(connection: homing.Connection, fault: str) -> dict[str, int]:
    """All that waits for its time having failed so last is due now, in whichever queue; how many messages of each."""
    found = await connection.call("fault", fault=fault)
    waiting = sorted(each["queue"] for each in found["groups"] if each["waiting"])
    return {each: await to_its_end(connection, "retry", queue=each, filter={"fault": found["fault"]}, now=True) for each in waiting}
