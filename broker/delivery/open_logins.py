"""Connections that are open when users change: what is open of those that may not have it any more ends."""

from __future__ import annotations

from ..auth.access import Access, queue_place
from ..connection import Connection
from ..core.rights import Place, Right
from ..long_work import Work
from ..recording.journal_port import JournalPort
from ..steps import Steps
from .connections import Connections


class OpenLogins:
    def __init__(self, access: Access, connections: Connections, journal: JournalPort, work: Work) -> None:
        self._access = access
        self._connections = connections
        self._journal = journal
        self._work = work

    def users_changed(self, over: frozenset[str] | None, others: frozenset[str]) -> None:
        """``over``: see Users.changed."""
        for connection in list(self._connections.all.values()):
            if over is None or connection.user in over:
                self._end_login(connection)
            elif connection.user in others and (lost := self._lost_right(connection)) is not None:
                self._connections.end(connection, "access-refused", lost)

    def _end_login(self, connection: Connection) -> None:
        """At once, or, where nothing is open, when what is on its way to the disk is answered: who changed it hears that it was done."""
        why = "login-required", "users or their passwords have changed, and this login counts no more"
        if connection.has_something_open:
            self._connections.end(connection, *why)
            return

        def end_in_a_turn_of_its_own() -> Steps[None]:
            yield
            if connection.open:
                self._connections.end(connection, *why)

        self._journal.when_safe(lambda: self._work.begin(end_in_a_turn_of_its_own()))

    def _lost_right(self, connection: Connection) -> str | None:
        """What it has open and may not have, in a sentence."""
        for producer in connection.producers.values():
            if not self._access.may(connection, Right.SEND, Place("address", (producer.address,))):
                return f"the right to send to {producer.address} was revoked"
        for consumer in (*connection.consumers.values(), *connection.retired.values()):
            if not self._access.may(connection, Right.CONSUME, queue_place(consumer.queue)):
                return f"the right to consume from queue {consumer.queue.name} was revoked"
        return None
