"""What the demo sends: lines of JSON, each to the address that its ``event`` names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examples.demo.processes import DemoError
from examples.make_sample import sample_lines

PREFIX = "github."
OTHER = "demo.other"


@dataclass(frozen=True, slots=True)
class Event:
    #: 1-based line of the input; travels as the property ``line``.
    line: int
    address: str
    body: bytes
    #: Whether the handlers' rule can hold for it.
    about_repository: bool


def read_events(path: Path) -> list[Event]:
    """Every line that is not blank. Raises DemoError for what is not a file of JSON objects."""
    try:
        return _events(path.read_text().splitlines())
    except OSError as error:
        raise DemoError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DemoError(f"{path} is not a file of JSON objects, one a line: {error}") from None


def sample_events() -> list[Event]:
    return _events(sample_lines())


def _events(lines: Iterable[str]) -> list[Event]:
    events = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError(f"line {number} is {type(value).__name__}")
        kind, payload = value.get("event"), value.get("payload")
        address = f"{PREFIX}{kind}" if isinstance(kind, str) and kind else OTHER
        about_repository = isinstance(payload, dict) and isinstance(payload.get("repository"), dict)
        events.append(Event(number, address, text.encode(), about_repository))
    if not events:
        raise ValueError("there is no line in it")
    return events
