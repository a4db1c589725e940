"""A redrive in words: what speaks against it, how it was meant, and how far it is."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from ..answers.failures import PlannedPart, Redrive, RedrivePlan
from ..answers.parts import Fields
from ..core.redrive_job import STOP_ABOVE as STOP_ABOVE
from ..core.settings.units import counted
from .filters import options_of

#: What would become of messages, and why.
_BOUNCES: Final = {
    "queue-gone": ("would wait", "the queue is gone, and made again without a consumer"),
    "queue-paused": ("would wait", "the queue is paused"),
    "no-consumer": ("would wait", "nobody consumes from the queue"),
    "queue-full": ("would wait or stay", "the queue has no room for them, and nothing is pushed out"),
    "not-dead": ("would stay", "they are no dead letters"),
    "no-such-address": ("would stay", "the queue is gone, and not made again"),
    "access-refused": ("would stay", "you may not send to the queue"),
    "consume-refused": ("would stay", "you may not take from the queue, which is the right consume"),
    "policy": ("may come back", "the queue's policy or declaration lets messages live for a while only"),
    "fault-muted": ("may come back", "the fault is muted"),
    "never-succeeded-since": ("may come back", "nothing that failed so has succeeded since"),
}
#: What does not go along.
_DROPS: Final = {"redelivery-delay": ("would go at once", "the delay after their last failure is dropped with their failures")}
#: These are the fault's, the others the queue's, whatever its messages failed of.
_OF_A_FAULT: Final = ("fault-muted", "never-succeeded-since")
_HOW: Final = (("target", "to"), ("rate", "rate"), ("limit", "limit"), ("canary", "canary"))
_COUNTS: Final = (
    ("succeeded", "succeeded"),
    ("waiting", "not settled yet"),
    ("transient", "of these transient"),
    ("died", "dead again"),
    ("gone", "gone otherwise"),
    ("bounced", "failed again as before"),
    ("left", "left where they were: no dead letters, held, or no room"),
)


class Doubt(NamedTuple):
    """So many ``messages`` of a plan, or fewer, would fare so, and why; ``which``: the queue, and the fault."""

    code: str
    messages: int
    verdict: str
    why: str
    which: str


def against(plan: RedrivePlan) -> list[Doubt]:
    """What speaks against it."""
    found: Counter[tuple[str, str]] = Counter()
    for each in plan["would_bounce"]:
        names = (each["queue"], each["fault"] if each["code"] in _OF_A_FAULT else None)
        found[each["code"], ", ".join(filter(None, names))] += each["messages"]
    return [
        _doubt(code, number if code == "not-dead" else min(number, plan["messages"]), _BOUNCES.get(code), "may come back", which)
        for (code, which), number in found.items()
    ]


def _doubt(code: str, messages: int, known: tuple[str, str] | None, otherwise: str, which: str = "") -> Doubt:
    verdict, why = known or (otherwise, code)
    return Doubt(code, messages, verdict, why, which)


def drops(plan: RedrivePlan) -> list[Doubt]:
    """What messages would lose on the way."""
    return [_doubt(each["code"], min(each["messages"], plan["messages"]), _DROPS.get(each["code"]), "would lose") for each in plan["drops"]]


def expected(part: PlannedPart) -> str:
    """What became of those of its fault that were sent back before, and so can be expected of these; "": none was."""
    tried = part["back_succeeded"] + part["back_died"]
    least, most = part["least"], part["most"]
    if least is None or most is None:
        return ""
    of_these = f"{least:,} to {most:,}" if least < most else f"{most:,}"
    return f"of {tried:,} sent back before {part['back_succeeded']:,} succeeded: of these {of_these} can be expected to"


def planned(plan: RedrivePlan) -> str:
    """How many, and of which queue."""
    about = "" if plan["exact"] else "at most "
    transient = f", {plan['transient']:,} of them transient" if plan["transient"] else ""
    return f"{about}{counted(plan['messages'], 'message')} of {plan['queue']} would be sent{transient}"


def meant(job: Fields) -> str:
    """Which messages, and how: the options that it was started with."""
    how = [f"--{name} {job[key]}" for key, name in _HOW if job[key]]
    how += ["--newest-first"] if job["newest_first"] else []
    if job["stop_above"] != STOP_ABOVE:
        how.append("--no-stop" if job["stop_above"] is None else f"--stop-above {job['stop_above']}")
    return " ".join(options_of(job["wanted"]) + how)


def progress(job: Redrive) -> str:
    """How many were sent, and what became of them."""
    parts = [f"{job['sent']:,} sent, {job['sent_per_s']:,.0f} a second"]
    numbers: Fields = job
    parts += [f"{numbers[name]:,} {words}" for name, words in _COUNTS if numbers[name]]
    if job["state"] == "running" and job["sent"] == job["canary"] and job["waiting"]:
        parts.append("the others wait for these")
    if job["waits_for"]:
        parts.append(f"waits for room in queue {job['waits_for']}")
    return ", ".join(parts)
