"""Which dead letters, or messages that wait to be tried again, are meant: one filter for all verbs.

Why, from where and when they were dead-lettered, their key and numbers are found by index; properties, a selector and a
part of the body by looking at each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from homing.journal.declarations import FilterContent

from .amqp.origin import ids_in
from .fault import FaultGroup
from .message import MessageReference, PropertyValue
from .selector import Selector


@dataclass(frozen=True, slots=True)
class Filter:
    """None, or empty: whatever it is. ``fault``: a fingerprint or its beginning; ``reason``: as hops have it; times in ms, ``until_ms``
    itself not included.
    """

    fault: str | None = None
    error_type: str | None = None
    reason: str | None = None
    #: Where they failed.
    from_queue: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    key: str | None = None
    #: AMQP's, as its sender said it.
    amqp_message_id: str | None = None
    app_id: str | None = None
    message_ids: tuple[int, ...] | None = None
    properties: dict[str, PropertyValue] = field(default_factory=dict)
    where: Selector | None = None
    body_contains: bytes = b""

    @classmethod
    def of(cls, said: FilterContent, compile_selector: Callable[[str], Selector | None]) -> Filter:
        """From plain values that were checked before."""
        fields: dict[str, Any] = {**said}
        if "message_ids" in fields:
            fields["message_ids"] = tuple(fields["message_ids"])
        if "where" in fields:
            fields["where"] = compile_selector(fields["where"])
        return cls(**fields)

    def said(self) -> dict[str, Any]:
        """As it was given, without what does not matter."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found = {name: value for name, value in found.items() if value not in (None, {}, b"")}
        return found if self.where is None else {**found, "where": self.where.text}

    @property
    def is_of_deaths(self) -> bool:
        """Whether it chooses by why they were dead-lettered, and so dead letters alone."""
        return not (self.fault is self.error_type is self.reason is self.from_queue is None)

    @property
    def scans(self) -> bool:
        """Whether each message has to be looked at."""
        return bool(self.properties or self.where or self.body_contains or self.amqp_message_id or self.app_id)

    def takes_group(self, group: FaultGroup | None, source: Callable[[], str | None]) -> bool:
        """``group``: their fault, None where it is not known any more; ``source``: where, as far as the group does not know."""
        if group is None:
            return self.fault is self.error_type is None and self.from_queue in (None, source())
        if self.fault is not None and not group.is_called(self.fault):
            return False
        if self.error_type is not None and self.error_type not in (group.error_class, group.error_class.rpartition(".")[2]):
            return False
        return self.from_queue is None or self.from_queue == (group.queue or source())

    def takes(self, reference: MessageReference) -> bool:
        """Of one that the rest chose."""
        lookup: Callable[[str], Any] | None = None
        if self.amqp_message_id or self.app_id:
            ids = ids_in(reference.message.properties)
            if self.amqp_message_id not in (None, ids.amqp_message_id) or self.app_id not in (None, ids.app_id):
                return False
        if self.properties:
            lookup = reference.lookup()
            if any(lookup(name) != value for name, value in self.properties.items()):
                return False
        if self.where is not None and not self.where.matches(lookup or reference.lookup()):
            return False
        return self.body_contains in reference.message.body
