"""What the API answers where that is more than the broker's answer to one call (broker/answers/)."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from typing_extensions import TypedDict

from ...answers.failures import BodilessMessage, RedrivePlan
from ...answers.lives import KeptBodiless, Records
from ...answers.parts import Ms, Said

T = TypeVar("T")
Body = Annotated[str | dict[str, str], Said('The text; what is not UTF-8 is {"base64": …}.')]
#: Of a file.
Bytes = str


class Items(TypedDict, Generic[T]):
    items: list[T]


class Finding(TypedDict):
    level: Literal["stopped", "failing", "waiting", "note"]
    sentence: str
    since_ms: Ms | None
    page: Annotated[str | None, Said("Where the console shows it.")]
    command: str


class Overview(TypedDict):
    findings: list[Finding]
    untold: Annotated[list[str], Said("What the user may not see.")]
    looked_at_queues: bool


class Death(TypedDict):
    reason: str
    queue: str
    address: str
    attempts: int
    died_at_ms: Ms
    failed_at_ms: Ms | None
    outcome: str | None
    fault: str | None
    error_type: str | None
    error: str | None
    said: str | None
    fault_text: str | None
    refused: str | None


class Message(BodilessMessage):
    body: Body
    dead_letter: Death | None


class MessagePage(TypedDict):
    messages: list[Message]
    looked_at: int
    next: int | None


class Event(TypedDict):
    at_ms: Ms | None
    title: str
    details: list[str]


class Source(TypedDict):
    lies_in: str
    queue: str
    address: str
    chances: str


class KeptMessage(KeptBodiless):
    body: Body


class Life(Records):
    message: Annotated[KeptMessage | None, Said("null: it is gone, and its history is here for a while.")]
    life: list[Event]
    if_sent_back: list[Source]
    verdict: str | None


class EditedMessage(TypedDict):
    message_id: int
    edited: Annotated[int | None, Said("The number of what takes its place; null after a dry run.")]
    difference: Annotated[list[str], Said("Line by line, as diff shows it.")]


class Retried(TypedDict):
    queues: Annotated[dict[str, int], Said("How many messages of each queue are due now.")]


class Doubt(TypedDict):
    code: str
    messages: int
    verdict: str
    why: str
    which: str


class DoubtedPlan(RedrivePlan):
    against: Annotated[list[Doubt], Said("What would bounce, wait or stay, and why.")]


class Problem(TypedDict):
    """RFC 9457; `code` is the broker's, and never changes its meaning."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fix: str
