"""What is to be different of messages that are edited and sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .message import PropertyValue
from .queue import Queue


class Edit(NamedTuple):
    """Of one: another body, or None; properties that are set, and that go."""

    body: bytes | None
    set: Mapping[str, PropertyValue]
    unset: frozenset[str]


class Edits(NamedTuple):
    """Of messages of one queue, by their numbers. ``target`` None: where each was dead-lettered from first, or where it is."""

    by_number: Mapping[int, Edit]
    target: Queue | None
    #: The originals stay where they are.
    keep: bool
    #: Also what carries one of ``signature-properties``.
    signed: bool
