"""What may be asked, as models: their fields are the parameters of an operation, those of its path included."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_serializer

from ...answers.parts import Properties
from ...words.filters import property_of

_MOST = 2**63 - 1
Number = Annotated[int, Field(ge=0, le=_MOST)]
#: In a path it is text.
PathNumber = Annotated[int, Field(ge=0, le=_MOST, strict=False)]
Name = Annotated[str, Field(min_length=1, max_length=1024, description="A queue's name.")]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Pace = Annotated[int, Field(ge=0, le=1_000_000_000)]
Limit = Annotated[int, Field(ge=1, le=250, description="Entries of the answer at most; it may have fewer.")]
Reason = Literal["delivery_limit", "poison", "not-retryable", "expired", "maxlen", "rejected"]


def _a_property(text: str) -> str:
    property_of(text)
    return text


Property = Annotated[str, AfterValidator(_a_property)]


class Asked(BaseModel):
    """A body is JSON, whose types are told; a query is text, and validated as that."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Nothing(Asked):
    """No parameters."""


class Page(Asked):
    limit: Limit = 100
    after: Annotated[Text | None, Field(description="`next` of the answer before; left out for the first.")] = None


class NumberedPage(Asked):
    limit: Limit = 100
    after: Annotated[Number, Field(description="`next` of the answer before; 0 for the first.")] = 0


class Chosen(Asked):
    """Which messages: all of what is given holds."""

    fault: Annotated[str | None, Field(description="A fault's number, or its beginning.")] = None
    error_type: str | None = None
    reason: Annotated[Reason | None, Field(description="Why they are dead letters.")] = None
    from_queue: Annotated[str | None, Field(description="Where they failed.")] = None
    since_ms: Number | None = None
    until_ms: Number | None = None
    key: Annotated[str | None, Field(description="What the property has that message-key-property names.")] = None
    amqp_message_id: str | None = None
    app_id: str | None = None
    where: Annotated[str | None, Field(description="A selector, such as region = 'eu'.")] = None
    body_contains: str | None = None
    message_ids: Annotated[list[Number], Field(max_length=1000)] = []

    @property
    def chosen(self) -> Properties:
        """As the broker's calls have it."""
        found = {name: getattr(self, name) for name in Chosen.model_fields}
        return {name: value for name, value in found.items() if value not in (None, [])}


class Filter(Chosen):
    """The same within a body: properties may be of any type."""

    properties: Annotated[dict[str, JsonValue], Field(description="Properties, all of which are equal.")] = {}

    @model_serializer
    def _chosen(self) -> Properties:
        return {**self.chosen, **({"properties": self.properties} if self.properties else {})}


class Messages(Chosen):
    """Those of a queue."""

    queue: Name
    properties: Annotated[list[Property], Field(description="NAME=TEXT, or NAME:=JSON, each.")] = []
    limit: Limit = 50
    after: Annotated[Number | None, Field(description="`next` of the answer before.")] = None
    newest_first: bool = False

    @property
    def chosen(self) -> Properties:
        return {**super().chosen, **({"properties": dict(map(property_of, self.properties))} if self.properties else {})}


class OfQueue(Asked):
    queue: Name


class CountsOfQueue(OfQueue):
    minutes: Annotated[int, Field(ge=1, le=129_600, description="How far back.")] = 60
    width_minutes: Annotated[int, Field(ge=1, le=129_600, description="How many minutes are added up to a part; 1440 parts at most.")] = 1


class OfQueueOrAll(Asked):
    queue: Annotated[Text | None, Field(description="Of this queue; left out: of all.")] = None


class ConsumersPage(Page, OfQueueOrAll):
    pass


class FaultsPage(NumberedPage, OfQueueOrAll):
    pass


class OfMessage(Asked):
    message_id: PathNumber


class DeleteMessage(OfMessage):
    queue: Annotated[Text | None, Field(description="Only there; left out: wherever it is.")] = None


class MoveMessage(OfMessage):
    to: Name
    source: Annotated[str | None, Field(description="Where it is, if it is in several queues.")] = None


class EditMessage(OfMessage):
    queue: Annotated[Text | None, Field(description="Where it is, if it is in several queues.")] = None
    body: Annotated[str | None, Field(description="Another body, as text.")] = None
    patch: Annotated[
        dict[str, JsonValue] | list[JsonValue] | None, Field(description="Of a body that is JSON: a JSON Patch, or a JSON Merge Patch.")
    ] = None
    set: Annotated[dict[str, JsonValue], Field(description="Properties to set.")] = {}
    unset: Annotated[list[str], Field(max_length=1000, description="Properties to take away.")] = []
    to: Annotated[str | None, Field(description="Another queue, or an address; null: where it came from.")] = None
    keep_original: bool = False
    signed: Annotated[bool, Field(description="Also what carries a signature.")] = False
    dry_run: Annotated[bool, Field(description="Only show the difference.")] = False


class SomeMessages(Asked):
    queue: Name
    filter: Filter = Filter()
    after: Annotated[Number | None, Field(description="`next` of the answer before.")] = None


class DeleteMessages(SomeMessages):
    living: Annotated[bool, Field(description="Also messages that are no dead letters.")] = False


