"""Transactions of sessions and of AMQP's channels: sends and acknowledgements that take effect together, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from ..config.models import LimitsSection
from ..connection import Connection
from ..core.consumer import Consumer
from ..core.memory import Kind, Memory
from ..core.message import Message, MessageReference
from ..core.producer import Producer
from ..core.queue import Queue
from ..core.routing import PostOffice
from ..core.transaction import Send, Transaction
from ..errors import Refused
from ..recording.journal_port import JournalPort
from .publish import Intake
from .settlement import Settlement
from .settling import Settling

#: What each message that is sent, and each delivery that is settled, takes in memory until then, the message's own weight aside.
SENT_BYTES: Final = 240
SETTLED_BYTES: Final = 100


class Transactions:
    def __init__(
        self,
        journal: JournalPort,
        post_office: PostOffice,
        memory: Memory,
        intake: Intake,
        settlement: Settlement,
        settling: Settling,
        limits: LimitsSection,
        now_ms: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._post_office = post_office
        self._memory = memory
        self._now_ms = now_ms
        self._intake = intake
        self._settlement = settlement
        self._settling = settling
        self._limits = limits

    def of(self, connection: Connection, session: int) -> Transaction[Message]:
        """The session's open transaction; begins with the first operation."""
        transaction = connection.transactions.get(session)
        if transaction is None:
            transaction = connection.transactions[session] = Transaction[Message]()
        return transaction

    def begin(self, connection: Connection, channel: int, timed_out: Callable[[], None]) -> Transaction[Any]:
        """An AMQP channel's; another follows each (``commit``, ``roll_back``)."""
        transaction = connection.transactions[channel] = Transaction[Any](timed_out)
        return transaction

    def hold_sends(self, connection: Connection, session: int, sends: list[Message], refusal: Refused | None) -> None:
        """Keeps messages until the commit; past a limit the transaction is broken and its commit will be refused. ``refusal``: one more was
        not understood, and the transaction cannot commit."""
        transaction = self.of(connection, session)
        if refusal is not None:
            self.fail(transaction, refusal.code, refusal.message, refusal.fix)
        self.hold(transaction, sends, sum(message.weight for message in sends))

    def hold(self, transaction: Transaction[Send], sends: list[Send], size: int, settled: int = 0) -> None:
        """Keeps what a front end makes messages of when it commits, ``size`` bytes; ``settled``: deliveries that are settled then."""
        if transaction.broken is None:
            transaction.sends += sends
            self._reckon(transaction, len(sends) + settled, size + SENT_BYTES * len(sends) + SETTLED_BYTES * settled)

    def hold_acknowledgement(self, connection: Connection, session: int, consumer: Consumer, references: list[MessageReference]) -> None:
        """The messages stay delivering until the commit is on disk."""
        transaction = self.of(connection, session)
        if transaction.broken is None:
            fresh = [reference for reference in references if reference.transaction is None]
            for reference in fresh:
                reference.transaction = transaction
            if fresh:
                transaction.acknowledged.append((consumer, fresh))
                self._reckon(transaction, len(fresh), 0)

    def _reckon(self, transaction: Transaction[Send], operations: int, size: int) -> None:
        """So much more is held back. Past a limit of its own, or of all that is no message, the transaction is broken."""
        if transaction.started_at_ms is None:
            transaction.started_at_ms = self._now_ms()
        transaction.operations += operations
        self._count(transaction, size)
        memory = self._memory
        excess = transaction.excess(self._limits.max_transaction_operations, min(self._limits.max_transaction_bytes, memory.limit // 4))
        if excess is None and memory.room() < 0:
            excess = (
                "memory-limit",
                f"what connections hold beside messages in queues has come to half of memory-limit ({memory.limit} bytes)",
                "commit sooner, or raise broker.memory-limit",
            )
        if excess is not None:
            self.fail(transaction, *excess)

    def _count(self, transaction: Transaction[Send], size: int) -> None:
        transaction.bytes += size
        self._memory.charge(Kind.SESSIONS, size)

    def release(self, transaction: Transaction[Send]) -> None:
        """The transaction is over, or broken: what it held counts no more, what it acknowledged is anybody's to settle."""
        self._count(transaction, -transaction.bytes)
        for _, references in transaction.acknowledged:
            for reference in references:
                if reference.transaction is transaction:
                    reference.transaction = None

    def end(self, connection: Connection, channel: int) -> None:
        """The channel is closed: what it had not committed is forgotten."""
        transaction = connection.transactions.pop(channel, None)
        if transaction is not None:
            self.release(transaction)

    def fail(self, transaction: Transaction[Send], code: str, message: str, fix: str) -> None:
        """The transaction can no longer commit; what it held is let go."""
        self.release(transaction)
        transaction.fail(code, message, fix)

    def commit(
        self,
        connection: Connection,
        session: int,
        transaction_id: str | None,
        sends: int,
        named: Callable[[Message], list[Queue] | None] = lambda _: None,
    ) -> None:
        """Everything as one batch. Raises Refused with everything rolled back; the caller answers through ``when_safe``.

        ``transaction_id``: by which its client may ask later whether it was committed; None: nobody asks. ``named``: the queues of a
        message whose address does not say it; may raise Refused.
        """
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
            routes = self._routes(transaction, named)
            self._check_sends(list(zip(transaction.sends, routes, strict=True)))
        except Refused:
            self.roll_back(connection, session)
            raise
        self.release(connection.transactions.pop(session))
        self._take_effect(zip(transaction.sends, routes, strict=True), transaction.acknowledged)
        self._drop_retired(connection)
        if transaction_id is not None:
            self._journal.batch.committed(transaction_id, self._now_ms())

    def commit_channel(
        self,
        transaction: Transaction[Send],
        sends: list[tuple[Message, list[Queue]]],
        acknowledged: list[tuple[Consumer, list[MessageReference]]],
        no_longer_held: Iterable[Consumer],
        producer: Producer,
    ) -> None:
        """Commits what an AMQP channel has made of its transaction. Raises Refused where any of it cannot be, and nothing has changed.

        ``no_longer_held``: whose deliveries were acknowledged in it, and are not theirs any more. Where a queue is full and has producers
        wait, ``producer`` does.
        """
        if any(self._post_office.queues.get(consumer.queue.name) is consumer.queue for consumer in no_longer_held):
            raise _not_held()
        self._check_sends(sends)
        self.release(transaction)
        self._take_effect(sends, acknowledged, producer)

    def _take_effect(
        self,
        sends: Iterable[tuple[Message, list[Queue]]],
        acknowledged: list[tuple[Consumer, list[MessageReference]]],
        producer: Producer | None = None,
    ) -> None:
        """In one step of the loop, and so in one batch of the journal."""
        for message, queues in sends:
            self._intake.offer(producer, queues, message, after_commit=True)
        for consumer, references in acknowledged:
            self._settlement.acknowledge(consumer, references, alone=False)
            consumer.queue.committing += len(references)

        def on_disk() -> None:
            for consumer, references in acknowledged:
                consumer.queue.committing -= len(references)

        self._journal.when_safe(on_disk)

    @staticmethod
    def _check_held(transaction: Transaction[Message]) -> None:
        seen: set[int] = set()
        for consumer, references in transaction.acknowledged:
            for reference in references:
                twice = reference.sequence in seen  # it went back in between, and came again
                seen.add(reference.sequence)
                if twice or reference.consumer is not consumer or reference.transaction is not transaction:
                    raise _not_held()

    def _check_sends(self, sends: list[tuple[Message, list[Queue]]]) -> None:
        """A commit is one step and one batch of the journal. Raises Refused where that is too much or a queue refuses."""
        references, most = sum([len(queues) for _, queues in sends]), self._limits.max_transaction_references
        if references > most:
            raise Refused(
                "transaction-too-large",
                f"the transaction's messages for all their queues are {references}, a commit takes at most {most}",
                "commit more often, or raise limits: max-transaction-references",
            )
        self._intake.overflow.check_all(sends)

    def _routes(self, transaction: Transaction[Message], named: Callable[[Message], list[Queue] | None]) -> list[list[Queue]]:
        """Where each message goes; all are looked at before any is stored. Raises Refused."""
        intake, routes = self._intake, list[list[Queue]]()
        seen: set[tuple[str, str]] = set()
        for message in transaction.sends:
            if message.duplicate_id is not None:
                key = (message.address, message.duplicate_id)
                if intake.duplicate_ids.known(message) or key in seen:
                    raise Refused(
                        "duplicate-message", f"duplicate_id {message.duplicate_id!r} came to {message.address} before", "leave it out"
                    )
                seen.add(key)
            queues = named(message)
            routes.append(list(intake.queues_for(message) if queues is None else queues))
        return routes

    def roll_back(self, connection: Connection, session: int) -> None:
        """Held sends vanish; what was delivered to the session comes back counted, what it had not read uncounted."""
        undone = connection.transactions.pop(session, None)
        if undone is not None:
            self.release(undone)
        self._settlement.rolled_back(connection.name, connection.consumers_of(session))
        self._settling.when_over(connection.name, partial(self._drop_retired, connection))

    @staticmethod
    def _drop_retired(connection: Connection) -> None:
        for number, consumer in list(connection.retired.items()):
            if not consumer.unsettled:
                del connection.retired[number]

    def time_out(self, connection: Connection, now_ms: int) -> None:
        """A transaction that has been open too long is undone; its commit will be refused."""
        for session, transaction in list(connection.transactions.items()):
            timeout_ms = self._limits.transaction_timeout_ms
            began_ms = transaction.started_at_ms
            if began_ms is not None and transaction.broken is None and now_ms - began_ms >= timeout_ms:
                if transaction.timed_out is not None:
                    transaction.timed_out()
                    continue
                self.roll_back(connection, session)
                undone = self.of(connection, session)
                undone.fail(
                    "transaction-timed-out", f"the transaction was open for {timeout_ms // 1000} s and was rolled back", "commit sooner"
                )


def _not_held() -> Refused:
    what = "a message acknowledged in this transaction is no longer held (it timed out)"
    return Refused("not-held", what, "roll back and take the messages again")
