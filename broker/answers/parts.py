"""What stands in many answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NotRequired, TypeAlias, TypeVar

from typing_extensions import TypedDict

T = TypeVar("T")


@dataclass(frozen=True)
class Said:
    """What the document of the API says of a field beside its name (console/api/openapi.py)."""

    text: str

    def __get_pydantic_json_schema__(self, core: object, handler: Callable[[object], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(core), "description": self.text}


Ms = Annotated[int, Said("Milliseconds since 1970.")]
#: Of the properties of a message, of arguments, settings and definitions, which have whatever keys somebody wrote.
Properties: TypeAlias = dict[str, Any]
#: An answer, or a part of one, whose fields a table takes by their names.
Fields: TypeAlias = Mapping[str, Any]


class LeftOut(TypedDict):
    """``right``: the one for want of which."""

    queues: int
    right: str


class Page(TypedDict, Generic[T]):
    """``next``: the ``after`` of the next one."""

    items: list[T]
    next: str | None
    left_out: NotRequired[LeftOut | None]


class NumberedPage(TypedDict, Generic[T]):
    items: list[T]
    next: int | None
    left_out: NotRequired[LeftOut | None]


class ErrorOfFault(TypedDict):
    fault: str
    error_class: str
    text: str


class Removed(TypedDict):
    messages: int


class Named(TypedDict):
    name: str


class Client(TypedDict):
    """What its client says of itself."""

    client: str | None
    product: str | None
    product_version: str | None
    instrumented: str | None
    host: str | None
    version: str | None


class Waiting(TypedDict):
    """A limit that holds producers back."""

    limit: str
    why: str
    producers: int
    since_ms: int | None