class MoveMessages(SomeMessages):
    to: Name


class Plan(Asked):
    queue: Name
    filter: Filter = Filter()
    to: Annotated[str | None, Field(description="Another queue, or an address; left out: where each came from.")] = None
    rate: Annotated[Pace, Field(description="Messages a second; 0: as fast as it goes.")] = 0
    limit: Annotated[Pace, Field(description="At most so many; 0: all.")] = 0
    canary: Annotated[Pace, Field(description="First only so many, the others when these have fared well.")] = 0
    stop_above: Annotated[int | None, Field(ge=0, le=100, description="Per cent that may come back; null: never stop.")] = 20
    newest_first: bool = False


class OfRedrive(Asked):
    redrive: PathNumber


class OfFault(Asked):
    fault: Annotated[str, Field(min_length=1, max_length=64, description="Its number, or as much of its beginning as only it has.")]


class Mute(OfFault):
    muted: bool = True


class Fixed(OfFault):
    fixed: bool = True
    version: Annotated[str | None, Field(max_length=200, description="The release that it is gone from; null: from now on.")] = None


class RepeatedPage(Asked):
    queue: Name
    after: Annotated[list[Number] | None, Field(description="`next` of the answer before, both numbers of it.")] = None


class Retry(Asked):
    queue: Name
    filter: Filter = Filter()
    after: Annotated[list[Number] | None, Field(description="`next` of the answer before.")] = None
    act: Annotated[Literal["now", "hold", "release"], Field(description="Due now; on hold; or released from that.")]

    @model_serializer
    def _called(self) -> Properties:
        return {"queue": self.queue, "filter": self.filter.chosen, "after": self.after, self.act: True}


class EventsPage(Asked):
    kinds: Annotated[list[Text], Field(description="Such as fault.new; none: all.")] = []
    since_ms: Number = 0
    limit: Limit = 100
    after: Annotated[Number | None, Field(description="`next` of the answer before.")] = None


class EventStream(Asked):
    kinds: Annotated[list[Text], Field(description="Such as fault.new; none: all.")] = []
    since_ms: Annotated[Number | None, Field(description="Those before, too, since then; left out: from now on.")] = None
    after: Annotated[Number, Field(description="Behind this number; a header Last-Event-ID counts before it.")] = 0


class OfAddress(Asked):
    address: Name


class OfConnection(Asked):
    connection: Annotated[str, Field(min_length=1, max_length=64, description="Its name, such as c12.")]


Pattern = Annotated[str, Field(min_length=1, max_length=1024, description="Of addresses, such as orders.#.")]
Layers = Annotated[
    dict[str, dict[str, JsonValue]],
    Field(min_length=1, description="By pattern: settings, as broker.yaml has them, such as redelivery-delay: 5s."),
]
VirtualHost = Annotated[str, Field(min_length=1, max_length=128, description="A virtual host's name.")]


class PreviewSettings(Asked):
    layers: Layers


class SetSettings(PreviewSettings):
    dry_run: Annotated[bool, Field(description="Only say what it would touch.")] = False


class UnsetSettings(Asked):
    pattern: Pattern
    keys: Annotated[list[str] | None, Field(min_length=1, max_length=100, description="Which settings; null: all of the pattern.")] = None
    dry_run: Annotated[bool, Field(description="Only say what it would touch.")] = False


class OfPolicy(Asked):
    name: Annotated[str, Field(min_length=1, max_length=255)]
    virtual_host: VirtualHost = "/"


class SetPolicy(OfPolicy):
    pattern: Annotated[str, Field(max_length=1024, description="A regular expression, searched for in names.")]
    definition: Annotated[dict[str, JsonValue], Field(min_length=1, description="With RabbitMQ's keys, such as message-ttl.")]
    apply_to: Literal["queues", "exchanges", "all"] = "all"
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0


class Bindings(Page, OfQueueOrAll):
    exchange: Annotated[Text | None, Field(description="Those of this exchange, where no queue is named.")] = None
    virtual_host: VirtualHost = "/"


class OfVirtualHost(Asked):
    name: VirtualHost


class OfUser(Asked):
    name: Annotated[str, Field(min_length=1, max_length=255)]


class SomeRights(Asked):
    rights: Annotated[list[Text], Field(min_length=1, max_length=100, description="Rights or roles.")]
    pattern: Annotated[str, Field(min_length=1, max_length=1024, description="Of addresses, queues and exchanges.")] = "#"
    virtual_host: Annotated[str | None, Field(max_length=255, description="null: in all.")] = None
    keys: Annotated[str | None, Field(max_length=1024, description="On exchanges: under routing keys that match it.")] = None


class AddUser(OfUser):
    hash: Annotated[str, Field(max_length=1024, description="Of the password, as `homing user hash` makes it.")]
    grants: Annotated[list[SomeRights], Field(max_length=100)] = []
    ends_ms: Annotated[Number | None, Field(description="From then on nobody comes in so.")] = None


class Grant(OfUser, SomeRights):
    pass


class BackupName(Asked):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="Of the directory that is made.")]


class StartExport(Asked):
    with_tracebacks: Annotated[bool, Field(description="They may contain secrets.")] = False


class OfFile(Asked):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="As the list of them has it.")]
