"""The open transaction of a TRANSACTED session: commit, rollback, and what a lost connection does to them.

A commit runs as a task of its own, so that cancelling the caller leaves no half-known state: the next ``commit()`` or
``rollback()`` waits for it and tells its outcome.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from homing.broker.protocols.native.codec import Op

from .errors import ConnectionLost, HomingError, TransactionError, UsageError
from .link import Link, Reply
from .message import Message, State
from .open_transaction import OpenTransaction
from .outbox import Outbox
from .subscription import Subscription
from .wire import Wire


def _rolled_back(why: str, connection_lost: bool = False) -> TransactionError:
    return TransactionError(
        "transaction-rolled-back", f"the transaction was rolled back: {why}", "do its work again in a new transaction", connection_lost
    )


def no_meaning(what: str) -> UsageError:
    return UsageError("transacted", f"{what}() has no meaning in a transaction", "use commit() and rollback()")


class Transaction:
    """``outboxes`` and ``subscriptions`` are those of its session. ``forget_ended`` is called where ended consumers hold nothing more."""

    def __init__(
        self, link: Link, outboxes: list[Outbox], subscriptions: dict[int, Subscription], forget_ended: Callable[[], None]
    ) -> None:
        self.open = OpenTransaction(link.next_session())
        self._link = link
        self._outboxes = outboxes
        self._subscriptions = subscriptions
        self._forget_ended = forget_ended

    # -- what sessions call

    async def commit(self) -> None:
        """Returns when sends and acknowledgements are on disk; raises TransactionError when all of it was rolled back
        (the broker's code, or ``transaction-rolled-back``), or ``outcome-unknown`` when that could not be learned."""
        if self.open.committing is not None:  # an earlier commit() was cancelled: its outcome comes first
            await self._outcome_of(self.open.committing)
            if self._is_empty():
                return
        self.open.committing = task = self._link.loop.create_task(self._commit())
        await self._outcome_of(task)

    async def rollback(self) -> None:
        """Undo what was sent, return what was given. Raises TransactionError ``already-committed`` when a cancelled ``commit()``
        had gone through after all."""
        if self.open.committing is not None:
            try:
                await self._outcome_of(self.open.committing)
            except TransactionError as error:
                if error.code == "outcome-unknown":
                    raise
            else:
                if self._is_empty():
                    raise TransactionError(
                        "already-committed", "the commit that was cancelled had gone through", "nothing is left to roll back"
                    )
        self.drop_unwritten("rollback() was called")
        await self._roll_back()

    async def _outcome_of(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait([task])  # unlike awaiting the task, cancelling this leaves it running
        if self.open.committing is task:
            self.open.committing = None
        task.result()

    # -- committing

    async def _commit(self) -> None:
        await self._written()
        if self.open.broken is not None:
            error = self.open.broken
            await self._roll_back()
            raise error
        if self._is_empty():
            return
        wire = self._link.wire
        assert wire is not None  # a loss would have broken a transaction that is not empty
        self.open.holding = True
        try:
            await self._commit_on(wire)
        finally:
            self.open.holding = False
            for outbox in self._outboxes:
                if outbox.waiting and self._link.wire is not None:
                    self._link.wire.mark(outbox)

    async def _commit_on(self, wire: Wire) -> None:
        covered: list[Message] = []
        for subscription in list(self._subscriptions.values()):
            covered += subscription.settlement.take_for_commit(wire, self.open.number)
        transaction_id = str(uuid.uuid4())
        future: asyncio.Future[Any] = self._link.loop.create_future()
        wire.write(Op.COMMIT, self._link.expect(Reply(TransactionError, future)), self.open.number, transaction_id, self.open.sends)
        self.open.sends = 0
        self._forget_ended()
        try:
            await future
        except ConnectionLost:
            await self._ask(transaction_id, covered)
        except HomingError:
            _mark(covered, State.RETURNED)
            await self._roll_back()  # so that what was handed to this side's window before the refusal is void on both sides
            raise
        _mark(covered, State.ACKNOWLEDGED)

    async def _ask(self, transaction_id: str, covered: list[Message]) -> None:
        """The answer to a COMMIT was lost: learn from the broker what became of it."""
        while True:
            try:
                answer = await self._link.call("transaction-outcome", transaction_id=transaction_id)
                break
            except HomingError as error:
                if isinstance(error, ConnectionLost) and self._link.gone is None:
                    continue
                _mark(covered, State.LOST)
                raise TransactionError(
                    "outcome-unknown",
                    f"the connection was lost during commit {transaction_id}, and its outcome could not be asked for ({error.message})",
                    "call transaction-outcome with this id once the broker is back, before doing the work again",
                    connection_lost=True,
                ) from error
        if answer["outcome"] != "committed":
            _mark(covered, State.LOST)
            raise _rolled_back("the connection was lost before the broker had the commit", connection_lost=True)

    async def _written(self) -> None:
        """Everything sent so far is on the wire; credit may make it wait."""
        for outbox in list(self._outboxes):
            await outbox.written()

    # -- rolling back

    async def _roll_back(self) -> None:
        self.open.broken = None
        self.open.sends = 0
        wire = self._link.wire
        subscriptions = list(self._subscriptions.values())
        if wire is None:
            for subscription in subscriptions:
                subscription.settlement.void(State.LOST)
            return
        for subscription in subscriptions:
            subscription.void_until_rolled_back()
        self._forget_ended()

        def done(_: object) -> None:
            for subscription in subscriptions:
                subscription.rolled_back()

        future: asyncio.Future[Any] = self._link.loop.create_future()
        wire.write(Op.ROLLBACK, self._link.expect(Reply(TransactionError, future, done, done)), self.open.number)
        try:
            await future
        except ConnectionLost:
            return  # which rolled it back as well

    def drop_unwritten(self, why: str) -> None:
        """Sends that have not left are taken back; whoever waits for them is notified."""
        for outbox in list(self._outboxes):
            outbox.drop_waiting(_rolled_back(why))

    def _is_empty(self) -> bool:
        waiting = any(outbox.waiting for outbox in self._outboxes)
        return not waiting and not self.open.sends and not self._holds_messages()

    def _holds_messages(self) -> bool:
        return any(subscription.settlement.held for subscription in self._subscriptions.values())

    def lost(self) -> None:
        """Called before consumers forget what they held."""
        if self.open.holding:
            return  # the commit asks for its outcome
        if self.open.broken is None and (self.open.sends or self._holds_messages()):
            self.open.broken = _rolled_back("its connection was lost", connection_lost=True)
            self.drop_unwritten("its connection was lost")
        self.open.sends = 0


def _mark(messages: list[Message], state: State) -> None:
    for message in messages:
        message._state = state
