"""In tests every change of ``MessageReference.where`` is looked up in the table of transitions, also in the servers that are forked."""

from __future__ import annotations

from typing import Any

from homing.broker.core import message as broker_core_message
from homing.broker.core.lifecycle import check
from homing.broker.core.message import MessageReference, Where

#: The compiled build's classes cannot be changed.
COMPILED = broker_core_message.__file__.endswith(".so")


def watch() -> None:
    """From now on, in this process and those forked from it."""
    kind: Any = MessageReference
    slot = kind.where
    if COMPILED or isinstance(slot, property):
        return

    def move(reference: MessageReference, to: Where) -> None:
        try:
            before = slot.__get__(reference)
        except AttributeError:
            pass  # it begins
        else:
            check(before, to)
        slot.__set__(reference, to)

    kind.where = property(slot.__get__, move)
