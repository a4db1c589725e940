"""Duplicate ids: which messages came to an address before, by what their senders gave them."""

from __future__ import annotations

from collections import OrderedDict

from ..core.message import Message
from ..core.queue import Queue
from ..entries.declared import Declared
from ..recording.journal_port import JournalPort
from ..topology.resources import Resources


class DuplicateIds:
    """``most``: how many are remembered for each address."""

    def __init__(self, journal: JournalPort, declared: Declared, resources: Resources, most: int) -> None:
        self._journal = journal
        self._declared = declared
        self._most = most
        #: By address; whether the journal has it.
        self._seen: dict[str, OrderedDict[str, bool]] = {}
        #: Those that are remembered, and their characters.
        self.number = self.characters = 0
        resources.address_gone.append(self._forget)

    def remember(self, address: str, duplicate_ids: list[str]) -> None:
        """What the journal remembered, oldest first."""
        self._seen[address] = seen = OrderedDict.fromkeys(duplicate_ids, True)
        self._count(len(seen), sum(map(len, seen)))

    def _forget(self, address: str) -> None:
        seen = self._seen.pop(address, None)
        if seen is not None:
            self._count(-len(seen), -sum(map(len, seen)))

    def _count(self, ids: int, characters: int) -> None:
        self.number += ids
        self.characters += characters

    def record_all(self) -> None:
        """Those of messages that are not durable, which an orderly stop keeps."""
        for address, seen in self._seen.items():
            for duplicate_id in [each for each, recorded in seen.items() if not recorded]:
                self._journal.batch.duplicate(address, duplicate_id)

    def known(self, message: Message) -> bool:
        """Whether a message with this duplicate_id came to this address before. Raises Refused where it could not be remembered."""
        if message.duplicate_id is None:
            return False
        seen = self._seen.get(message.address)
        if seen is not None and message.duplicate_id in seen:
            return True
        if seen is None or len(seen) < self._most:
            self._declared.check("duplicate ids")
        return False

    def note(self, message: Message, queues: list[Queue]) -> None:
        if message.duplicate_id is None:
            return
        seen = self._seen.setdefault(message.address, OrderedDict())
        if message.duplicate_id not in seen:
            self._count(1, len(message.duplicate_id))
        seen[message.duplicate_id] = lasting = message.durable or any(queue.keeps_all for queue in queues)
        if len(seen) > self._most:
            oldest, _ = seen.popitem(last=False)
            self._count(-1, -len(oldest))
        if lasting:
            self._journal.batch.duplicate(message.address, message.duplicate_id)
