"""Transactions of the broker's sessions: sends and acknowledgements that take effect together, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..connection import Connection
from ..core.consumer import Consumer
from ..core.message import REFERENCE_BYTES, Message, MessageReference
from ..core.queue import Queue
from ..core.transaction import Transaction
from ..errors import Refused

if TYPE_CHECKING:
    from ..broker import Broker


class Transactions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def of(self, connection: Connection, session: int) -> Transaction:
        """The session's open transaction; begins with the first operation."""
        transaction = connection.transactions.get(session)
        if transaction is None:
            transaction = connection.transactions[session] = Transaction(self._broker.now_ms())
        return transaction

    def hold_sends(self, connection: Connection, session: int, sends: list[Message]) -> None:
        """Keeps messages until the commit; past a limit the transaction is broken and its commit will be refused."""
        transaction = self.of(connection, session)
        if transaction.broken is None:
            transaction.sends += sends
            self._reckon(transaction, sum(message.size + REFERENCE_BYTES for message in sends))
            self._check(transaction)

    def hold_acknowledgement(self, connection: Connection, session: int, consumer: Consumer, references: list[MessageReference]) -> None:
        """The messages stay delivering until the commit is on disk."""
        transaction = self.of(connection, session)
        if transaction.broken is None:
            fresh = [reference for reference in references if reference.transaction is None]
            for reference in fresh:
                reference.transaction = transaction
            if fresh:
                transaction.acknowledge(consumer, fresh)
                self._check(transaction)

    def _reckon(self, transaction: Transaction, size: int) -> None:
        """What is held back counts as memory in use, like what is in queues."""
        transaction.bytes += size
        self._broker.state.memory_bytes += size

    def release(self, transaction: Transaction) -> None:
        """The transaction is over, or broken: what it held counts no more, what it acknowledged is anybody's to settle."""
        self._reckon(transaction, -transaction.bytes)
        for _, references in transaction.acknowledged:
            for reference in references:
                if reference.transaction is transaction:
                    reference.transaction = None

    def fail(self, transaction: Transaction, code: str, message: str, fix: str) -> None:
        """The transaction can no longer commit; what it held is let go."""
        self.release(transaction)
        transaction.fail(code, message, fix)

    def _check(self, transaction: Transaction) -> None:
        limits = self._broker.limits
        excess = transaction.excess(limits.transaction_operations, limits.transaction_bytes)
        if excess is not None:
            self.fail(transaction, *excess)

    def commit(self, connection: Connection, session: int, transaction_id: str, sends: int) -> None:
        """Everything as one group. Raises Refused with everything rolled back; the caller answers through ``when_safe``."""
        broker = self._broker
        transaction = self.of(connection, session)
        try:
            if transaction.broken is not None:
                raise Refused(*transaction.broken)
            if len(transaction.sends) != sends:
                raise Refused(
                    "transaction-incomplete",
                    f"{sends} sends were announced and {len(transaction.sends)} arrived",
                    "send the transaction again",
                )
            self._check_held(transaction)
            routes = self._routes(transaction)
            self.check_references(sum([len(queues) for queues in routes]))
        except Refused:
            self.roll_back(connection, session)
            raise
        self.release(connection.transactions.pop(session))
        for message, queues in zip(transaction.sends, routes, strict=True):
            broker.intake.store(message, queues, after_commit=True)
        for consumer, references in transaction.acknowledged:
            broker.settlement.acknowledge(consumer, references, alone=False)
            consumer.queue.committing += len(references)
        self._drop_retired(connection)
        broker.ledger.group.committed(transaction_id, broker.now_ms())
        broker.ledger.when_safe(lambda: self._on_disk(transaction))

    @staticmethod
    def _on_disk(transaction: Transaction) -> None:
        for consumer, references in transaction.acknowledged:
            consumer.queue.committing -= len(references)

    @staticmethod
    def _check_held(transaction: Transaction) -> None:
        seen: set[int] = set()
        for consumer, references in transaction.acknowledged:
            for reference in references:
                twice = reference.sequence in seen  # it went back in between, and came again
                seen.add(reference.sequence)
                if twice or reference.consumer is not consumer or reference.transaction is not transaction:
                    raise Refused(
                        "not-held",
                        "a message acknowledged in this transaction is no longer held (it timed out)",
                        "roll back and take the messages again",
                    )

    def check_references(self, references: int) -> None:
        """A commit is one step and one group of the journal, however much it is. Raises Refused where that is too much."""
        most = self._broker.limits.transaction_references
        if references > most:
            raise Refused(
                "transaction-too-large",
                f"the transaction's messages for all their queues are {references}, a commit takes at most {most}",
                "commit more often, or raise limits: max-transaction-references",
            )

    def _routes(self, transaction: Transaction) -> list[list[Queue]]:
        """Where each message goes; all are checked before any is stored. Raises Refused."""
        routes: list[list[Queue]] = []
        try:
            self._route_all(transaction, routes)
        finally:
            for message, queues in zip(transaction.sends, routes, strict=False):
                for queue in queues:
                    queue.expect(-1, -message.size)
        return routes

    def _route_all(self, transaction: Transaction, routes: list[list[Queue]]) -> None:
        """Each message counts for the length limits that the ones after it meet."""
        intake = self._broker.intake
        seen: set[tuple[str, str]] = set()
        for message in transaction.sends:
            if message.duplicate_id is not None:
                key = (message.address, message.duplicate_id)
                if intake.duplicate(message) or key in seen:
                    raise Refused(
                        "duplicate-message", f"duplicate_id {message.duplicate_id!r} came to {message.address} before", "leave it out"
                    )
                seen.add(key)
            queues = list(intake.queues_for(message))
            routes.append(queues)
            for queue in queues:
                queue.expect(1, message.size)

    def roll_back(self, connection: Connection, session: int) -> None:
        """Held sends vanish; what the session was given comes back counted, what it had not read uncounted."""
        undone = connection.transactions.pop(session, None)
        if undone is not None:
            self.release(undone)
        for consumer in connection.consumers_of(session):
            self._broker.settlement.rolled_back(consumer)
        self._drop_retired(connection)

    @staticmethod
    def _drop_retired(connection: Connection) -> None:
        for number, consumer in list(connection.retired.items()):
            if not consumer.unsettled:
                del connection.retired[number]

    def time_out(self, connection: Connection, now_ms: int) -> None:
        """A transaction that has been open too long is undone; its commit will be refused."""
        for session, transaction in list(connection.transactions.items()):
            timeout_ms = self._broker.limits.transaction_timeout_ms
            if transaction.broken is None and now_ms - transaction.started_at_ms >= timeout_ms:
                self.roll_back(connection, session)
                undone = self.of(connection, session)
                undone.fail(
                    "transaction-timed-out", f"the transaction was open for {timeout_ms // 1000} s and was rolled back", "commit sooner"
                )
